"""A sparse network on a CPU, several times faster than a dense one in int8.

    engine = sp.engine.compile(model, example, calibration=images)
    y = engine(x)

From a module to a run, each step a file:

    export, aten, programs, opaque      torch.export -> graph; what has no operation stays torch's, as data
    fold                                batch norm, activations and residuals go into layers
    calibrate, quantize                 ranges of values -> whole numbers (quantized)
    integers, run_integers              what whole numbers mean, bit by bit: the reference of the kernels
    grids, windows, formats             where pixels lie, what a window reads, which weights are kept
    lower, steps*, compiled, plan       sections of steps, their memory, choices by measurement
    native/, native, build              the kernels in C, bound, built at first use
    engine, explain, files              what a user sees
"""

from softprune.engine.engine import Engine as Engine
from softprune.engine.engine import compile as compile  # noqa: A004
from softprune.engine.engine import load as load
from softprune.engine.explain import Errors as Errors
from softprune.engine.explain import Explanation as Explanation
