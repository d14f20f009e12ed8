"""Removal: a smaller network with the same outputs, without what zeros have made dead.

    varies       which values depend on the input
    spread       how dependence spreads through operations
    sizes        an example in other sizes
    dead         which units nobody needs
    slicing      a copy without them
    huggingface  what a config can describe
    masks        models that torch's own pruning masks
    result       what went, and how long both take
    shrink       ``shrink(model, example) -> Shrunk``
    load         ``load_small(model, tensors)``: the small network again, from its tensors

Imports ``structure``, ``report`` and ``selection``.
"""

from softprune.removal.load import load_small
from softprune.removal.result import Change, Latency, Shrunk
from softprune.removal.shrink import shrink

__all__ = ["Change", "Latency", "Shrunk", "load_small", "shrink"]
