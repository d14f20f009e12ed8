"""Weights -> entries: what a sparse kernel reads, row after row.

An entry is the byte offset of a kept block in the panel, and its weights: 4 input channels in int8 (4 bytes), one in
int16 (written twice) and fp32. Paired rows of int8 share their entries where both keep a block: those have 3 words.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

VECTOR = 64  # bytes
ROWS, PLACES, TOGETHER = 16, 32, 4  # of steps for few pixels; as in native/few8.c


@dataclass(frozen=True)
class Form:
    """Rows in pairs, or 16 together for few pixels (both int8 alone); ``slices`` of the input channels, one after the
    other (never in int8)."""

    paired: bool = False
    slices: int = 1
    few: bool = False


@dataclass(frozen=True, eq=False)
class Entries:
    """``words`` int32; ``lengths``: entries of each row (of each pair: of both, of the first, of the second row; steps
    of each 16 rows)."""

    words: Tensor
    lengths: Tensor
    rows: int  # a multiple of 4 in int8
    form: Form
    blocks: int  # kept blocks, each of one row
    steps: int = 0  # of 16 rows at a time

    def parts(self, count: int) -> list[tuple[int, int, int, int]]:
        """Cut the rows into parts of like cost: entry, length, first row, last row of each, slice by slice."""
        span, weights = (2, [3, 2, 2]) if self.form.paired else (1, [2])
        if self.form.few:
            span, weights = ROWS, [1]
        per = len(weights)
        sizes = self.lengths.view(self.form.slices, -1, per).long()
        words = sizes @ torch.tensor(weights)
        begin = torch.cat([torch.zeros(1, dtype=torch.long), words.flatten().cumsum(0)])
        whole = max(1, 4 // span)  # rows of 4 stay together
        cost = (words.sum(0) + 6).cumsum(0)
        many = len(cost)
        cuts = [0]
        for i in range(1, count):
            at = (int(torch.searchsorted(cost, cost[-1] * i / count)) + whole // 2) // whole * whole
            cuts.append(min(max(at, cuts[-1]), many))
        cuts.append(many)
        return [
            (int(begin[k * many + a]), (k * many + a) * per, a * span, min(b * span, self.rows))
            for a, b in pairwise(cuts)
            if b > a
            for k in range(self.form.slices)
        ]


ONE = Form()


def _positions(weight: Tensor, groups: int, taps: tuple[int, ...], packed: int, block: int) -> tuple[Tensor, ...]:
    """Row, byte offset, place in its block and value of every weight that is not 0."""
    rows = weight.shape[0]
    flat = weight.reshape(rows, weight.shape[1], -1)
    row, channel, tap = flat.nonzero(as_tuple=True)
    value = flat[row, channel, tap]
    channel = channel + row // (rows // groups) * weight.shape[1]
    offset = (channel // block * packed + torch.tensor(taps)[tap]) * VECTOR
    return row, offset, channel % block, value


def _blocks8(weight: Tensor, groups: int, taps: tuple[int, ...], packed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row, offset and word of every kept block, in this order."""
    row, offset, place, value = _positions(weight, groups, taps, packed, 4)
    key = (row << 32) + offset
    kept, index = torch.unique(key, return_inverse=True)
    bytes_ = torch.zeros(len(kept), 4, dtype=torch.int8)
    bytes_[index, place] = value
    return kept >> 32, kept & 0xFFFFFFFF, bytes_.view(torch.int32).flatten()


