"""Order statistics of |θ| over all pruned weights, without sorting or concatenating them.

The bits of a nonnegative float, read as an integer, are ordered as the floats are. So the k-th smallest magnitude
is found digit by digit: a histogram of the first 11 bits says in which bin it lies, a histogram of the next 11 bits
within that bin, then the last 10. Three passes in chunks: time O(N), memory O(1). Across sharded parameters the
histograms are summed, so that every process finds the same number.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from softprune.hidden import Hidden, totals

_CHUNK = 1 << 22
_DIGITS = ((20, 11), (9, 11), (0, 9))  # shift and width: 31 bits, the sign being zero


def kth_magnitude(hidden: Hidden, k: int) -> float:
    """The k-th smallest |θ|, k = 1, 2, ..., in single precision. Waits for the device three times."""
    prefix = 0
    for shift, width in _DIGITS:
        counts = torch.stack([_histogram(theta, prefix, shift, width) for theta in hidden.thetas])
        below = totals(counts, hidden.params).sum(0).cumsum(0).tolist()
        digit = next(i for i, count in enumerate(below) if count >= k)
        k -= int(below[digit - 1]) if digit else 0
        prefix = prefix << width | digit
    return float(torch.tensor(prefix, dtype=torch.int32).view(torch.float32))


def density(hidden: Hidden, d: float) -> float:
    """The share of weights with |θ| > d. Waits for the device once."""
    alive = torch.stack([sum_(part > d for part in _magnitudes(theta)) for theta in hidden.thetas])
    return int(totals(alive, hidden.params).sum()) / size(hidden)


def size(hidden: Hidden) -> int:
    return sum(p.numel() for p in hidden.params)


def sum_(masks: Iterator[Tensor]) -> Tensor:
    return torch.stack([mask.sum() for mask in masks]).sum()


def _magnitudes(theta: Tensor) -> Iterator[Tensor]:
    """|θ| in single precision, chunk by chunk, in the order of memory."""
    flat = theta.as_strided((theta.numel(),), (1,)) if _dense(theta) else theta.reshape(-1)
    return (flat[start : start + _CHUNK].float().abs() for start in range(0, max(1, len(flat)), _CHUNK))


def _dense(theta: Tensor) -> bool:
    return theta.numel() > 0 and theta.untyped_storage().nbytes() == theta.numel() * theta.element_size()


def _histogram(theta: Tensor, prefix: int, shift: int, width: int) -> Tensor:
    """How many magnitudes that begin with ``prefix`` go on with each of the 2^width digits."""
    counts = torch.zeros(1 << width, dtype=torch.int64, device=theta.device)
    for part in _magnitudes(theta):
        bits = part.view(torch.int32)
        digits = torch.where(bits >> (shift + width) == prefix, bits >> shift & (1 << width) - 1, -1)
        counts += torch.histc(digits.float(), bins=1 << width, min=0, max=1 << width).long()
    return counts
