"""softprune: sparse neural networks, pruned while they train.

    params = sp.select(model)
    pruner = sp.Pruner(params, optimizer, threshold=sp.TargetSparsity(0.95, steps=T))

Names are imported when they are first used, so that schedules and the command line do not wait for torch.

The rooms, each of which imports only rooms below it (docs/architecture.md has the picture):

    cli, training                   the command: a run and its folder; names become objects
    lightning, transformers         trainers: one callback each
    methods                         free, for rival methods
    recipes, spiking                named settings, the paper's tables; spiking networks
    removal, layouts, bench         a smaller network, without what died; sparse weights for a GPU; runtimes compared
    report                          what came out
    pruner                          Algorithm 1
    thresholds                      where d comes from
    prox, attach                    θ, d -> w; what torch's optimizers do
    groups                          which weights share a fate
    kernels                         many tensors in one launch
    schedules, selection            step -> d; model -> {name: parameter}
    structure                       which channels a network has, who makes and who reads each
    models, data                    networks; images and text
    engine                          a sparse network on a CPU, faster than dense int8
    errors                          sentences for users
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # written as `x as x`, which is how a type checker knows a name as public
    from softprune import engine as engine
    from softprune.groups.base import Grouping as Grouping
    from softprune.groups.blocks import Blocks as Blocks
    from softprune.groups.channels import Channels as Channels
    from softprune.groups.channels import Heads as Heads
    from softprune.groups.channels import Neurons as Neurons
    from softprune.groups.units import Groups as Groups
    from softprune.layouts.convert import to_block_sparse as to_block_sparse
    from softprune.layouts.convert import to_semi_structured as to_semi_structured
    from softprune.prox.base import Prox as Prox
    from softprune.prox.gradient import calm as calm
    from softprune.prox.gradient import identity as identity
    from softprune.prox.gradient import subgradient as subgradient
    from softprune.prox.nm import NM as NM
    from softprune.prox.power import PowerThreshold as PowerThreshold
    from softprune.prox.soft import Blend as Blend
    from softprune.prox.soft import SoftThreshold as SoftThreshold
    from softprune.pruner.pruner import Pruner as Pruner
    from softprune.recipes.paper import budgets as budgets
    from softprune.removal.load import load_small as load_small
    from softprune.removal.shrink import shrink as shrink
    from softprune.report.flops import flops_per_weight as flops_per_weight
    from softprune.report.report import Report as Report
    from softprune.report.report import summarize as summarize
    from softprune.schedules import curves as curves
    from softprune.schedules.base import Constant as Constant
    from softprune.schedules.base import Schedule as Schedule
    from softprune.schedules.penalty import implied_penalty as implied_penalty
    from softprune.schedules.penalty import threshold_from_penalty as threshold_from_penalty
    from softprune.schedules.slats import PGH as PGH
    from softprune.schedules.slats import SLATS as SLATS
    from softprune.schedules.slats import CosineLATS as CosineLATS
    from softprune.schedules.stds import Linear as Linear
    from softprune.schedules.stds import Log2 as Log2
    from softprune.schedules.stds import Sine as Sine
    from softprune.selection import select as select
    from softprune.thresholds.base import Threshold as Threshold
    from softprune.thresholds.budgets import erdos_renyi as erdos_renyi
    from softprune.thresholds.budgets import erk as erk
    from softprune.thresholds.budgets import uniform as uniform
    from softprune.thresholds.gradual import GradualSparsity as GradualSparsity
    from softprune.thresholds.keep import KeepZeros as KeepZeros
    from softprune.thresholds.scheduled import LATS as LATS
    from softprune.thresholds.target import TargetSparsity as TargetSparsity
    from softprune.thresholds.trained import GPO as GPO
    from softprune.thresholds.trained import STR as STR
    from softprune.thresholds.trained import Trainable as Trainable

__version__ = "0.1.0"

_HOME = {
    "groups.base": ("Grouping",),
    "groups.blocks": ("Blocks",),
    "groups.channels": ("Channels", "Heads", "Neurons"),
    "groups.units": ("Groups",),
    "layouts.convert": ("to_block_sparse", "to_semi_structured"),
    "prox.base": ("Prox",),
    "prox.gradient": ("calm", "identity", "subgradient"),
    "prox.nm": ("NM",),
    "prox.power": ("PowerThreshold",),
    "prox.soft": ("Blend", "SoftThreshold"),
    "pruner.pruner": ("Pruner",),
    "recipes.paper": ("budgets",),
    "removal.load": ("load_small",),
    "removal.shrink": ("shrink",),
    "report.flops": ("flops_per_weight",),
    "report.report": ("Report", "summarize"),
    "schedules.base": ("Constant", "Schedule"),
    "schedules.penalty": ("implied_penalty", "threshold_from_penalty"),
    "schedules.slats": ("PGH", "SLATS", "CosineLATS"),
    "schedules.stds": ("Linear", "Log2", "Sine"),
    "selection": ("select",),
    "thresholds.base": ("Threshold",),
    "thresholds.budgets": ("erdos_renyi", "erk", "uniform"),
    "thresholds.gradual": ("GradualSparsity",),
    "thresholds.keep": ("KeepZeros",),
    "thresholds.scheduled": ("LATS",),
    "thresholds.target": ("TargetSparsity",),
    "thresholds.trained": ("GPO", "STR", "Trainable"),
}
_MODULES = {"curves": "schedules.curves", "engine": "engine"}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names} | _MODULES

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'softprune' has no attribute {name!r}")
    home = import_module(f"softprune.{_MODULE_OF[name]}")
    value = home if name in _MODULES else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
