"""Pictures of any size on a GPU -> a batch: cut, resized with antialiasing, mirrored and normalised, in three launches.

Bit by bit what the CPU makes of the same pixels: weights are rounded to whole numbers as torch rounds them for boxes of
whole pixels, and as Pillow does for others; rows first, rounded to bytes, then columns.

    y[i] = Σ_k w[i, k] x[first[i] + k], over the pixels under a triangle as much wider than one as the box is larger
    than the result
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from softprune.data.augment import Cut
from softprune.data.tensors import upload

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch brings no Triton
    if not TYPE_CHECKING:
        triton = None

_ROWS = 8  # of a program


class Plan(NamedTuple):
    """What the kernels are told: for each picture a row of words of 64 bits.

    Of the pixels that count the first column and row, and how many columns and rows; of these rows the first that is
    read, and how many; weights along x and y; whether it is mirrored, and whether torch's rounding is wanted; where its
    rows lie between the two passes. Then, in double precision, where the box begins among the pixels that count, and
    its scales.
    """

    words: bytes
    rows: int  # of all pictures together, which are read
    longest: int  # of one
    taps: int  # the most weights

    @classmethod
    def of(cls, shown: Sequence[tuple[int, int, Cut]], size: int) -> Plan:
        """Width, height and cut of each picture."""
        words, rows, longest, most = bytearray(), 0, 0, 0
        for width, height, cut in shown:
            left, top, right, bottom = map(_single, cut.box)
            scales = _single(right - left) / size, _single(bottom - top) / size
            taps = [2 * math.ceil(max(scale, 1.0)) + 1 for scale in scales]
            if cut.whole:
                inside = int(left), int(top), int(right - left), int(bottom - top)
                first, last = 0, inside[3]
            else:
                inside = 0, 0, width, height
                first, last = max(0, int(top) - taps[1]), min(height, math.ceil(bottom) + taps[1])
            whole = *inside, first, last - first, *taps, cut.mirrored, cut.whole, rows
            words += _ROW.pack(*whole, left - inside[0], top - inside[1], *scales)
            rows, longest, most = rows + last - first, max(longest, last - first), max(most, *taps)
        return cls(bytes(words), rows, longest, most)


_ROW = struct.Struct("11q4d")
_WHERE = struct.Struct("4q")


def _single(x: float) -> float:
    """In single precision, as Pillow takes the edges of a box."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


