"""A sparse network on a CPU: compiled once, called like a function.

    engine = sp.engine.compile(model, example, calibration=images)
    y = engine(x)
    print(engine.explain())

``compile`` is the whole way: export, fold, quantize, plan. Of several precisions it takes the fastest whose outputs are
near enough to the model's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from softprune.engine import files, native
from softprune.engine.build import CompilerError
from softprune.engine.calibrate import batches
from softprune.engine.clock import fastest
from softprune.engine.explain import Errors, Explanation, errors, explanation
from softprune.engine.export import arguments
from softprune.engine.export import graph as exported
from softprune.engine.fold import fold
from softprune.engine.graph import Graph
from softprune.engine.plan import Plan, checked
from softprune.engine.quantize import quantize
from softprune.engine.quantized import Precision, Quantized
from softprune.engine.run_torch import compute, run
from softprune.errors import ArgumentError, did_you_mean, require, require_whole

AUTO = "auto"
COMPARED = 64  # samples of the calibration data, at most, that outputs are compared on
SMALLEST = 1e-30


def compile(  # noqa: A001
    model: nn.Module,
    example: Tensor | tuple[Tensor, ...] | dict[str, Tensor],
    calibration: Any = None,
    precision: str = AUTO,
    *,
    tolerance: float = 0.05,
    threads: int | None = None,
) -> Engine:
    """A network that runs on this CPU and makes use of its zeros.

    Args:
        model: trained, in float32, on the CPU. It is left as it was.
        example: an input, or several, or a dict of them by name. The engine takes any batch of inputs of these sizes;
            that of the example alone, where forward fixes the number or takes ``**kwargs``.
        calibration: inputs like those that it will see, 64 or more: a tensor or an array, a tuple of tensors, or an
            iterable of batches. int8 and int16 need them.
        precision: "int8", "int16", "fp32", or "auto": the fastest whose error is at most ``tolerance``, fp32 if there
            is no other. Without calibration data it is fp32, too.
        tolerance: the largest error of the outputs that "auto" allows, ‖ŷ − y‖ / ‖y‖ over calibration data.
        threads: of one call; those of torch when None.
    """
    require("compile", "tolerance", tolerance, ">= 0", lambda x: x >= 0)
    count = torch.get_num_threads() if threads is None else threads
    require_whole("compile", "threads", count, least=1)
    wanted = _wanted(precision)
    if calibration is None and wanted in (Precision.INT8.value, Precision.INT16.value):
        raise ArgumentError(
            f"`compile(precision={wanted!r})` needs to see the values that the network will hold. Give some inputs: "
            "`calibration=images`, 64 or more."
        )
    _refuse_double(model, example)
    network = fold(exported(model, example))
    calibration = _single(calibration)
    if wanted != AUTO:
        return _engine(network, calibration, Precision(wanted), count)
    if calibration is None:
        return _engine(network, None, Precision.FP32, count)
    calibration = calibration if isinstance(calibration, Tensor | Mapping | tuple) else list(calibration)
    tried = [_engine(network, calibration, kind, count) for kind in Precision]
    return _fastest(tried, _samples(network, calibration), tolerance)


class Engine:
    """A compiled network: ``engine(x)`` gives what the model gives, for torch tensors and NumPy arrays.

    Several threads may call it at once. It may be saved, and loaded with ``softprune.engine.load``.
    """

    def __init__(self, net: Quantized, threads: int, choice: Sequence[str] | None = None) -> None:
        self._net, self._threads = net, threads
        self._plan: Plan | None = None
        try:
            self._plan = Plan(net, compute, threads, native.load(), choice)
        except CompilerError as error:
            warnings.warn(str(error), stacklevel=3)

    @property
    def precision(self) -> str:
        return self._net.precision.value

    @property
    def graph(self) -> Graph:
        """What it computes."""
        return self._net.graph

    @property
    def native(self) -> bool:
        """Whether kernels run it; else there is no compiler, and torch does."""
        return self._plan is not None

    def __call__(self, *inputs: Any) -> Any:
        tensors = tuple(x if isinstance(x, Tensor) else torch.as_tensor(x) for x in inputs)
        outputs = self._run(tensors)
        if inputs and not any(isinstance(x, Tensor) for x in inputs):
            arrays = tuple(y.numpy() for y in outputs)
            return arrays[0] if len(arrays) == 1 else arrays
        return outputs[0] if len(outputs) == 1 else outputs

    def explain(self, *inputs: Tensor) -> Explanation:
        """Where each layer runs, how sparse it is, and how long it takes. Prints as a table.

        Args:
            inputs: to measure with; random ones of batch 1 when left out.
        """
        return explanation(self._net, self._plan, inputs or _random(self.graph))

    def error(self, *inputs: Tensor) -> Errors:
        """How far every value is from torch's in float32. Prints as a table."""
        return errors(self._net, inputs)

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file that holds numbers and names, and no code."""
        files.write(path, self._net, self._plan.operations if self._plan else None)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "An engine cannot be copied or pickled: it holds code of this machine. Write `engine.save(path)`, and "
            "`softprune.engine.load(path)` where it is wanted."
        )

    def _run(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self._plan(*inputs) if self._plan else run(self.graph, *checked(self.graph, inputs).values())


def load(path: str | PathLike[str], threads: int | None = None) -> Engine:
    """An engine that ``Engine.save`` wrote. What is measured is measured again: this may be another machine."""
    net, choice = files.read(path)
    return Engine(net, torch.get_num_threads() if threads is None else threads, choice)


def _refuse_double(model: nn.Module, example: Any) -> None:
    args, kwargs = arguments(example)
    inputs = ((f"input {n}", x) for n, x in enumerate((*args, *kwargs.values())))
    for name, x in [*model.named_parameters(), *inputs]:
        if x.dtype is torch.float64:
            raise ArgumentError(f"The engine computes in float32. `{name}` is in float64: write `.float()` first.")


def _single(data: Any) -> Any:
    """Tensors and arrays in single precision; what gives batches as it is."""
    if isinstance(data, Mapping):
        return {name: _single(x) for name, x in data.items()}
    if isinstance(data, tuple):
        return tuple(map(_single, data))
    if not isinstance(data, Tensor) and not hasattr(data, "__array__"):
        return data
    x = torch.as_tensor(data)
    return x.float() if x.is_floating_point() else x


def _wanted(precision: str) -> str:
    known = [AUTO, *(p.value for p in Precision)]
    if precision not in known:
        raise ArgumentError(
            f"`compile(precision=...)` must be one of {', '.join(map(repr, known))}. Got {precision!r}."
            f"{did_you_mean(str(precision), known)}"
        )
    return precision


def _engine(network: Graph, calibration: Any, precision: Precision, threads: int) -> Engine:
    if precision is Precision.FP32:
        net = Quantized(network, {}, {}, precision)
    else:
        net = quantize(network, calibration, precision)
    engine = Engine(net, threads)
    return engine if engine._plan is None else _without_dense(engine)


def _without_dense(engine: Engine) -> Engine:
    """Layers that torch runs faster, because they are too dense, are torch's: if that makes the whole faster."""
    inputs = _random(engine.graph)
    slow = frozenset(engine.explain(*inputs).slower_than_torch())
    if not slow:
        return engine
    other = Engine(engine._net, engine._threads, [op.name for op in engine.graph.operations if op.name not in slow])
    first, second = fastest([lambda: engine(*inputs), lambda: other(*inputs)], threads=engine._threads)
    return engine if first <= second else other


