"""What a target counts where units die: all that is gone when they are removed.

A weight is gone if what it reads or what it makes is: of a layer with m of M inputs and n of N outputs left, m·n / M·N
of its weights and multiplications remain. So what a unit frees depends on the others that die, and is counted for all
thresholds at once, in the order in which units die.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from softprune.errors import ArgumentError
from softprune.groups.units import UnitPartition
from softprune.prox.group import Grouped
from softprune.thresholds.base import Weights
from softprune.thresholds.budgets import Budget, counted
from softprune.thresholds.census import Census

ABOVE = 1 + 1e-5  # times the size of the last that dies: sums in another order, of other processes, do not revive it
APART = 1 + 1e-12  # times a size: what is nearer is of one size, as far as sums can tell


class UnitCensus(Census):
    """One cell: all units, under one threshold."""

    def __init__(
        self,
        weights: Weights,
        target: float,
        budget: Budget | None,
        flops: Mapping[str, float] | None,
        min_density: float,
        owner: str,
    ) -> None:
        if budget is not None:
            raise ArgumentError(
                f"`{owner}(budget=...)` gives each parameter a sparsity, and these groups have weights in several. "
                "Leave out `budget` or `groups`."
            )
        assert isinstance(weights.prox, Grouped)
        assert isinstance(weights.prox.partition, UnitPartition)
        self.weights = weights
        self.partition = weights.prox.partition
        self.counts = counted(flops, dict(zip(weights.names, weights.params, strict=True)), owner)
        self.lead = self.partition.lead.whole
        led = torch.bincount(self.lead, minlength=len(weights.params)).tolist()
        self.keep = [math.ceil(min_density * n) for n in led]
        self.caps = [math.inf] * len(weights.params)
        self.targets = [target]
        self.masses = [float(self._remaining(self.lead[:0]))]
        self.grain = self._most()
        self._refuse_impossible(target, min_density, owner)

    def left(self, levels: Sequence[float]) -> list[float]:
        return self._left(self._radii(), levels)

    def watched(self, levels: Sequence[float]) -> list[float]:
        r = self._radii()
        self._watch(r)
        return self._left(r, levels)

    def watch_all(self) -> None:
        self._watch(self._radii())

    def _left(self, r: Tensor, levels: Sequence[float]) -> list[float]:
        dead = (r <= self._thresholds(levels)).nonzero().flatten()
        return [float(self._remaining(dead)[-1])]

    def _watch(self, r: Tensor) -> None:
        self.caps[:] = [self._cap(r[self.lead == i], keep) for i, keep in enumerate(self.keep)]

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """The threshold with which the share that is gone is nearest to what is wanted."""
        r = self._radii()
        mortal = (r <= self._thresholds(self.caps)).nonzero().flatten()
        order = mortal[r[mortal].argsort(stable=True)]
        gone = 1 - self._remaining(order) / self.masses[0]
        d = torch.cat([r.new_zeros(1), r[order]])  # after none, one, two, ... have died
        alone = torch.cat([d[1:] > d[:-1] * APART, d.new_ones(1, dtype=torch.bool)])  # those of one size die together
        d, gone = d[alone], gone[alone]
        d[:-1] = torch.minimum(d[:-1] * ABOVE, (d[:-1] + d[1:]) / 2)
        return [float(d[int((gone - share).abs().argmin())]) for share in shares]

    def spread(self, d: Sequence[float]) -> list[float]:
        return [min(d[0], cap) for cap in self.caps]

    def _radii(self) -> Tensor:
        return self.partition.radii(self.weights.pairs).cpu()

    def _thresholds(self, levels: Sequence[float]) -> Tensor:
        """The threshold of each unit: that of the parameter that leads it."""
        return torch.tensor(levels, dtype=torch.float64, device="cpu")[self.lead]

    def _remaining(self, order: Tensor) -> Tensor:
        """What remains after none, one, two, ... of the units have died in this order."""
        return self._without(lambda groups: self._lost(groups, order), len(order) + 1)

    def _most(self) -> float:
        """The most that one unit frees alone."""
        return self.masses[0] - float(self._without(self._indices, len(self.lead)).min())

    def _without(self, lost: Callable[[Tensor], Tensor], cases: int) -> Tensor:
        """What remains in each of some cases, where ``lost`` tells how many indices of a dimension are gone."""
        left = torch.zeros(cases, dtype=torch.float64)
        for i, (count, shape) in enumerate(zip(self.counts, self.partition.shapes, strict=True)):
            product = torch.full_like(left, count * math.prod(shape))
            for slots in self.partition.slots(i):
                product *= (shape[slots.dim] - lost(slots.groups.whole)).double() / shape[slots.dim]
            left += product
        return left

    def _indices(self, groups: Tensor) -> Tensor:
        """How many indices along a dimension each unit has."""
        return torch.bincount(groups[groups >= 0], minlength=len(self.lead))

    def _lost(self, groups: Tensor, order: Tensor) -> Tensor:
        """Indices along a dimension that are gone after none, one, two, ... of the units have died."""
        each = self._indices(groups)[order]
        return torch.cat([each.new_zeros(1), each.cumsum(0)])

    @staticmethod
    def _cap(r: Tensor, keep: int) -> float:
        """A threshold that leaves ``keep`` of these: halfway to the next, so that there is something to them. What is
        NaN does not die."""
        if keep == 0:
            return math.inf
        r = r.nan_to_num(math.inf).clamp(max=torch.finfo(r.dtype).max)
        least = r.sort(descending=True).values[keep - 1]
        lower = torch.cat([r.new_zeros(1), r[r < least]]).max()
        return float(least / 2 + lower / 2)

    def _refuse_impossible(self, target: float, min_density: float, owner: str) -> None:
        """A target that ``min_density`` and the weights of no unit do not allow."""
        kept = torch.zeros(len(self.lead), dtype=torch.bool)
        for i, keep in enumerate(self.keep):
            kept[(self.lead == i).nonzero().flatten()[:keep]] = True
        most = 1 - float(self._remaining((~kept).nonzero().flatten())[-1]) / self.masses[0]
        if target > most + 1e-12:
            raise ArgumentError(
                f"`{owner}` cannot reach {target:.4%}: the groups, of which min_density = {min_density:g} keeps some, "
                f"can free at most {most:.4%} of what is counted. Lower the target or `min_density`, or add groups."
            )