def batch(pictures: list[Tensor], plan: Plan, size: int, mean: Tensor, std: Tensor, out: Tensor) -> None:
    """Write pictures of 3 × H × W bytes on a GPU to ``out``, N × size × size × 3 floats.

    Args:
        pictures: of any strides.
        plan: what of each.
        size: pixels a side.
        mean: of each channel, on the GPU.
        std: of each channel, on the GPU.
        out: takes the result.
    """
    device, n, width = out.device, len(pictures), triton.next_power_of_2(size)
    where = b"".join(_WHERE.pack(picture.data_ptr(), *picture.stride()) for picture in pictures)
    table = upload(torch.frombuffer(bytearray(where + plan.words), dtype=torch.int64), device)
    weights = torch.empty(n, 2, plan.taps + 2, width, dtype=torch.int32, device=device)
    between = torch.empty(plan.rows, 3, width, dtype=torch.uint8, device=device)
    constants = {"WIDTH": width, "WORDS": _ROW.size // 8, "num_warps": 4}
    grid = (triton.cdiv(plan.longest, _ROWS), n), (triton.cdiv(size, _ROWS), n)
    _weights_kernel[(n, 2)](table, n, weights, plan.taps, size, enable_fp_fusion=False, **constants)
    _rows_kernel[grid[0]](table, n, weights, plan.taps, between, size, ROWS=_ROWS, **constants)
    _columns_kernel[grid[1]](table, n, weights, plan.taps, between, out, mean, std, size, ROWS=_ROWS, **constants)


if triton is not None:

    @triton.jit
    def _triangle(first, k, center, inverse):  # type: ignore[no-untyped-def]
        return tl.maximum(1.0 - tl.abs((k + first - center + 0.5) * inverse), 0.0)

    @triton.jit  # type: ignore[untyped-decorator]
    def _weights_kernel(table, n, weights, most, size, WIDTH: tl.constexpr, WORDS: tl.constexpr):  # type: ignore[no-untyped-def]
        """The weights of one picture along x or y; before them, their first pixels, and how many bits they have."""
        picture, axis = tl.program_id(0), tl.program_id(1)
        row = table + 4 * n + WORDS * picture
        limit, taps, torchs = tl.load(row + 2 + axis), tl.load(row + 6 + axis).to(tl.int32), tl.load(row + 9)
        start = tl.load(row + 11 + axis).to(tl.float64, bitcast=True)
        scale = tl.load(row + 13 + axis).to(tl.float64, bitcast=True)
        wide = tl.maximum(scale, 1.0)
        inverse = 1.0 / wide
        i = tl.arange(0, WIDTH)
        center = start + (i.to(tl.float64) + 0.5) * scale
        begin = tl.maximum((center - wide + 0.5).to(tl.int64), 0)
        count = tl.minimum((center + wide + 0.5).to(tl.int64), limit) - begin
        total = tl.zeros((WIDTH,), tl.float64)
        for k in range(taps):
            total += tl.where(k < count, _triangle(begin, k, center, inverse), 0.0)
        total = tl.where(total > 0.0, total, 1.0)
        greatest = tl.zeros((WIDTH,), tl.float64)
        for k in range(taps):
            greatest = tl.maximum(greatest, tl.where(k < count, _triangle(begin, k, center, inverse), 0.0) / total)
        top = tl.max(tl.where(i < size, greatest, 0.0), 0)
        shift = 0  # as torch has it: as many bits as 16 have room for
        for power in range(1, 23):
            shift += ((0.5 + top * (1 << power)).to(tl.int64) < 32768).to(tl.int32)
        shift = tl.where(torchs != 0, shift, 22)
        weights += (2 * picture + axis).to(tl.int64) * (most + 2) * WIDTH
        tl.store(weights + i, begin.to(tl.int32))
        tl.store(weights + WIDTH + i, tl.zeros((WIDTH,), tl.int32) + shift)
        for k in range(taps):
            w = tl.where(k < count, _triangle(begin, k, center, inverse), 0.0) / total
            tl.store(weights + (k + 2) * WIDTH + i, (w * (1 << shift) + 0.5).to(tl.int32))

    @triton.jit  # type: ignore[untyped-decorator]
    def _rows_kernel(  # type: ignore[no-untyped-def]
        table, n, weights, most, between, size, WIDTH: tl.constexpr, WORDS: tl.constexpr, ROWS: tl.constexpr
    ):
        """Rows of one picture, resized to ``size`` columns."""
        picture = tl.program_id(1)
        line = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        where, row = table + 4 * picture, table + 4 * n + WORDS * picture
        lines = tl.load(row + 5)
        if tl.program_id(0) * ROWS < lines:
            pixels = tl.load(where).to(tl.pointer_type(tl.uint8))
            channel, down, right = tl.load(where + 1), tl.load(where + 2), tl.load(where + 3)
            x, y, columns = tl.load(row), tl.load(row + 1) + tl.load(row + 4), tl.load(row + 2)
            taps, place = tl.load(row + 6).to(tl.int32), tl.load(row + 10)
            i = tl.arange(0, WIDTH)
            there = (line < lines)[:, None] & (i < size)[None, :]
            weights += (2 * picture).to(tl.int64) * (most + 2) * WIDTH
            begin, shift = tl.load(weights + i), tl.load(weights + WIDTH)
            half = (1 << shift) >> 1
            a = tl.zeros((ROWS, WIDTH), tl.int32) + half
            b = tl.zeros((ROWS, WIDTH), tl.int32) + half
            c = tl.zeros((ROWS, WIDTH), tl.int32) + half
            left = pixels + (y + line.to(tl.int64))[:, None] * down
            for k in range(taps):
                w = tl.load(weights + (k + 2) * WIDTH + i)[None, :]
                at = left + (x + tl.minimum(begin + k, columns - 1))[None, :] * right
                a += w * tl.load(at, there, 0).to(tl.int32)
                b += w * tl.load(at + channel, there, 0).to(tl.int32)
                c += w * tl.load(at + 2 * channel, there, 0).to(tl.int32)
            to = between + (place + line)[:, None] * (3 * WIDTH) + i[None, :]
            tl.store(to, tl.minimum(a >> shift, 255).to(tl.uint8), there)
            tl.store(to + WIDTH, tl.minimum(b >> shift, 255).to(tl.uint8), there)
            tl.store(to + 2 * WIDTH, tl.minimum(c >> shift, 255).to(tl.uint8), there)

    @triton.jit  # type: ignore[untyped-decorator]
    def _columns_kernel(  # type: ignore[no-untyped-def]
        table,
        n,
        weights,
        most,
        between,
        out,
        mean,
        std,
        size,
        WIDTH: tl.constexpr,
        WORDS: tl.constexpr,
        ROWS: tl.constexpr,
    ):
        """The same along columns, mirrored and normalised."""
        picture = tl.program_id(1)
        j = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        row = table + 4 * n + WORDS * picture
        skipped, lines, taps = tl.load(row + 4), tl.load(row + 5), tl.load(row + 7).to(tl.int32)
        mirrored, place = tl.load(row + 8), tl.load(row + 10)
        i = tl.arange(0, WIDTH)
        there = (j < size)[:, None] & (i < size)[None, :]
        weights += (2 * picture + 1).to(tl.int64) * (most + 2) * WIDTH
        begin, shift = tl.load(weights + j, j < size, 0), tl.load(weights + WIDTH)
        half = (1 << shift) >> 1
        a = tl.zeros((ROWS, WIDTH), tl.int32) + half
        b = tl.zeros((ROWS, WIDTH), tl.int32) + half
        c = tl.zeros((ROWS, WIDTH), tl.int32) + half
        for k in range(taps):
            w = tl.load(weights + (k + 2) * WIDTH + j, j < size, 0)[:, None]
            line = place + tl.minimum(begin + k - skipped, lines - 1)
            at = between + line[:, None] * (3 * WIDTH) + i[None, :]
            a += w * tl.load(at, there, 0).to(tl.int32)
            b += w * tl.load(at + WIDTH, there, 0).to(tl.int32)
            c += w * tl.load(at + 2 * WIDTH, there, 0).to(tl.int32)
        column = tl.where(mirrored != 0, size - 1 - i, i)
        to = out + ((picture.to(tl.int64) * size + j)[:, None] * size + column[None, :]) * 3
        _normalised(to, tl.minimum(a >> shift, 255), mean, std, there)
        _normalised(to + 1, tl.minimum(b >> shift, 255), mean + 1, std + 1, there)
        _normalised(to + 2, tl.minimum(c >> shift, 255), mean + 2, std + 2, there)

    @triton.jit
    def _normalised(to, value, mean, std, there):  # type: ignore[no-untyped-def]
        x = value.to(tl.float32) - tl.load(mean)
        tl.store(to, tl.div_rn(x, tl.load(std) + tl.zeros_like(x)), there)
