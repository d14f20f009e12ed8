"""Order statistics of |θ| over many parameters, without sorting or concatenating them.

A quantile is found digit by digit: a histogram of the first 8 bits of all magnitudes, their exponents, says in which
bin it lies, a histogram of the next 8 bits within that bin, and so on for 31 bits. Four passes: time O(N), memory O(1),
and the host waits four times. Across sharded parameters the histograms are summed, so that every process finds the
same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from softprune.kernels import count as digits
from softprune.kernels.count import Digit
from softprune.kernels.sharding import sharding, totals
from softprune.pruner.hidden import Hidden

_DIGITS = (Digit(23, 8), Digit(15, 8), Digit(7, 8), Digit(0, 7))  # 31 bits, the sign being zero


@dataclass(frozen=True)
class Cell:
    """Parameters that share a threshold, by number, and the share ``target`` of them that it should zero; a weight of
    parameter ``members[i]`` counts ``weights[i]``."""

    members: tuple[int, ...]
    weights: tuple[float, ...]
    target: float

    def mass(self, hidden: Hidden) -> float:
        return math.fsum(w * hidden.params[i].numel() for i, w in zip(self.members, self.weights, strict=True))

    def wanted(self, hidden: Hidden) -> float:
        """What should be zero; whole weights where each counts one."""
        mass = self.target * self.mass(hidden)
        return float(max(1, round(mass))) if mass > 0 and set(self.weights) == {1.0} else mass


def thresholds(hidden: Hidden, cells: Sequence[Cell], caps: Sequence[float] | None = None) -> list[float]:
    """For each cell the smallest d that zeroes its target, in single precision: mass of {|θ| <= d} >= target · mass.

    Weights above their parameter's cap are not to be had: they count for nothing. Weights in double precision are all
    zeroed that are d in single precision.
    """
    caps = caps or [math.inf] * len(hidden.params)
    rows, kinds = _rows(hidden, cells)
    missing = [cell.wanted(hidden) for cell in cells]
    found = [0] * len(cells)
    for digit in _DIGITS:
        prefixes = [found[kinds[row].cell] if row >= 0 else 0 for row in rows]
        counts = digits.histogram(hidden.pairs, rows, len(kinds), caps, prefixes, digit)
        counts = totals(counts, [hidden.params[kind.member] for kind in kinds]).cpu().double()
        masses = torch.zeros(len(cells), digit.values, dtype=torch.float64, device="cpu")
        owners = torch.tensor([kind.cell for kind in kinds], device="cpu")
        weights = torch.tensor([kind.weight for kind in kinds], dtype=torch.float64, device="cpu")
        masses.index_add_(0, owners, counts * weights[:, None])
        below = masses.cumsum(1)
        for c, row in enumerate(below):
            missing[c] = min(missing[c], float(row[-1]))  # no more than is to be had
            value = min(int((row < missing[c] - 1e-9 * abs(missing[c])).sum()), digit.values - 1)
            missing[c] -= float(row[value - 1]) if value else 0.0
            found[c] = found[c] << digit.width | value
    singles = torch.tensor(found, dtype=torch.int32, device="cpu").view(torch.float32)
    doubles = (singles.double() + singles.nextafter(torch.full_like(singles, math.inf)).double()) / 2
    wide = [any(hidden.params[i].dtype is torch.float64 for i in cell.members) for cell in cells]
    return [float(doubles[c] if wide[c] else single) for c, single in enumerate(singles)]


def survivors(hidden: Hidden, d: Sequence[float]) -> list[int]:
    """How many weights of each parameter have |θ| > d. The host waits once."""
    return [int(n) for n in totals(digits.above(hidden.pairs, d), hidden.params).tolist()]


@dataclass(frozen=True)
class _Kind:
    """Parameters that share a row of counts: of one cell, of equal weight, sharded alike; ``member`` is one of them."""

    cell: int
    weight: float
    member: int


def _rows(hidden: Hidden, cells: Sequence[Cell]) -> tuple[list[int], list[_Kind]]:
    """The row of each parameter, -1 for one without a cell, and what the rows are."""
    rows = [-1] * len(hidden.params)
    kinds: dict[object, tuple[int, _Kind]] = {}
    for c, cell in enumerate(cells):
        for i, weight in zip(cell.members, cell.weights, strict=True):
            key = c, weight, sharding(hidden.params[i])
            rows[i], _ = kinds.setdefault(key, (len(kinds), _Kind(c, weight, i)))
    return rows, [kind for _, kind in kinds.values()]
