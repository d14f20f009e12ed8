"""Counting magnitudes over many tensors: histograms of their bits, and how many exceed a level. One launch on a GPU.

The bits of a nonnegative float, read as an integer, are ordered as the floats are; a digit is a few bits of it.
Magnitudes count in single precision. On the CPU, and wherever one launch cannot do it, plain torch operations do the
same tensor by tensor, in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softprune.kernels.pairs import Pairs, on_device, upload

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch brings no Triton
    if not TYPE_CHECKING:
        triton = None

_CHUNK = 1 << 22
_COPIES = 16  # of the counts on a GPU: blocks that add to the same address wait for each other


@dataclass(frozen=True)
class Digit:
    """``width`` bits of a magnitude, ``shift`` bits from its end."""

    shift: int
    width: int

    @property
    def values(self) -> int:
        return 1 << self.width


def histogram(
    pairs: Pairs, rows: Sequence[int], number: int, caps: Sequence[float], prefixes: Sequence[int], digit: Digit
) -> Tensor:
    """How often each value of ``digit`` follows the prefix: ``number`` rows of counts.

    The magnitudes of θ_i up to ``caps[i]`` that begin with ``prefixes[i]`` count in row ``rows[i]``; θ_i is left out
    where that is -1.
    """
    device = pairs.thetas[0].device
    if pairs.launchable:
        counts = torch.zeros(_COPIES, number, digit.values, dtype=torch.int64, device=device)
        pairs.launch(
            _histogram_kernel,
            on_device(caps, device),
            upload(rows, torch.int64, device),
            upload(prefixes, torch.int32, device),
            counts,
            len(pairs.thetas),
            number,
            SHIFT=digit.shift,
            WIDTH=digit.width,
            COPIES=_COPIES,
        )
        return counts.sum(0)
    counts = torch.zeros(number, digit.values, dtype=torch.int64, device=device)
    for theta, row, cap, prefix in zip(pairs.thetas, rows, caps, prefixes, strict=True):
        for part in _magnitudes(theta) if row >= 0 else ():
            bits = part.view(torch.int32)
            fits = (bits >> (digit.shift + digit.width) == prefix) & ~(part > cap)
            found = torch.bincount(bits[fits] >> digit.shift & digit.values - 1, minlength=digit.values)
            counts[row] += found.to(device)
    return counts


def above(pairs: Pairs, d: Sequence[float]) -> Tensor:
    """How many |θ_i| > d_i, for each tensor."""
    device = pairs.thetas[0].device
    if pairs.launchable:
        counts = torch.zeros(len(d), dtype=torch.int64, device=device)
        pairs.launch(_above_kernel, on_device(d, device), counts, len(d))
        return counts
    alive = [
        sum((part > level).sum() for part in _magnitudes(theta)) for theta, level in zip(pairs.thetas, d, strict=True)
    ]
    return torch.stack([n.to(device) for n in alive])  # type: ignore[union-attr]


def _magnitudes(theta: Tensor) -> Iterator[Tensor]:
    """|θ| in single precision, chunk by chunk, in the order of memory."""
    flat = theta.as_strided((theta.numel(),), (1,)) if _dense(theta) else theta.reshape(-1)
    return (flat[start : start + _CHUNK].float().abs() for start in range(0, max(1, len(flat)), _CHUNK))


def _dense(theta: Tensor) -> bool:
    return theta.numel() > 0 and theta.untyped_storage().nbytes() == theta.numel() * theta.element_size()


if triton is not None:
    from softprune.kernels.pairs import locate

    @triton.jit  # type: ignore[untyped-decorator]
    def _read(theta, left, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        """A block of magnitudes, and which of them are there."""
        i = tl.arange(0, BLOCK)
        x = tl.load(theta + i, mask=i < left, other=0.0)
        return tl.abs(x.to(tl.float32)), i < left

    @triton.jit  # type: ignore[untyped-decorator]
    def _histogram_kernel(  # type: ignore[no-untyped-def]
        table,
        owner,
        offset,
        caps,
        rows,
        prefixes,
        counts,
        count,
        number,
        SHIFT: tl.constexpr,
        WIDTH: tl.constexpr,
        COPIES: tl.constexpr,
        ELEMENT: tl.constexpr,
        ALIGN: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        tensor = tl.load(owner + tl.program_id(0))
        row = tl.load(rows + tensor)
        if row >= 0:
            _, theta, left, cap = locate(table, owner, offset, caps, count, ELEMENT, ALIGN)
            x, there = _read(theta, left, BLOCK)
            bits = x.to(tl.int32, bitcast=True)
            fits = there & (bits >> (SHIFT + WIDTH) == tl.load(prefixes + tensor)) & ~(x > cap.to(tl.float32))
            value = (bits >> SHIFT) & ((1 << WIDTH) - 1)
            counts += (tl.program_id(0) % COPIES * number + row) << WIDTH
            values = tl.arange(0, 1 << WIDTH)
            found = tl.histogram(tl.where(fits, value, 0), 1 << WIDTH)
            found -= tl.where(values == 0, BLOCK - tl.sum(fits.to(tl.int32)), 0)
            tl.atomic_add(counts + values, found.to(tl.int64), mask=found > 0, sem="relaxed")

    @triton.jit  # type: ignore[untyped-decorator]
    def _above_kernel(  # type: ignore[no-untyped-def]
        table, owner, offset, d, counts, count, ELEMENT: tl.constexpr, ALIGN: tl.constexpr, BLOCK: tl.constexpr
    ):
        _, theta, left, level = locate(table, owner, offset, d, count, ELEMENT, ALIGN)
        x, there = _read(theta, left, BLOCK)
        alive = tl.sum((there & (x > level.to(tl.float32))).to(tl.int32))
        tl.atomic_add(counts + tl.load(owner + tl.program_id(0)), alive.to(tl.int64), sem="relaxed")
