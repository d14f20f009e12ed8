"""A tensor as a matrix in memory, around one of its dimensions, and the tiles that programs of a GPU take of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from softprune.kernels.pairs import upload

SIDE = 64  # of a tile


class Matrix(NamedTuple):
    """A tensor in memory: ``inner`` neighbours in a row, or in a column, belong to one of ``n`` indices."""

    rows: int
    cols: int
    by_row: bool
    n: int
    inner: int  # columns of an index; 1 by row
    chunk: int  # rows, or by row columns, that one program adds up
    start: int  # of its partial sums
    labels: int  # where its labels begin; −1: it has none

    @classmethod
    def of(cls, outer: int, n: int, inner: int, chunk: int, start: int, labels: int) -> Matrix:
        if outer * -(-inner // chunk) < -(-outer // chunk) * inner:
            return cls(outer * n, inner, True, n, 1, chunk, start, labels)
        return cls(outer, n * inner, False, n, inner, chunk, start, labels)

    @property
    def partials(self) -> int:
        across, along = (self.rows, self.cols) if self.by_row else (self.cols, self.rows)
        return across * -(-along // self.chunk)

    def members(self) -> Tensor:
        """The partial sums of each index, index by index."""
        place = self.start + torch.arange(self.partials)
        if self.by_row:
            return place.view(-1, self.n, -(-self.cols // self.chunk)).transpose(0, 1).flatten()
        return place.view(-1, self.n, self.inner).transpose(0, 1).flatten()


class Tiles(NamedTuple):
    """For each tile its tensor, and where in the matrix it begins."""

    owner: Tensor
    row: Tensor
    col: Tensor
    number: int


def tiles(matrices: Sequence[Matrix | None], steps: int, device: torch.device) -> Tiles:
    found = []
    for i, m in enumerate(matrices):
        if m is not None:
            high, wide = (1, steps) if m.by_row else (steps, 1)
            rows, cols = range(0, m.rows, SIDE * high), range(0, m.cols, SIDE * wide)
            found += [(i, row, col) for row in rows for col in cols]
    columns = [[tile[k] for tile in found] for k in range(3)]
    owner, row, col = (upload(x, torch.int32, device) for x in columns)
    return Tiles(owner, row, col, len(found))


def around(shape: torch.Size, strides: tuple[int, ...], dim: int) -> tuple[int, int, int] | None:
    """A tensor in memory as (outer, n, inner) around a dimension; None where it has gaps."""
    if shape.numel() == 0:
        return 0, shape[dim], 0
    order = sorted((i for i in range(len(shape)) if shape[i] > 1), key=lambda i: -strides[i])
    left = shape.numel()
    sizes = {"outer": 1, "inner": 1}
    for i in order:
        left //= shape[i]
        if strides[i] != left:
            return None
        if i != dim:
            sizes["outer" if strides[i] > strides[dim] else "inner"] *= shape[i]
    return sizes["outer"], shape[dim], sizes["inner"]
