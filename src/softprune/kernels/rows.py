"""Gradients of rows of zeros, of many tensors at once, cut to the mean length of the others: three launches on a GPU.

A row is what makes one output: x[i], for a tensor x of two dimensions or more; others have none. On the CPU, and
wherever one launch cannot do it, plain torch operations do the same tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from softprune.kernels.pairs import Pairs, upload
from softprune.kernels.tiles import around

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch brings no Triton
    if not TYPE_CHECKING:
        triton = None

_BLOCK = 1024

Total = Callable[[Tensor], Tensor]
"""Sums over this process's parts, one for each tensor -> sums over the whole tensors."""


def calm(pairs: Pairs, total: Total | None = None) -> None:
    """g ← g·min(1, m/‖g‖) for each row g of a gradient whose row of w is zero; m is the mean of ‖g‖ over the others.

    Where all rows of a tensor are zero, as in one that begins so, they stay as they are. No host sync on a GPU.

    Args:
        pairs: gradients, each with its w in the place of θ.
        total: where tensors are spread over processes.
    """
    if (table := _table(pairs)) is not None:
        _launch(pairs, table, total)
        return
    parts = list(zip(pairs.xs, pairs.thetas, strict=True))
    alive = [w.ne(0).flatten(1).any(1) if w.ndim > 1 else w.new_ones(0, dtype=torch.bool) for _, w in parts]
    if total is None and not pairs.thetas[0].is_cuda and all(bool(a.all()) for a in alive):
        return
    lengths = [g.to(pairs.sums).flatten(1).norm(dim=1) if g.ndim > 1 else g.new_ones(0) for g, _ in parts]
    device = pairs.thetas[0].device
    sums = torch.stack([(n * a).sum().to(device, pairs.sums) for n, a in zip(lengths, alive, strict=True)])
    counts = torch.stack([a.sum().to(device, pairs.sums) for a in alive])
    means = _means(sums, counts, total)
    for (g, _), length, a, mean in zip(parts, lengths, alive, means, strict=True):
        if g.ndim > 1:
            mean = mean.to(length)
            cut = torch.where(~a & (length > mean), mean / length, 1.0)
            g.mul_(cut.to(g.dtype).view(-1, *(1,) * (g.ndim - 1)))


def _means(sums: Tensor, counts: Tensor, total: Total | None) -> Tensor:
    """The mean length of each tensor's rows that are not zero; infinite where there are none."""
    if total is not None:
        sums, counts = total(sums), total(counts)
    return torch.where(counts > 0, sums / counts, torch.inf)


class _Table(NamedTuple):
    """For each row its tensor and its place there; for each tensor the length of its rows, and where they begin."""

    owner: Tensor
    place: Tensor
    inner: Tensor
    first: Tensor
    rows: int


def _table(pairs: Pairs) -> _Table | None:
    """None where one launch cannot do it."""
    if not pairs.launchable:
        return None
    layouts = tuple((theta.shape, theta.stride()) for theta in pairs.thetas)
    return _made(layouts, pairs.thetas[0].device)


@lru_cache(maxsize=64)
def _made(layouts: tuple[Any, ...], device: torch.device) -> _Table | None:
    found = [around(shape, strides, 0) if len(shape) > 1 else (1, 0, 0) for shape, strides in layouts]
    if any(cut is None or cut[0] > 1 for cut in found):
        return None  # rows that do not lie in one piece
    rows = [cut[1] for cut in found if cut is not None]
    first = [sum(rows[:i]) for i in range(len(rows) + 1)]
    return _Table(
        owner=upload([i for i, n in enumerate(rows) for _ in range(n)], torch.int32, device),
        place=upload([row for n in rows for row in range(n)], torch.int64, device),
        inner=upload([cut[2] for cut in found if cut is not None], torch.int64, device),
        first=upload(first, torch.int64, device),
        rows=first[-1],
    )


