"""What a target counts, cell by cell: how much there is, how much is left, and which threshold leaves a given share.

Census         what a rule asks
WeightCensus   weights one by one, or in blocks; a weight may count as many as it makes multiplications
UnitCensus     units that lie in several parameters (units.py)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from softprune.thresholds.base import Weights
from softprune.thresholds.guard import Guard
from softprune.thresholds.quantile import Cell, quantiles, survivors


class Census(ABC):
    """Counts of the weights of one pruner; every count is a host sync."""

    targets: Sequence[float]
    """The share of each cell that is to be zero."""
    masses: Sequence[float]
    """How much there is of each cell."""
    grain: float
    """The most that one weight, or one group, counts."""
    caps: list[float]
    """The highest threshold of each parameter, so that no layer collapses; saved with a rule."""

    @property
    def total(self) -> float:
        return math.fsum(self.masses)

    @abstractmethod
    def left(self, levels: Sequence[float]) -> list[float]:
        """How much of each cell is not zero at these thresholds, one for each parameter."""

    @abstractmethod
    def watched(self, levels: Sequence[float]) -> list[float]:
        """The same; and ``caps`` are found anew for those parameters that are thin by now."""

    @abstractmethod
    def watch_all(self) -> None:
        """Find ``caps`` anew for all parameters."""

    @abstractmethod
    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """For each cell the threshold that zeroes this share of it now; not finite where weights are NaN."""

    @abstractmethod
    def spread(self, d: Sequence[float]) -> list[float]:
        """d of each parameter: its cell's, up to its cap."""

    def sparsity(self, levels: Sequence[float]) -> float:
        """The share that is zero, of all cells together."""
        return 1 - math.fsum(self.left(levels)) / self.total


class WeightCensus(Census):
    """Weights one by one; where they die in blocks, each counts as large as its block."""

    def __init__(self, weights: Weights, cells: Sequence[Cell], min_density: float, owner: str) -> None:
        self.weights = weights
        self.cells = cells
        self.guard = Guard(weights, min_density, owner)
        self.guard.refuse_impossible(cells)
        self.caps = self.guard.caps
        self.targets = [cell.target for cell in cells]
        self.masses = [cell.sum(self.guard.sizes) for cell in cells]
        self.grain = max(max(cell.counts) for cell in cells) * weights.prox.grain

    def left(self, levels: Sequence[float]) -> list[float]:
        return self._left(survivors(self.weights, levels))

    def watched(self, levels: Sequence[float]) -> list[float]:
        alive = survivors(self.weights, levels)
        self.guard.watch(alive)
        return self._left(alive)

    def watch_all(self) -> None:
        self.guard.watch_all()

    def _left(self, alive: Sequence[int]) -> list[float]:
        self.guard.warn_of_the_dead(alive)
        return [cell.sum(alive) for cell in self.cells]

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """The smallest thresholds that zero as much; where weights die in blocks, at most half a block less."""
        block = self.weights.prox.grain
        cells = []
        for cell, share, mass in zip(self.cells, shares, self.masses, strict=True):
            half = max(cell.counts) * block / 2 / mass if block > 1 else 0.0
            cells.append(replace(cell, target=max(0.0, share - half)))
        return quantiles(self.weights, cells, self.caps)

    def spread(self, d: Sequence[float]) -> list[float]:
        levels = [0.0] * len(self.weights.params)
        for cell, level in zip(self.cells, d, strict=True):
            for i in cell.members:
                levels[i] = min(level, self.caps[i])
        return levels
