"""Refusals of the pruner, at construction, each with what to write instead."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from softprune.errors import listing
from softprune.kernels.columns import Columns
from softprune.kernels.sharding import sharding
from softprune.prox.base import Prox
from softprune.thresholds.base import Threshold, Trainable

_pruned_by: Any = WeakIdKeyDictionary()  # Parameter -> weak reference to its pruner
_replaceable: Any = weakref.WeakSet()  # pruners that make way for the next one of their parameters


def prunable(params: Mapping[str, nn.Parameter], optimizer: Optimizer, threshold: Threshold) -> dict[str, nn.Parameter]:
    """``params`` as a dictionary, if it can be pruned under this optimizer by this threshold."""
    if not isinstance(params, Mapping):
        raise TypeError(
            f"`Pruner(params=...)` must be a mapping {{name: Parameter}}. Got {type(params).__name__}: "
            "write `softprune.select(model)`."
        )
    if not params:
        raise ValueError("`Pruner(params=...)` is empty. Write `softprune.select(model)`.")
    _each_once(params)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if missing := [name for name, p in params.items() if id(p) not in held]:
        raise ValueError(
            f"The optimizer does not hold {listing(map(repr, missing), most=5)}. Build it from the parameters that are "
            "to be pruned, after moving the model to its device: `optimizer = SGD(model.parameters(), ...)`."
        )
    if isinstance(threshold, Trainable):
        _trainable(threshold, params, held)
    if threshold.reads_lr and any(group.get("lr") is None for group in optimizer.param_groups):
        raise ValueError(
            f"{type(threshold).__name__} follows the learning rate, and {type(optimizer).__name__} has none: "
            "`lr` is missing in a param group. Use a schedule, or give the optimizer an `lr`."
        )
    return dict(params)


def factors(threshold: object, prox: object, gradient: object) -> None:
    """Refuse what is no threshold, no prox or no gradient."""
    if not (isinstance(threshold, Threshold) or (callable(threshold) and not isinstance(threshold, type))):
        instead = f": write `softprune.Constant({threshold})`" if isinstance(threshold, int | float) else ""
        raise TypeError(f"`Pruner(threshold=...)` must be a schedule or a threshold. Got {threshold!r}{instead}.")
    if not isinstance(prox, Prox):
        raise TypeError(f"`Pruner(prox=...)` must be a prox, such as `softprune.SoftThreshold()`. Got {prox!r}.")
    if gradient is not None and not callable(gradient):
        raise TypeError(
            f"`Pruner(gradient=...)` must be `softprune.identity` or `softprune.subgradient`. Got {gradient!r}."
        )


def columns(prox: Prox, columns: Columns, threshold: Threshold) -> None:
    """Refuse a threshold that gives other levels than the prox reads."""
    if len(prox.reads) != len(columns):
        raise TypeError(
            f"{prox} reads {' and '.join(prox.reads)}, and {type(threshold).__name__} gives {len(columns)} of them. "
            "Leave `prox` out: each threshold brings the prox that fits it."
        )


def zeros(prox: Prox, threshold: Threshold, thetas: Sequence[Tensor]) -> None:
    """Refuse a prox whose zeros a threshold would miscount, seen on numbers in the shape of a parameter."""
    if not threshold.counts_zeros:
        return
    shape, d = min(thetas, key=Tensor.numel).shape, 0.5
    theta = torch.linspace(-1, 1, shape.numel(), device="cpu").view(shape)
    if not torch.equal(prox(theta, d) == 0, theta.abs() <= d):
        raise TypeError(
            f"Cannot use TargetSparsity with {prox}. This is because it takes the weights with |θ| <= d for the zeros, "
            "and this prox makes others zero. Use a schedule or LATS."
        )


def attached(handles: Sequence[object]) -> None:
    if not handles:
        raise RuntimeError("A detached pruner has no state. Save or load it before `detach()`.")


def claim(params: Mapping[str, Tensor], pruner: object) -> None:
    """Remember that ``pruner`` prunes these parameters."""
    for p in params.values():
        _pruned_by[p] = weakref.ref(pruner)


def pruner_of(p: Tensor) -> Any:
    reference = _pruned_by.get(p)
    return None if reference is None else reference()


def replaceable(pruner: object) -> None:
    """Let this pruner make way when another one is built for its parameters."""
    _replaceable.add(pruner)


def release(params: Mapping[str, Tensor]) -> None:
    for p in params.values():
        _pruned_by.pop(p, None)


def _each_once(params: Mapping[str, nn.Parameter]) -> None:
    first: dict[int, str] = {}
    for name, p in params.items():
        if not (isinstance(p, Tensor) and p.is_floating_point()):
            raise TypeError(f"Cannot prune {name!r}: it is not a floating-point parameter.")
        if (other := first.setdefault(id(p), name)) != name:
            raise ValueError(f"{other!r} and {name!r} are one parameter, which cannot be pruned twice. Drop one.")
        _make_way(p)
        if pruner_of(p) is not None:
            gc.collect()  # it may be gone but for its optimizer, which holds it as it holds the optimizer
        if pruner_of(p) is not None:
            raise ValueError(f"{name!r} is pruned already. Call `detach()` on its pruner first, or leave it out.")


def _make_way(p: Tensor) -> None:
    if (pruner := pruner_of(p)) in _replaceable:
        pruner.detach()


def _trainable(threshold: Trainable, params: Mapping[str, nn.Parameter], held: set[int]) -> None:
    kind = type(threshold).__name__
    if threshold.names != tuple(params):
        raise ValueError(
            f"`{kind}` was built for other parameters than `Pruner` is given. Pass the same mapping to both."
        )
    if any(sharding(p) is not None for p in threshold.parameters()):
        raise ValueError(
            f"The parameters of `{kind}` are sharded, one number here and one there. Hang it on the model after "
            "`fully_shard`."
        )
    if any(id(p) not in held for p in threshold.parameters()):
        raise ValueError(
            f"The optimizer does not hold the parameters of `{kind}`, so the threshold would not be trained. "
            "Write `optimizer.add_param_group({'params': threshold.parameters()})` before making an lr "
            "scheduler, or hand them to the optimizer with the others."
        )
