"""Budgets: how a target sparsity is shared out among the parameters.

A budget is {name: sparsity}, or a function ``(params, target) -> {name: sparsity}`` that makes one:

    uniform        the same for every parameter
    erdos_renyi    density ∝ (n_in + n_out) / (n_in · n_out)
    erk            the same with the kernel's sides: density ∝ (n_in + n_out + k₁ + k₂) / (n_in · n_out · k₁ · k₂)
    sp.budgets     what the paper's runs arrived at, layer by layer

The sum over parameters is the target exactly. Without a budget the threshold is global, and learning decides.
``sp.flops_per_weight`` lets a global target count multiplications instead of weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real

from torch import Tensor

from softprune.errors import ArgumentError, listing, require
from softprune.thresholds.base import Weights
from softprune.thresholds.quantile import Cell

Budget = Mapping[str, float] | Callable[[Mapping[str, Tensor], float], Mapping[str, float]]


def uniform(params: Mapping[str, Tensor], target: float) -> dict[str, float]:
    """The same sparsity for every parameter: ``TargetSparsity(0.9, steps, budget=sp.uniform)``.

    Args:
        params: {name: parameter}.
        target: the sparsity of all of them together.

    >>> import torch
    >>> uniform({"a": torch.empty(2, 3), "b": torch.empty(4, 4)}, 0.9)
    {'a': 0.9, 'b': 0.9}
    """
    return dict.fromkeys(params, target)


def erdos_renyi(params: Mapping[str, Tensor], target: float) -> dict[str, float]:
    """Density in proportion to (n_in + n_out) / (n_in · n_out): small layers stay denser.

    Args:
        params: {name: parameter}.
        target: the sparsity of all of them together.

    >>> import torch
    >>> shares = erdos_renyi({"a": torch.empty(10, 10), "b": torch.empty(100, 100)}, 0.9)
    >>> {name: round(share, 4) for name, share in shares.items()}
    {'a': 0.0818, 'b': 0.9082}
    """
    return _share_out(params, target, {name: sum(p.shape[:2]) / math.prod(p.shape[:2]) for name, p in params.items()})


def erk(params: Mapping[str, Tensor], target: float) -> dict[str, float]:
    """Erdős-Rényi with the kernel: density in proportion to the sum of all sides over their product.

    Args:
        params: {name: parameter}.
        target: the sparsity of all of them together.

    >>> import torch
    >>> shares = erk({"a": torch.empty(16, 16, 3, 3), "b": torch.empty(16, 16, 1, 1)}, 0.5)
    >>> {name: round(share, 4) for name, share in shares.items()}
    {'a': 0.5556, 'b': 0.0}
    """
    return _share_out(params, target, {name: sum(p.shape) / math.prod(p.shape) for name, p in params.items()})


def _share_out(params: Mapping[str, Tensor], target: float, wish: Mapping[str, float]) -> dict[str, float]:
    """Densities in proportion to ``wish``, none above 1, that leave 1 − target of all weights."""
    if not params:
        raise ArgumentError("A budget needs at least one parameter to share out a target among. Got none.")
    require("budget", "target", target, ">= 0 and < 1", lambda x: 0 <= x < 1)
    left = (1 - target) * sum(p.numel() for p in params.values())
    dense: set[str] = set()
    while True:
        rest = [name for name in params if name not in dense]
        spare = left - sum(params[name].numel() for name in dense)
        scale = spare / sum(wish[name] * params[name].numel() for name in rest)
        over = {name for name in rest if scale * wish[name] > 1}
        if not over:
            return {name: 0.0 if name in dense else 1 - scale * wish[name] for name in params}
        dense |= over


def whole(shares: Mapping[str, float], params: Mapping[str, Tensor]) -> dict[str, float]:
    """Shares that are whole numbers of weights, with the same sum: largest-remainder rounding.

    >>> import torch
    >>> whole({"a": 0.5, "b": 0.5}, {"a": torch.zeros(3), "b": torch.zeros(3)})
    {'a': 0.6666666666666666, 'b': 0.3333333333333333}
    """
    exact = {name: shares[name] * p.numel() for name, p in params.items()}
    counts = {name: math.floor(value) for name, value in exact.items()}
    spare = round(math.fsum(exact.values())) - sum(counts.values())
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[:spare]:
        counts[name] += 1
    return {name: counts[name] / max(1, p.numel()) for name, p in params.items()}


def resolve(budget: Budget, params: Mapping[str, Tensor], target: float, owner: str) -> dict[str, float]:
    """A sparsity for each parameter. A table may name layers, as the paper's do, instead of their weights."""
    table = budget(params, target) if callable(budget) else budget
    if not isinstance(table, Mapping):
        raise ArgumentError(
            f"`{owner}(budget=...)` must be {{name: sparsity}}, `sp.uniform`, `sp.erdos_renyi` or `sp.erk`. Got "
            f"{budget!r}."
        )
    table = dict(table)
    found = {name: table.pop(name, None) for name in params}
    for name in params:
        if found[name] is None:
            found[name] = table.pop(name.removesuffix(".weight"), None)
    if missing := [name for name, sparsity in found.items() if sparsity is None]:
        raise ArgumentError(f"The budget says nothing about {listing(missing, most=5)}. Name every pruned parameter.")
    if table:
        raise ArgumentError(f"The budget names {listing(table, most=5)}, which is not among the pruned parameters.")
    for name, sparsity in found.items():
        if not isinstance(sparsity, Real) or not 0 <= sparsity <= 1:
            raise ArgumentError(f"The budget's sparsity of {name} must be between 0 and 1. Got {sparsity!r}.")
    return {name: float(sparsity) for name, sparsity in found.items() if sparsity is not None}


