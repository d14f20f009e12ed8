"""The threshold of blocks of weights, of many tensors at once: one launch on a GPU.

Blocks lie in the first two dimensions of a tensor, (out, in); every position of a convolution's kernel has blocks of
its own, and at the edges blocks are smaller. A block θ_G of |G| weights has the root mean square r = ‖θ_G‖ / √|G|, and
w_G = θ_G · f(r) with f from ``kernels.factor``.

Squares are added pairwise, neighbours first, along the block's columns and then along its rows: always in the same
order, so that a block counted as dead is dead, and on every device (in double precision up to the last bit). They are
added in single precision or better: a block whose weights are all below 1e-23 counts as zero. On the CPU, and wherever
one launch cannot do it, plain torch operations do the same tensor by tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from softprune.kernels import grids
from softprune.kernels.columns import Column, is_scalar, placed
from softprune.kernels.factor import factor
from softprune.kernels.grids import GridTiles
from softprune.kernels.pairs import Pairs, on_device

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch brings no Triton
    if not TYPE_CHECKING:
        triton = None


def threshold(pairs: Pairs, column: Column, rows: int, cols: int, p: float) -> None:
    """w ← θ · f(r) for every block of ``rows`` × ``cols`` of every pair, in place, without a host sync."""
    if is_scalar(column) and (tiles := grids.tiles(pairs, rows, cols)) is not None:
        levels = on_device(column, pairs.table.device)  # type: ignore[arg-type]
        _launch(pairs, tiles, levels, levels, P=float(p), HARD=p == math.inf, SCORE=False)
        return
    for w, theta, level in zip(pairs.xs, pairs.thetas, placed(column, pairs.thetas), strict=True):
        squares = torch.mul(theta, theta, out=w) if w.dtype is _wide(theta) else _squares(theta)
        r = _roots(squares, rows, cols)
        f = factor(r, level, p)
        for out in _spans(len(theta), rows):
            for into in _spans(theta.shape[1], cols):
                each = f[out.blocks, into.blocks][:, None, :, None]
                torch.mul(_view(theta, out, into), each, out=_view(w, out, into))


def scores(tensors: Sequence[Tensor], rows: int, cols: int) -> list[Tensor]:
    """r of each block of each tensor, in single precision or better: (⌈out/rows⌉, ⌈in/cols⌉, ...)."""
    pairs = Pairs(tensors, tensors)
    if (tiles := grids.tiles(pairs, rows, cols)) is None:
        return [_roots(_squares(x), rows, cols) for x in tensors]
    out = torch.empty(sum(grid.shape.numel() for grid in tiles.grids), dtype=pairs.sums, device=pairs.table.device)
    _launch(pairs, tiles, out, out, P=1.0, HARD=False, SCORE=True)
    return [out.as_strided(grid.shape, grid.strides, grid.start) for grid in tiles.grids]


def means(x: Tensor, y: Tensor, rows: int, cols: int) -> Tensor:
    """The mean of x·y over each block, in single precision or better."""
    return _means(x.to(_wide(x)) * y, rows, cols)


def spread(score: Tensor, shape: torch.Size, rows: int, cols: int) -> Tensor:
    """The score of each weight's block: a tensor of the weights' shape."""
    tall = score.repeat_interleave(rows, 0)[: shape[0]]
    return tall.repeat_interleave(cols, 1)[:, : shape[1]]


class _Span(NamedTuple):
    """Blocks of one size along a dimension: the whole ones, or the last, which is smaller."""

    weights: slice
    blocks: slice
    size: int


def _spans(length: int, size: int) -> list[_Span]:
    number, rest = divmod(length, size)
    whole = _Span(slice(0, number * size), slice(0, number), size)
    last = _Span(slice(number * size, length), slice(number, number + 1), rest)
    return [whole] * (number > 0 or rest == 0) + [last] * (rest > 0)


def _view(x: Tensor, out: _Span, into: _Span) -> Tensor:
    """Weights as (blocks, rows, blocks, cols, ...)."""
    bands = torch.unflatten(x[out.weights, into.weights], 0, (-1, out.size))
    return torch.unflatten(bands, 2, (-1, into.size))


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _squares(x: Tensor) -> Tensor:
    return x.to(_wide(x)).square()


def _roots(squares: Tensor, rows: int, cols: int) -> Tensor:
    mean = _means(squares, rows, cols)
    return mean.double().sqrt_().to(mean)  # torch's root of a single is often not the nearest


def _means(squares: Tensor, rows: int, cols: int) -> Tensor:
    bands = []
    for out in _spans(len(squares), rows):
        parts = []
        for into in _spans(squares.shape[1], cols):
            total = _add(_add(_view(squares, out, into), 3), 1)
            parts.append(total.mul_(1 / (out.size * into.size)))
        bands.append(torch.cat(parts, 1))
    return torch.cat(bands)


def _add(x: Tensor, dim: int) -> Tensor:
    """Sums along a dimension, of neighbours, then of neighbouring sums, and so on; a last one alone waits."""
    before = (slice(None),) * dim
    while (n := x.shape[dim]) > 1:
        pairs = x[(*before, slice(0, n - 1, 2))] + x[(*before, slice(1, n, 2))]
        x = torch.cat([pairs, x[(*before, slice(n - 1, n))]], dim) if n % 2 else pairs
    return x.squeeze(dim)


def _launch(pairs: Pairs, tiles: GridTiles, d: Tensor, out: Tensor, **constants: Any) -> None:
    constants |= {k: pairs.constants[k] for k in ("ELEMENT", "ALIGN", "enable_fp_fusion")}
    if tiles.number:
        with torch.cuda.device(pairs.thetas[0].device):
            _blocks_kernel[(tiles.number,)](
                pairs.table,
                tiles.owner,
                tiles.place,
                tiles.numbers,
                d,
                out,
                len(pairs.thetas),
                COMPUTE=pairs.compute,
                **constants,
                **tiles.constants,
            )


if triton is not None:
    from softprune.kernels.factor import left_over

    @triton.jit  # type: ignore[untyped-decorator]
    def _root(  # type: ignore[no-untyped-def]
        x, size, LEVELS: tl.constexpr, EACH: tl.constexpr, COMPUTE: tl.constexpr
    ):
        """r of each block; sums of neighbours, then of neighbouring sums, and so on."""
        total = x * x
        for level in tl.static_range(LEVELS):
            total = tl.sum(tl.reshape(total, (EACH, 1 << (LEVELS - level - 1), 2)), axis=2)
        total = tl.reshape(total, (EACH,))
        if tl.float64 == COMPUTE:
            r = tl.sqrt(total * (1 / size.to(COMPUTE)))
        else:
            r = tl.sqrt_rn(total * tl.div_rn(1.0, size.to(COMPUTE)))
        return r

    @triton.jit  # type: ignore[untyped-decorator]
    def _map(  # type: ignore[no-untyped-def]
        theta,
        w,
        inside,
        score,
        there,
        d,
        size,
        P: tl.constexpr,
        HARD: tl.constexpr,
        SCORE: tl.constexpr,
        LEVELS: tl.constexpr,
        EACH: tl.constexpr,
        ELEMENT: tl.constexpr,
        COMPUTE: tl.constexpr,
    ):
        x = tl.load(theta, mask=inside, other=0.0).to(COMPUTE)
        r = _root(x, size, LEVELS, EACH, COMPUTE)
        if SCORE:
            tl.store(score, r, mask=there)
        else:
            f = left_over(r, d.to(COMPUTE), P, HARD)
            tl.store(w, (x * f[:, None]).to(ELEMENT), mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def _blocks_kernel(  # type: ignore[no-untyped-def]
        table,
        owner,
        place,
        numbers,
        thresholds,
        out,
        count,
        P: tl.constexpr,
        HARD: tl.constexpr,
        SCORE: tl.constexpr,
        ROWS: tl.constexpr,
        COLS: tl.constexpr,
        WIDE: tl.constexpr,
        LEVELS: tl.constexpr,
        EACH: tl.constexpr,
        ELEMENT: tl.constexpr,
        COMPUTE: tl.constexpr,
        ALIGN: tl.constexpr,
    ):
        AREA: tl.constexpr = 1 << LEVELS
        tensor = tl.load(owner + tl.program_id(0))
        first = tl.load(place + tl.program_id(0)) * EACH
        w = tl.multiple_of(tl.load(table + tensor).to(tl.pointer_type(ELEMENT)), ALIGN)
        theta = tl.multiple_of(tl.load(table + count + tensor).to(tl.pointer_type(ELEMENT)), ALIGN)
        d = tl.load(thresholds + tensor)
        numbers += tensor * 18
        g = first + tl.arange(0, EACH)
        s = tl.arange(0, AREA)
        there = g < tl.load(numbers)
        score = out + tl.load(numbers + 1) + g
        if tl.load(numbers + 2) != 0:  # blocks are runs of memory: loads and stores are up to 16 bytes wide
            x = first.to(tl.int64) * AREA + tl.arange(0, EACH)[:, None] * AREA + s[None, :]
            full = tl.full((EACH,), AREA, tl.int32)
            every = there[:, None] & (s < AREA)[None, :]
            _map(theta + x, w + x, every, score, there, d, full, P, HARD, SCORE, LEVELS, EACH, ELEMENT, COMPUTE)
        else:
            a = s // WIDE
            c = s % WIDE
            n = tl.load(numbers + 7).to(tl.int32)
            middle = g // n
            fast = g - middle * n
            n = tl.load(numbers + 8).to(tl.int32)
            slow = middle // n
            middle -= slow * n
            base = fast * tl.load(numbers + 9) + middle * tl.load(numbers + 12) + slow * tl.load(numbers + 15)
            o = fast * tl.load(numbers + 10) + middle * tl.load(numbers + 13) + slow * tl.load(numbers + 16)
            i = fast * tl.load(numbers + 11) + middle * tl.load(numbers + 14) + slow * tl.load(numbers + 17)
            height = tl.minimum(tl.load(numbers + 3) - o, ROWS).to(tl.int32)  # less at the edges
            width = tl.minimum(tl.load(numbers + 4) - i, COLS).to(tl.int32)
            inside = there[:, None] & (a[None, :] < height[:, None]) & (c[None, :] < width[:, None])
            y = base[:, None] + (a * tl.load(numbers + 5) + c * tl.load(numbers + 6))[None, :]
            size = height * width
            _map(theta + y, w + y, inside, score, there, d, size, P, HARD, SCORE, LEVELS, EACH, ELEMENT, COMPUTE)