def _fastest(engines: Sequence[Engine], inputs: tuple[Tensor, ...], tolerance: float) -> Engine:
    exact = run(engines[0].graph, *inputs)
    fp32 = Precision.FP32.value
    good = [e for e in engines if e.precision == fp32 or _error(e._run(inputs), exact) <= tolerance]
    one = tuple(x[:1] for x in inputs) if engines[0].graph.batch is None else inputs
    calls: list[Callable[[], Any]] = [lambda engine=engine: engine(*one) for engine in good]  # type: ignore[misc]
    times = fastest(calls, threads=good[0]._threads)
    return good[times.index(min(times))]


def _samples(network: Graph, calibration: Any) -> tuple[Tensor, ...]:
    parts = []
    for part in batches(network, calibration):
        parts.append(part)
        if network.batch is not None or sum(len(p[0]) for p in parts) >= COMPARED:
            break
    return tuple(torch.cat(same)[:COMPARED] if network.batch is None else same[0] for same in zip(*parts, strict=True))


def _error(outputs: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The largest over the outputs of ‖ŷ − y‖ / ‖y‖; infinities, as masks leave them, must be the same."""
    pairs = [(y.double(), want.double()) for y, want in zip(outputs, exact, strict=True)]
    return max(
        float((y - want).where(y != want, 0).norm() / want[want.isfinite()].norm().clamp_min(SMALLEST))
        for y, want in pairs
    )


def _random(network: Graph) -> tuple[Tensor, ...]:
    """Inputs of batch 1, unless the network takes another one only."""
    generator = torch.Generator().manual_seed(0)
    zeros = network.zeros(network.batch or 1)
    return tuple(x.normal_(generator=generator) if x.is_floating_point() else x for x in zeros)