def int8(weight: Tensor, groups: int, taps: tuple[int, ...], packed: int, form: Form = ONE) -> Entries:
    """``taps``: first vector of each tap in a channel group, ``packed``: vectors of a channel group."""
    rows = -(-weight.shape[0] // 4) * 4
    if form.few:
        return _few8(weight, groups, len(taps), rows)
    row, offset, word = _blocks8(weight, groups, taps, packed)
    if not form.paired:
        words = torch.stack([offset.to(torch.int32), word], 1).flatten()
        lengths = torch.bincount(row, minlength=rows).to(torch.int32)
        return Entries(words, lengths, rows, form, len(row))
    key = (row // 2 << 32) + offset
    kept, index = torch.unique(key, return_inverse=True)
    both = torch.zeros(len(kept), 2, dtype=torch.int32)
    has = torch.zeros(len(kept), 2, dtype=torch.bool)
    both[index, row % 2] = word
    has[index, row % 2] = True
    kind = torch.where(has.all(1), 0, torch.where(has[:, 0], 1, 2))
    pair = kept >> 32
    order = torch.argsort(pair * 3 + kind, stable=True)
    pair, kind, both, offset = pair[order], kind[order], both[order], (kept & 0xFFFFFFFF)[order].to(torch.int32)
    size = torch.where(kind == 0, 3, 2)
    begin = size.cumsum(0) - size
    words = torch.zeros(int(size.sum()), dtype=torch.int32)
    words[begin] = offset
    words[begin + 1] = torch.where(kind == 2, both[:, 1], both[:, 0])
    words[begin[kind == 0] + 2] = both[kind == 0, 1]
    lengths = torch.bincount(pair * 3 + kind, minlength=rows // 2 * 3).to(torch.int32)
    return Entries(words, lengths, rows, form, len(row))


def places(weight: Tensor, groups: int, taps: int) -> int:
    """How many blocks of 4 input channels at one tap there are, made up to whole groups of ``PLACES``."""
    return -(-(-(-weight.shape[1] * groups // 4) * taps) // PLACES) * PLACES


def _few8(weight: Tensor, groups: int, taps: int, rows: int) -> Entries:
    """For native/few8.c: all weights, step by step, then all indices, then all first places."""
    row, offset, word = _blocks8(weight, groups, tuple(range(taps)), taps)
    place = offset // VECTOR
    many, bundles = places(weight, groups, taps) // PLACES, -(-rows // ROWS)
    line = row * many + place // PLACES  # of one row, those of 32 places
    counts = torch.bincount(line, minlength=bundles * ROWS * many)
    steps = counts.view(bundles, ROWS, many).amax(1)
    lengths = -(-steps.sum(1) // TOGETHER) * TOGETHER
    begin = (lengths.cumsum(0) - lengths).view(-1, 1) + steps.cumsum(1) - steps
    rank = torch.arange(len(line)) - (counts.cumsum(0) - counts)[line]
    step = begin[row // ROWS, place // PLACES] + rank
    total = int(lengths.sum())
    weights = torch.zeros(total, ROWS, dtype=torch.int32)
    indices = torch.zeros(total, ROWS, dtype=torch.uint8)
    first = torch.zeros(total, dtype=torch.int16)
    weights[step, row % ROWS], indices[step, row % ROWS] = word, (place % PLACES).to(torch.uint8)
    first[step] = (place // PLACES * PLACES).to(torch.int16)
    together = indices.view(-1, TOGETHER, ROWS).transpose(1, 2).flatten().view(torch.int32)  # one byte of each step
    words = torch.cat([weights.flatten(), together, first.view(torch.int32)])
    return Entries(words, lengths.to(torch.int32), rows, Form(few=True), len(row), total)


def single(weight: Tensor, groups: int, taps: tuple[int, ...], packed: int, form: Form = ONE) -> Entries:
    """int16 or fp32: an entry for every weight."""
    rows = weight.shape[0]
    row, offset, _, value = _positions(weight, groups, taps, packed, 1)
    channels = weight.shape[1] * groups
    piece = offset // (packed * VECTOR) * form.slices // channels
    line = piece * rows + row
    order = torch.argsort((line << 32) + offset)
    value = value[order]
    if weight.dtype is torch.int16:
        word = torch.stack([value, value], 1).contiguous().view(torch.int32).flatten()
    else:
        word = value.float().view(torch.int32)
    words = torch.stack([offset[order].to(torch.int32), word], 1).flatten()
    lengths = torch.bincount(line, minlength=rows * form.slices).to(torch.int32)
    return Entries(words, lengths, rows, form, len(row))


def depthwise(weight: Tensor) -> Tensor:
    """[channels, 1, height, width] -> for each four channels and four taps, 4 words of 4 taps of one channel."""
    channels = weight.shape[0]
    flat = weight.reshape(channels, -1)
    padded = torch.zeros(-(-channels // 4) * 4, -(-flat.shape[1] // 4) * 4, dtype=torch.int8)
    padded[:channels, : flat.shape[1]] = flat
    fours = padded.view(len(padded) // 4, 4, -1, 4).transpose(1, 2).contiguous()
    return fours.view(torch.int32).flatten()
