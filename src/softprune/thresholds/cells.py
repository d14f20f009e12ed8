"""Which parameters share a threshold: all of them, or each has its own by a budget; and whether weights are counted or
the multiplications that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping

from softprune.errors import listing
from softprune.pruner.hidden import Hidden
from softprune.thresholds import budgets as allocation
from softprune.thresholds.quantile import Cell


def cells(
    hidden: Hidden, target: float, budget: allocation.Budget | None, flops: Mapping[str, float] | None
) -> list[Cell]:
    params = dict(zip(hidden.names, hidden.params, strict=True))
    if budget is not None:
        shares = allocation.resolve(budget, params, target)
        total = sum(shares[name] * p.numel() for name, p in params.items()) / sum(p.numel() for p in params.values())
        if abs(total - target) > 0.005:
            raise ValueError(
                f"`TargetSparsity(target=...)` is {target:.4g}, but its budget leads to {total:.4g}. "
                f"Write `TargetSparsity({total:.4g}, ...)`, or another budget."
            )
        return [Cell((i,), (1.0,), share) for i, share in enumerate(allocation.whole(shares, params).values())]
    everyone = tuple(range(len(params)))
    if flops is None:
        return [Cell(everyone, (1.0,) * len(params), target)]
    return [Cell(everyone, _counts(flops, params), target)]


def _counts(flops: Mapping[str, float], params: Mapping[str, object]) -> tuple[float, ...]:
    if missing := [name for name in params if name not in flops]:
        raise ValueError(
            f"`TargetSparsity(flops=...)` says nothing about {listing(missing, most=5)}. "
            "Leave them out of `params`, or add them."
        )
    counts = tuple(float(flops[name]) for name in params)
    if not all(0 <= count < math.inf for count in counts) or not any(counts):
        raise ValueError("`TargetSparsity(flops=...)` must be numbers >= 0, and not all of them 0.")
    return counts