def cells(
    weights: Weights, target: float, budget: Budget | None, flops: Mapping[str, float] | None, owner: str
) -> list[Cell]:
    """Which parameters share a threshold: all of them, or each has its own by a budget; and whether weights are counted
    or the multiplications that they make. Refusals name ``owner``, the threshold that was given these."""
    params = dict(zip(weights.names, weights.params, strict=True))
    if budget is not None:
        shares = resolve(budget, params, target, owner)
        total = sum(shares[name] * p.numel() for name, p in params.items()) / sum(p.numel() for p in params.values())
        if abs(total - target) > 0.005:
            raise ArgumentError(
                f"`{owner}(target=...)` is {target:.4g}, but its budget leads to {total:.4g}. "
                f"Write `{owner}({total:.4g}, ...)`, or another budget."
            )
        return [Cell((i,), (1.0,), share) for i, share in enumerate(whole(shares, params).values())]
    return [Cell(tuple(range(len(params))), counted(flops, params, owner), target)]


def counted(flops: Mapping[str, float] | None, params: Mapping[str, Tensor], owner: str) -> tuple[float, ...]:
    """What a weight of each parameter counts: one, or the multiplications that it makes."""
    if flops is None:
        return (1.0,) * len(params)
    if not isinstance(flops, Mapping):
        raise ArgumentError(
            f"`{owner}(flops=...)` must be {{name: multiplications}}, as `sp.flops_per_weight(model, example)` "
            f"gives. Got {flops!r}."
        )
    if missing := [name for name, p in params.items() if name not in flops and p.ndim > 1]:  # norms multiply nothing
        raise ArgumentError(
            f"`{owner}(flops=...)` says nothing about {listing(missing, most=5)}. "
            "Leave them out of `params`, or add them."
        )
    counts = [flops.get(name, 0.0) for name in params]
    if not all(isinstance(count, Real) and 0 <= count < math.inf for count in counts) or not any(counts):
        raise ArgumentError(f"`{owner}(flops=...)` must be numbers >= 0, and not all of them 0.")
    return tuple(map(float, counts))
