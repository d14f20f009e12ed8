"""Drafts of steps: everything but where values lie, which ``compiled`` decides.

A value is in panels of its grid. Pixels are N, C, H, W; tokens (N, T, C) are pixels of one line, N, C single pixels. A
layer after a flatten is a convolution with a window as large as the picture.

A ``Dialect`` makes drafts of operations, in one precision: ``steps8``, ``steps16``, ``steps32``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor

from softprune.engine import formats
from softprune.engine.formats import Entries, Form
from softprune.engine.graph import Convolution, Flatten, Linear, Operation, Pool
from softprune.engine.grids import Grid
from softprune.engine.quantized import Precision, Quantized
from softprune.engine.windows import Program, Shape, program

Build = Callable[[Form], Entries]
Find = Callable[..., "Value"]  # of the name of a value, and of what it shall be made of if not of its own


class Element(Enum):
    """What a value is made of: bytes (4 channels in a lane), shorts or floats (one channel)."""

    BYTES = 8
    SHORTS = 16
    FLOATS = 32


@dataclass(frozen=True)
class Value:
    """Channels are made up to a multiple of 4."""

    name: str
    grid: Grid
    channels: int
    element: Element

    @property
    def deep(self) -> int:
        """Vectors of one pixel."""
        return -(-self.channels // 4) * (1 if self.element is Element.BYTES else 4)

    @property
    def panel_bytes(self) -> int:
        return self.deep * self.grid.stride * formats.VECTOR

    @property
    def group_bytes(self) -> int:
        return self.grid.panels * self.panel_bytes


@dataclass(frozen=True, eq=False)
class Draft:
    """``x``, ``y``, ``r``: names of values. ``entries`` makes those of a sparse layer, in one of several forms."""

    name: str
    kind: str
    loop: Grid  # whose groups and panels are run
    y: str
    x: str
    r: str | None = None
    panels: int = 0  # 0: those of the loop
    numbers: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, Tensor] = field(default_factory=dict)
    window: Program | None = None
    entries: Build | None = None
    alone: bool = False  # reads more than its own panel of x though nothing is packed
    few: bool = False  # so few pixels that lanes may be rows
    room: int = 0  # bytes of scratch behind what is packed


def packed_bytes(draft: Draft) -> int:
    """Of what a window lays side by side for one panel."""
    return draft.window.packed * draft.numbers["inputs"] * formats.VECTOR if draft.window else 0


def size_of(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of a value's shape.

    >>> size_of((1, 64, 7, 5)), size_of((1, 10)), size_of((2, 128, 768))
    ((64, 7, 5), (10, 1, 1), (768, 1, 128))
    """
    if len(shape) == 4:
        return shape[1], shape[2], shape[3]
    if len(shape) == 3:
        return shape[2], 1, shape[1]
    if len(shape) == 2:
        return shape[1], 1, 1
    raise ValueError(f"A value of {len(shape)} dimensions has no grid.")


def window_of(source: Value, target: Grid, shape: Shape) -> Program | None:
    return None if shape.is_pointwise and source.grid == target else program(source.grid, target, shape)


def elements(grid: Grid, shape: tuple[int, ...], missing: int) -> tuple[dict[str, int], dict[str, Tensor]]:
    """Where lanes lie in an array of the user, for all groups but the last, and for the last."""
    channels, height, width = size_of(shape)
    tokens = len(shape) == 3
    pixel, channel = (channels, 1) if tokens else (1, height * width)
    n, y, x = grid.places()
    element = n * channels * height * width + (y * width + x) * pixel
    valid = grid.valid()
    left = grid.batch - (grid.groups - 1) * grid.images
    every = torch.where(valid, element, missing).to(torch.int32)
    last = torch.where(valid & (n < left), element, missing).to(torch.int32)
    numbers = {"width": grid.panel, "images": channels, "channel": channel}
    return numbers | {"image": grid.images * channels * height * width}, {"indices": every, "last": last}


