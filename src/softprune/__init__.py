"""softprune: sparse neural networks by soft thresholding, while they train.

    params = sp.select(model)
    pruner = sp.Pruner(params, optimizer, threshold=sp.SLATS(final=0.5, steps=T))

Names are imported when they are first used, so that schedules and the command line do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softprune import curves
    from softprune.allocation import erdos_renyi, erk, uniform
    from softprune.flops import flops_per_weight
    from softprune.gradient import identity, subgradient
    from softprune.paper import budgets
    from softprune.penalty import implied_penalty, threshold_from_penalty
    from softprune.prox import Blend, Prox, SoftThreshold
    from softprune.pruner import Pruner
    from softprune.report import Report, summarize
    from softprune.schedule import PGH, SLATS, Constant, CosineLATS, Linear, Log2, Schedule, Sine
    from softprune.selection import select
    from softprune.target import TargetSparsity
    from softprune.threshold import GPO, LATS, STR, Threshold, Trainable

__version__ = "0.1.0"

_HOME = {
    "allocation": ("erdos_renyi", "erk", "uniform"),
    "flops": ("flops_per_weight",),
    "gradient": ("identity", "subgradient"),
    "paper": ("budgets",),
    "penalty": ("implied_penalty", "threshold_from_penalty"),
    "prox": ("Blend", "Prox", "SoftThreshold"),
    "pruner": ("Pruner",),
    "report": ("Report", "summarize"),
    "schedule": ("PGH", "SLATS", "Constant", "CosineLATS", "Linear", "Log2", "Schedule", "Sine"),
    "selection": ("select",),
    "target": ("TargetSparsity",),
    "threshold": ("GPO", "LATS", "STR", "Threshold", "Trainable"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "GPO",
    "LATS",
    "PGH",
    "SLATS",
    "STR",
    "Blend",
    "Constant",
    "CosineLATS",
    "Linear",
    "Log2",
    "Prox",
    "Pruner",
    "Report",
    "Schedule",
    "Sine",
    "SoftThreshold",
    "TargetSparsity",
    "Threshold",
    "Trainable",
    "budgets",
    "curves",
    "erdos_renyi",
    "erk",
    "flops_per_weight",
    "identity",
    "implied_penalty",
    "select",
    "subgradient",
    "summarize",
    "threshold_from_penalty",
    "uniform",
]


def __getattr__(name: str) -> Any:
    if name == "curves":
        return import_module("softprune.curves")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'softprune' has no attribute {name!r}")
    value = getattr(import_module(f"softprune.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
