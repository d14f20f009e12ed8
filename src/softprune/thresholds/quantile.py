"""Order statistics of |θ|, or of the sizes of groups, over many parameters, without sorting or concatenating them.

A quantile is found digit by digit: a histogram of the first 8 bits of all magnitudes, their exponents, says in which
bin it lies, a histogram of the next 8 bits within that bin, and so on for 31 bits. Four passes: time O(N), memory O(1),
and four host syncs. Across sharded parameters the histograms are summed, so that every process finds the
same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from softprune.kernels import count
from softprune.kernels.count import Digit
from softprune.kernels.sharding import sharding, totals
from softprune.thresholds.base import Weights

_DIGITS = (Digit(23, 8), Digit(15, 8), Digit(7, 8), Digit(0, 7))  # 31 bits, the sign being zero


@dataclass(frozen=True)
class Cell:
    """Parameters that share a threshold, by index, and the share ``target`` of them that it should zero; a weight of
    parameter ``members[i]`` counts ``counts[i]``."""

    members: tuple[int, ...]
    counts: tuple[float, ...]
    target: float

    def sum(self, numbers: Sequence[int]) -> float:
        """Numbers of weights, one for each parameter, as this cell counts them."""
        return math.fsum(w * numbers[i] for i, w in zip(self.members, self.counts, strict=True))

    def wanted(self, sizes: Sequence[int]) -> float:
        """What should be zero; whole weights where each counts one."""
        mass = self.target * self.sum(sizes)
        return float(max(1, round(mass))) if mass > 0 and set(self.counts) == {1.0} else mass


def quantiles(weights: Weights, cells: Sequence[Cell], caps: Sequence[float] | None = None) -> list[float]:
    """For each cell the smallest d that zeroes its target, in single precision: mass of {|θ| <= d} >= target · mass.

    Weights above their parameter's cap are not counted. float64 weights are compared after rounding to float32.
    """
    caps = caps or [math.inf] * len(weights.params)
    rows, kinds = _rows(weights, cells)
    sizes = [p.numel() for p in weights.params]
    missing = [cell.wanted(sizes) for cell in cells]
    found = [0] * len(cells)
    compared = weights.sizes
    for digit in _DIGITS:
        prefixes = [found[kinds[row].cell] if row >= 0 else 0 for row in rows]
        counts = count.histogram(compared, rows, len(kinds), caps, prefixes, digit)
        counts = totals(counts, [weights.params[kind.member] for kind in kinds]).cpu().double()
        masses = torch.zeros(len(cells), digit.values, dtype=torch.float64, device="cpu")
        owners = torch.tensor([kind.cell for kind in kinds], device="cpu")
        factors = torch.tensor([kind.weight for kind in kinds], dtype=torch.float64, device="cpu")
        masses.index_add_(0, owners, counts * factors[:, None])
        below = masses.cumsum(1)
        for c, row in enumerate(below):
            missing[c] = min(missing[c], float(row[-1]))  # no more than there is
            value = min(int((row < missing[c] - 1e-9 * abs(missing[c])).sum()), digit.values - 1)
            missing[c] -= float(row[value - 1]) if value else 0.0
            found[c] = found[c] << digit.width | value
    singles = torch.tensor(found, dtype=torch.int32, device="cpu").view(torch.float32)
    doubles = (singles.double() + singles.nextafter(torch.full_like(singles, math.inf)).double()) / 2
    wide = [any(weights.params[i].dtype is torch.float64 for i in cell.members) for cell in cells]
    return [float(doubles[c] if wide[c] else single) for c, single in enumerate(singles)]


def survivors(weights: Weights, d: Sequence[float]) -> list[int]:
    """How many weights of each parameter have |θ| > d. One host sync."""
    return [int(n) for n in totals(count.above(weights.sizes, d), weights.params).tolist()]


@dataclass(frozen=True)
class _Kind:
    """Parameters that share a row of counts: of one cell, of equal weight, sharded alike; ``member`` is one of them."""

    cell: int
    weight: float
    member: int


def _rows(weights: Weights, cells: Sequence[Cell]) -> tuple[list[int], list[_Kind]]:
    """The row of each parameter, -1 for one without a cell, and what the rows are."""
    rows = [-1] * len(weights.params)
    kinds: dict[object, tuple[int, _Kind]] = {}
    for c, cell in enumerate(cells):
        for i, weight in zip(cell.members, cell.counts, strict=True):
            key = c, weight, sharding(weights.params[i])
            rows[i], _ = kinds.setdefault(key, (len(kinds), _Kind(c, weight, i)))
    return rows, [kind for _, kind in kinds.values()]
