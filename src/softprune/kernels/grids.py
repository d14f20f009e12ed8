"""The blocks of tensors as they lie in memory, numbered, and the tiles of them that programs of a GPU take."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from softprune.kernels.pairs import Pairs, upload

_TILE = 2048  # weights of a program, if a block has no more
_LARGEST = 16384


class Grid(NamedTuple):
    """The blocks of one tensor, numbered as they lie in memory, and how their scores are read from a vector."""

    numbers: list[int]  # what the kernel reads
    shape: torch.Size
    strides: tuple[int, ...]
    start: int


class GridTiles(NamedTuple):
    """All blocks cut into tiles, one for each program: its tensor and its place in the tensor."""

    owner: Tensor
    place: Tensor
    numbers: Tensor
    grids: list[Grid]
    number: int
    constants: dict[str, Any]


def tiles(pairs: Pairs, rows: int, cols: int) -> GridTiles | None:
    """None where one launch cannot do it."""
    if not pairs.launchable:
        return None
    layouts = tuple((theta.shape, theta.stride()) for theta in pairs.thetas)
    return _cut(layouts, rows, cols, pairs.thetas[0].device)


@lru_cache(maxsize=64)
def _cut(layouts: tuple[Any, ...], rows: int, cols: int, device: torch.device) -> GridTiles | None:
    high, wide = (1 << (n - 1).bit_length() for n in (rows, cols))
    area, grids, start = high * wide, [], 0
    if area > _LARGEST:
        return None
    for shape, strides in layouts:
        if (grid := _grid(shape, strides, rows, cols, start)) is None:
            return None
        grids.append(grid)
        start += grid.shape.numel()
    each = max(1, _TILE // area)  # blocks of a tile
    places = [range(-(-grid.shape.numel() // each)) for grid in grids]
    return GridTiles(
        owner=upload([i for i, places_ in enumerate(places) for _ in places_], torch.int32, device),
        place=upload([place for places_ in places for place in places_], torch.int32, device),
        numbers=upload([x for grid in grids for x in grid.numbers], torch.int64, device),
        grids=grids,
        number=sum(map(len, places)),
        constants={
            "ROWS": rows,
            "COLS": cols,
            "WIDE": wide,
            "LEVELS": area.bit_length() - 1,
            "EACH": each,
            "num_warps": max(4, area // 512),
        },
    )


def _grid(shape: torch.Size, strides: tuple[int, ...], rows: int, cols: int, start: int) -> Grid | None:
    rest = [(n, stride) for n, stride in zip(shape[2:], strides[2:], strict=True) if n > 1]
    if any(outer != n * inner for (_, outer), (n, inner) in pairwise(rest)):
        return None  # the kernel's positions do not lie evenly
    positions = math.prod(shape[2:])
    numbers = [-(-shape[0] // rows), -(-shape[1] // cols), positions]
    steps = [rows * strides[0], cols * strides[1], rest[-1][1] if rest else 1]
    order = sorted(range(3), key=lambda k: (numbers[k] == 1, steps[k]))
    run, places = 1, [0, 0, 0]
    for k in order:
        places[k], run = run, run * numbers[k]
    even = all(numbers[k] == 1 or steps[k] == cols * places[k] for k in range(3))
    flat = rows == 1 and strides[1] == 1 and shape[1] % cols == 0 and cols & (cols - 1) == 0 and even
    moves = [x for k in order for x in (steps[k], rows * (k == 0), cols * (k == 1))]
    inner = [places[2] * math.prod(shape[j + 1 :]) for j in range(2, len(shape))]
    return Grid(
        [run, start, flat, *shape[:2], *strides[:2], *(numbers[k] for k in order[:2]), *moves],
        torch.Size((*numbers[:2], *shape[2:])),
        (places[0], places[1], *inner),
        start,
    )
