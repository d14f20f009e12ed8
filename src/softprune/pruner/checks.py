"""Refusals of the pruner, each with what to write instead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from softprune.attach.lookup import held_ids
from softprune.attach.state import Entries, holds_entries
from softprune.errors import ArgumentError, ArgumentTypeError, UsageError, listing
from softprune.groups.base import Grouping
from softprune.kernels.columns import is_scalar
from softprune.prox.base import Prox
from softprune.prox.gradient import Gradient, calm, identity
from softprune.prox.group import Grouped
from softprune.prox.nm import NM
from softprune.prox.power import PowerThreshold
from softprune.pruner.registry import is_free
from softprune.pruner.state import mark
from softprune.thresholds.base import Rule, Threshold


def factors(threshold: object, prox: object, groups: object, gradient: object) -> None:
    """Refuse what is no threshold, no prox, no grouping or no gradient."""
    if not (isinstance(threshold, Threshold) or (callable(threshold) and not isinstance(threshold, type))):
        raise ArgumentTypeError(
            f"`Pruner(threshold=...)` must be a schedule or a threshold. Got {threshold!r}{_instead(threshold)}."
        )
    if prox is not None and not isinstance(prox, Prox):
        raise ArgumentTypeError(
            f"`Pruner(prox=...)` must be a prox, such as `softprune.SoftThreshold()`. Got {prox!r}."
        )
    if groups is not None and not isinstance(groups, Grouping):
        raise ArgumentTypeError(
            f"`Pruner(groups=...)` must be a grouping, such as `softprune.Blocks(1, 4)`. Got {groups!r}."
        )
    if gradient is not None and not callable(gradient):
        raise ArgumentTypeError(
            "`Pruner(gradient=...)` must be `softprune.identity`, `softprune.calm` or `softprune.subgradient`. Got "
            f"{gradient!r}."
        )


def _instead(threshold: object) -> str:
    if not isinstance(threshold, int | float):
        return ""
    target = f"`softprune.TargetSparsity({threshold}, steps)` for a sparsity, " if 0 < threshold < 1 else ""
    return f": write {target}`softprune.Constant({threshold})` for a threshold"


def prunable(params: Mapping[str, nn.Parameter], optimizer: Optimizer) -> dict[str, nn.Parameter]:
    """``params`` as a dictionary, if they can be pruned under this optimizer."""
    if not isinstance(params, Mapping):
        raise ArgumentTypeError(
            f"`Pruner(params=...)` must be a mapping {{name: Parameter}}. Got {type(params).__name__}: "
            "write `softprune.select(model)`."
        )
    if not params:
        raise ArgumentError("`Pruner(params=...)` is empty. Write `softprune.select(model)`.")
    _each_once(params)
    held = held_ids(optimizer)
    if missing := [name for name, p in params.items() if id(p) not in held]:
        raise ArgumentError(
            f"The optimizer does not hold {listing(map(repr, missing), most=5)}. Build it from the parameters that are "
            "to be pruned, after moving the model to its device: `optimizer = SGD(model.parameters(), ...)`."
        )
    if loaded := [name for name, p in params.items() if holds_entries(optimizer, p)]:
        raise ArgumentError(
            f"The optimizer's state holds hidden weights for {loaded[0]!r}, from a run that was pruned. Build the "
            "Pruner first, and load the optimizer's state then: it resumes the pruning."
        )
    return dict(params)


def _each_once(params: Mapping[str, nn.Parameter]) -> None:
    first: dict[int, str] = {}
    for name, p in params.items():
        if not (isinstance(p, Tensor) and p.is_floating_point()):
            raise ArgumentTypeError(f"Cannot prune {name!r}: it is not a floating-point parameter.")
        if (other := first.setdefault(id(p), name)) != name:
            raise ArgumentError(f"{other!r} and {name!r} are one parameter, which cannot be pruned twice. Drop one.")
        if not is_free(p):
            raise ArgumentError(
                f"{name!r} is pruned already. Call `detach()` on its pruner first, or leave it out; "
                "`softprune.pruner.registry.pruner_of(parameter)` finds a pruner that was not kept."
            )


def fit(prox: Prox, rule: Rule, gradient: Gradient, params: Sequence[Tensor]) -> None:
    """Refuse a prox that reads other levels than the rule gives, or claims less than its use needs."""
    kind = type(rule.threshold).__name__
    if len(prox.reads) != len(rule.levels):
        raise ArgumentTypeError(
            f"{prox} reads {' and '.join(prox.reads)}, and {kind} gives {len(rule.levels)} of them. "
            "Leave `prox` out: each threshold brings the prox that fits it."
        )
    if rule.counts_zeros and not prox.thresholds:
        raise ArgumentTypeError(
            f"Cannot use {kind} with {prox}. This is because it takes the weights with |θ| <= d for the zeros, "
            "which this prox does not claim (`Prox.thresholds`). Use a schedule or LATS."
        )
    scalar = prox.scalar if isinstance(prox, Grouped) else prox
    if rule.trained and isinstance(scalar, PowerThreshold) and scalar.p == math.inf:
        raise ArgumentTypeError(
            f"Cannot use {kind} with {prox}. This is because the weights that survive do not depend on the threshold, "
            "so that it would get no gradient. Use `sp.SoftThreshold()`."
        )
    if not prox.bounded and (rule.trained or gradient not in (identity, calm)):
        what = kind if rule.trained else getattr(gradient, "__name__", gradient)
        raise ArgumentTypeError(
            f"Cannot use {prox} with {what}. This is because the derivative of the mapping has no bound "
            "(`Prox.bounded`): it grows without end towards the threshold. Use `gradient=sp.calm` and a threshold "
            "that is not trained, or `sp.SoftThreshold()`."
        )
    if isinstance(prox, Grouped):
        _fit_groups(prox, rule, kind)
    elif any(map(prox.cuts, params)):
        raise ArgumentTypeError(
            f"Cannot use {prox} with sharded parameters. This is because each process would map its part alone, and "
            "weights that are mapped together lie in several parts (`Prox.cuts`). Use DDP, or shard another dimension "
            "(`shard_placement_fn`)."
        )
    if isinstance(prox, NM) and not all(map(is_scalar, rule.levels)):
        raise ArgumentTypeError(
            f"Cannot use {kind} with {prox}. This is because it has a threshold for each weight, and a group has one. "
            "Leave `prox` out."
        )


def _fit_groups(prox: Grouped, rule: Rule, kind: str) -> None:
    if not all(map(is_scalar, rule.levels)):
        raise ArgumentTypeError(
            f"Cannot use {kind} with groups. This is because it has a threshold for each weight, and a group has one. "
            "Leave `groups` out."
        )
    if rule.trained and prox.spans:
        raise ArgumentTypeError(
            f"Cannot use {kind} with groups that have weights in several parameters. This is because each parameter "
            "would train a threshold of its own. Use a schedule, LATS or a target."
        )


def same_prox(prox: Prox, entry: Mapping[str, Any]) -> None:
    """Refuse θ that belong to another mapping: they would make other weights. States of versions without the power
    threshold do not say theirs."""
    older = "prox" not in entry
    if older and (isinstance(prox, Grouped) or (isinstance(prox, PowerThreshold) and prox.p != 1)):
        raise ArgumentError(
            f"Cannot load this state with {prox}: an earlier version saved it, whose default was the soft threshold. "
            "Write `Pruner(..., prox=sp.SoftThreshold())`, without groups."
        )
    if not older and int(entry["prox"]) != mark(prox):
        raise ArgumentError(
            f"Cannot load this state: it was saved with another prox than {prox}, and its hidden weights would make "
            "other weights. Build the Pruner with the prox of that run."
        )


def attached(handles: Sequence[object]) -> None:
    if not handles:
        raise UsageError("A detached pruner has no state. Save or load it before `detach()`.")


def hidden_weights(params: Mapping[str, Tensor], entries: Entries) -> None:
    """Refuse a state without hidden weights for these parameters, or with those of another model."""
    for name, p in params.items():
        theta = entries.get(p, {}).get("theta")
        if not isinstance(theta, Tensor) or "step" not in entries[p]:
            raise ArgumentError(
                f"Cannot load this state: it holds no hidden weights for {name!r}. It was saved without a pruner, "
                "or for another model; or torch.distributed.checkpoint dropped them, as it does with "
                "`flatten_optimizer_state_dict=True`: leave that off. To start pruning from a state without any, load "
                "it before building the Pruner."
            )
        if theta.shape != p.shape:
            raise ArgumentError(
                f"Cannot load this state: {name!r} has the shape {tuple(p.shape)}, and the state holds "
                f"{tuple(theta.shape)}. It is the state of another model."
            )
