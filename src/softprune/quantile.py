"""Order statistics of |θ| over many parameters, without sorting or concatenating them.

The bits of a nonnegative float, read as an integer, are ordered as the floats are. So a quantile is found digit by
digit: a histogram of the first 11 bits says in which bin it lies, a histogram of the next 11 bits within that bin, then
the last 9. Three passes in chunks: time O(N), memory O(1), and the host waits three times. Across sharded parameters
the histograms are summed, so that every process finds the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from softprune.hidden import Hidden, totals

_CHUNK = 1 << 22
_DIGITS = ((20, 11), (9, 11), (0, 9))  # shift and width: 31 bits, the sign being zero


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
        return float(max(1, round(mass))) if set(self.weights) == {1.0} else mass


def thresholds(hidden: Hidden, cells: Sequence[Cell], caps: Sequence[float] | None = None) -> list[float]:
    """For each cell the smallest d that zeroes its target, in single precision: mass of {|θ| <= d} >= target · mass.

    Weights above their parameter's cap are not to be had: they count for nothing.
    """
    count = len(hidden.params)
    caps = caps or [math.inf] * count
    prefixes = [0] * count
    missing = [cell.wanted(hidden) for cell in cells]
    found = [0] * len(cells)
    for shift, width in _DIGITS:
        counts = torch.stack(
            [
                _histogram(theta, cap, prefix, shift, width)
                for theta, cap, prefix in zip(hidden.thetas, caps, prefixes, strict=True)
            ]
        )
        counts = totals(counts, hidden.params).cpu().double()
        for c, cell in enumerate(cells):
            weights = torch.tensor(cell.weights, dtype=torch.float64)
            below = (weights @ counts[list(cell.members)]).cumsum(0)
            digit = min(int((below < missing[c] - 1e-9 * abs(missing[c])).sum()), len(below) - 1)
            missing[c] -= float(below[digit - 1]) if digit else 0.0
            found[c] = found[c] << width | digit
            for i in cell.members:
                prefixes[i] = found[c]
    return torch.tensor(found, dtype=torch.int32).view(torch.float32).tolist()


def survivors(hidden: Hidden, d: Sequence[float]) -> list[int]:
    """How many weights of each parameter have |θ| > d. The host waits once."""
    alive = [
        torch.stack([(part > level).sum() for part in _magnitudes(theta)]).sum()
        for theta, level in zip(hidden.thetas, d, strict=True)
    ]
    return [int(n) for n in totals(torch.stack(alive), hidden.params).tolist()]


def _magnitudes(theta: Tensor) -> Iterator[Tensor]:
    """|θ| in single precision, chunk by chunk, in the order of memory."""
    flat = theta.as_strided((theta.numel(),), (1,)) if _dense(theta) else theta.reshape(-1)
    return (flat[start : start + _CHUNK].float().abs() for start in range(0, max(1, len(flat)), _CHUNK))


def _dense(theta: Tensor) -> bool:
    return theta.numel() > 0 and theta.untyped_storage().nbytes() == theta.numel() * theta.element_size()


def _histogram(theta: Tensor, cap: float, prefix: int, shift: int, width: int) -> Tensor:
    """How many magnitudes up to ``cap`` that begin with ``prefix`` go on with each of the 2^width digits."""
    counts = torch.zeros(1 << width, dtype=torch.int64, device=theta.device)
    for part in _magnitudes(theta):
        bits = part.view(torch.int32)
        fits = bits >> (shift + width) == prefix
        if cap < math.inf:
            fits &= part <= cap
        digits = torch.where(fits, bits >> shift & (1 << width) - 1, -1)
        counts += torch.histc(digits.float(), bins=1 << width, min=0, max=1 << width).long()
    return counts