def padded(x: Tensor) -> Tensor:
    """Rows up to a multiple of 4."""
    return torch.cat([x, x.new_zeros(-len(x) % 4)])


def masks(grid: Grid) -> Tensor:
    """Which lanes of the vectors of a group are pixels, as bits."""
    bits = torch.zeros(grid.panels, grid.stride, dtype=torch.int64)
    bits[:, : grid.panel] = (grid.valid() << torch.arange(grid.lanes)).sum(-1)
    return torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32)


def mean_numbers(x: Value, y: Value) -> dict[str, int]:
    """Of the mean of all pixels; see native/pools.h."""
    grid = x.grid
    numbers = {"inputs": x.deep, "other": grid.panels, "width": grid.rows * grid.columns, "images": grid.images}
    return numbers | {"taps": y.grid.images, "fill": y.grid.rows * y.grid.columns}


def mean_shares(x: Value) -> int:
    return min(x.deep, 16)


class Dialect(ABC):
    """Makes drafts in one precision. ``value`` finds values by name while drafts are made."""

    precision: Precision
    lanes = 16

    def __init__(self, net: Quantized) -> None:
        self.net = net

    @abstractmethod
    def element(self, name: str) -> Element: ...

    @abstractmethod
    def knows(self, op: Operation) -> bool:
        """Whether there are kernels for an operation, whose values have grids."""

    @abstractmethod
    def drafts(self, op: Operation, value: Find) -> list[Draft]: ...

    @abstractmethod
    def enter(self, user: str, y: Value, shape: tuple[int, ...], name: str) -> Draft:
        """``name``: of the operation that reads it, with which its time counts."""

    def converted(self, x: Value, y: Value, value: str, name: str) -> Draft:
        """A value made of something else, for the operation of this name."""
        raise NotImplementedError("All values are made of the same.")

    @abstractmethod
    def leave(self, x: Value, user: str, shape: tuple[int, ...], name: str) -> Draft:
        """``name``: of the operation that makes it."""

    def supports(self, op: Operation) -> bool:
        shapes, net = self.net.graph.shapes, self.net.graph
        every = [shapes[name] for name in (*op.inputs, op.name)]
        if any(len(shape) not in (2, 3, 4) for shape in every) or len({shape[0] for shape in every}) > 1:
            return False
        if isinstance(op, Flatten):
            readers = net.readers(op.name)
            single = size_of(shapes[op.inputs[0]])[1:] == (1, 1)
            read = bool(readers) and op.name not in net.outputs and all(self.layer(r) for r in readers)
            return len(shapes[op.inputs[0]]) == 4 and self.held(op.inputs[0]) and (single or read)
        if isinstance(op, Pool) and not op.largest and any(op.padding) and not op.counts_padding:
            return False
        return (self.net.in_floats(op) or all(self.held(name) for name in op.inputs)) and self.knows(op)

    def held(self, name: str) -> bool:
        """Whether a value can be in panels of this precision."""
        return name in self.net.scales

    def layer(self, op: Operation) -> bool:
        """Whether an operation is a layer with weights that a kernel takes."""
        return isinstance(op, Convolution) or (isinstance(op, Linear) and len(self.net.graph.shapes[op.name]) < 4)


def window_of_layer(op: Convolution | Linear, x: Value) -> tuple[Shape, int, tuple[int, ...]]:
    """The window, the groups and the shape of the weight as that of a convolution."""
    if isinstance(op, Convolution):
        rows, each, height, width = op.weight.shape
        return Shape((height, width), op.stride, op.padding, op.dilation), op.groups, (rows, each, height, width)
    pixels = (x.grid.height, x.grid.width) if op.weight.shape[1] != x.channels else (1, 1)
    return Shape(pixels), 1, (op.weight.shape[0], x.channels, *pixels)


def taps_of(window: Program | None, x: Value) -> tuple[tuple[int, ...], int]:
    """First vectors of taps, and vectors from one channel group to the next."""
    return (window.taps, window.packed) if window else ((0,), x.grid.stride)