def _launch(pairs: Pairs, table: _Table, total: Total | None) -> None:
    number, device = len(pairs.thetas), pairs.table.device
    lengths, alive = torch.empty(2, table.rows, dtype=pairs.sums, device=device)
    sums, counts = torch.empty(2, number, dtype=pairs.sums, device=device)
    constants = {"ELEMENT": pairs.constants["ELEMENT"], "BLOCK": _BLOCK, "num_warps": 4}
    where = pairs.table, table.owner, table.place, table.inner
    if table.rows == 0:
        return
    with torch.cuda.device(device):
        _lengths_kernel[(table.rows,)](*where, lengths, alive, number, COMPUTE=pairs.compute, **constants)
        _sums_kernel[(number,)](lengths, alive, table.first, sums, counts, BLOCK=_BLOCK, num_warps=4)
        means = _means(sums, counts, total)
        _cut_kernel[(table.rows,)](*where, lengths, alive, means, number, COMPUTE=pairs.compute, **constants)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _lengths_kernel(  # type: ignore[no-untyped-def]
        table,
        owner,
        place,
        inner,
        lengths,
        alive,
        count,
        ELEMENT: tl.constexpr,
        COMPUTE: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """‖g‖ of a row, and whether anything of w is left there."""
        row = tl.program_id(0)
        tensor = tl.load(owner + row)
        n = tl.load(inner + tensor)
        start = tl.load(place + row) * n
        g = tl.load(table + tensor).to(tl.pointer_type(ELEMENT)) + start
        w = tl.load(table + count + tensor).to(tl.pointer_type(ELEMENT)) + start
        squares = tl.zeros((BLOCK,), COMPUTE)
        left = tl.zeros((BLOCK,), tl.int32)
        for first in range(0, n, BLOCK):
            i = first + tl.arange(0, BLOCK)
            x = tl.load(g + i, mask=i < n, other=0.0).to(COMPUTE)
            squares += x * x
            left |= (tl.load(w + i, mask=i < n, other=0.0) != 0).to(tl.int32)
        tl.store(lengths + row, tl.sqrt(tl.sum(squares)))
        tl.store(alive + row, tl.max(left, axis=0).to(COMPUTE))

    @triton.jit  # type: ignore[untyped-decorator]
    def _sums_kernel(lengths, alive, first, sums, counts, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        """Of each tensor, Σ ‖g‖ over the rows that are not zero, and their number."""
        tensor = tl.program_id(0)
        start = tl.load(first + tensor)
        end = tl.load(first + tensor + 1)
        total = tl.zeros((BLOCK,), lengths.dtype.element_ty)
        number = tl.zeros((BLOCK,), lengths.dtype.element_ty)
        for begin in range(start, end, BLOCK):
            i = begin + tl.arange(0, BLOCK)
            a = tl.load(alive + i, mask=i < end, other=0.0)
            total += tl.where(a > 0, tl.load(lengths + i, mask=i < end, other=0.0), 0.0)
            number += a
        tl.store(sums + tensor, tl.sum(total))
        tl.store(counts + tensor, tl.sum(number))

    @triton.jit  # type: ignore[untyped-decorator]
    def _cut_kernel(  # type: ignore[no-untyped-def]
        table,
        owner,
        place,
        inner,
        lengths,
        alive,
        means,
        count,
        ELEMENT: tl.constexpr,
        COMPUTE: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """A row of zeros that is longer than the mean is made as long as it."""
        row = tl.program_id(0)
        tensor = tl.load(owner + row)
        length = tl.load(lengths + row)
        mean = tl.load(means + tensor)
        if (tl.load(alive + row) == 0) & (length > mean):
            n = tl.load(inner + tensor)
            g = tl.load(table + tensor).to(tl.pointer_type(ELEMENT)) + tl.load(place + row) * n
            for first in range(0, n, BLOCK):
                i = first + tl.arange(0, BLOCK)
                x = tl.load(g + i, mask=i < n, other=0.0).to(COMPUTE)
                tl.store(g + i, (x * (mean / length)).to(ELEMENT), mask=i < n)
