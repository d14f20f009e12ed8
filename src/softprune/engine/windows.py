"""Which vectors an output panel reads, for k x k taps, strides, dilations and paddings: programs for native/pack.h.

The taps of one line of the kernel overlap along a run: tap k of vector p lies at p·stride + k·dilation. Positions
with the same remainder by the stride are laid side by side, so that tap k is P vectors that follow one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from softprune.engine.grids import Grid

FILL, COPY, PERMUTE, PERMUTE_MORE = range(4)


@dataclass(frozen=True)
class Shape:
    """A kernel: height and width of everything; ``padding`` is left, right, top, bottom."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.stride == (1, 1) and not any(self.padding)

    def output(self, height: int, width: int) -> tuple[int, int]:
        left, right, top, bottom = self.padding
        sizes = zip((height + top + bottom, width + left + right), self.kernel, self.stride, self.dilation, strict=True)
        tall, wide = [(size - d * (k - 1) - 1) // s + 1 for size, k, s, d in sizes]
        return tall, wide


@dataclass(frozen=True, eq=False)
class Program:
    """``moves``: to, mode, from (vectors of the source, after base), mask, index; ``panels``: base, first, last.

    A source vector is panel · source.panel + vector; ``plan`` makes bytes of it.
    """

    packed: int  # vectors of a channel group
    taps: tuple[int, ...]  # first vector of each tap, row by row
    moves: tuple[tuple[int, int, int, int, int], ...]
    panels: tuple[tuple[int, int, int], ...]
    indices: tuple[tuple[int, ...], ...]  # lanes


def _line(count: int, stride: int, dilation: int, panel: int) -> tuple[list[int], list[int]]:
    """Positions of the packed vectors of one line of taps, and where each tap begins among them.

    >>> _line(3, 1, 1, 4)
    ([0, 1, 2, 3, 4, 5], [0, 1, 2])
    >>> _line(3, 2, 1, 2)
    ([0, 2, 4, 1, 3], [0, 3, 1])
    """
    positions: list[int] = []
    begin = [0] * count
    if stride == 0:  # every vector of the panel reads the same
        return [0], begin
    for remainder in range(stride):
        taps = [k for k in range(count) if k * dilation % stride == remainder]
        if not taps:
            continue
        at = {k: k * dilation // stride for k in taps}
        first, last = min(at.values()), max(at.values())
        for k in taps:
            begin[k] = len(positions) + at[k] - first
        positions += [remainder + stride * i for i in range(first, last + panel)]
    return positions, begin


@lru_cache(maxsize=1024)
def program(source: Grid, target: Grid, shape: Shape) -> Program:
    """How the panels of one group of ``target`` are packed from ``source``."""
    (kh, kw), (sy, sx), (dy, dx) = shape.kernel, shape.stride, shape.dilation
    left, _, top, _ = shape.padding
    along = (kh, sy, dy) if target.down else (kw, sx, dx)
    across, step = (kw, dx) if target.down else (kh, dy)
    positions, begin = _line(*along, target.panel)
    length = len(positions)
    taps = tuple(
        (x * length + begin[y]) if target.down else (y * length + begin[x]) for y in range(kh) for x in range(kw)
    )

    image, y, x = target.places()  # panel, vector, lane
    valid = (y < target.height) & (x < target.width)
    # Of the panel's first vector; the others follow along the run.
    first_y, first_x, image = y[:, :1, :] * sy - top, x[:, :1, :] * sx - left, image[:, :1, :]
    offset = torch.tensor(positions * across).view(1, -1, 1)
    line = (torch.arange(across) * step).repeat_interleave(length).view(1, -1, 1)
    at_y = first_y + (offset if target.down else line)
    at_x = first_x + (line if target.down else offset)
    image = image + 0 * at_y
    inside = (at_y >= 0) & (at_y < source.height) & (at_x >= 0) & (at_x < source.width)
    wanted = _wanted(valid, positions * across, along, target.panel)
    # A group of the target reads the images of one group of the source, or of several that follow one another.
    group, image = image // source.images, image % source.images
    panel, vector, lane = source.find(image, at_y.clamp(0, source.height - 1), at_x.clamp(0, source.width - 1))
    vectors = ((group * source.panels) + panel) * source.panel + vector
    return _compile(taps, vectors, lane, inside & wanted, wanted, source.panel)


def _wanted(valid: Tensor, positions: list[int], along: tuple[int, int, int], panel: int) -> Tensor:
    """Which lanes of the packed vectors [panel, packed, lane] any pixel needs."""
    count, stride, dilation = along
    needs = torch.zeros(len(positions), panel, dtype=torch.bool)
    for i, position in enumerate(positions):
        for k in range(count):
            rest = position - k * dilation
            if stride == 0:
                needs[i] = True
            elif rest >= 0 and rest % stride == 0 and rest // stride < panel:
                needs[i, rest // stride] = True
    return torch.einsum("bpl,ip->bil", valid.float(), needs.float()) > 0


def _compile(
    taps: tuple[int, ...], vectors: Tensor, lane: Tensor, taken: Tensor, wanted: Tensor, whole: int
) -> Program:
    lanes = torch.arange(lane.shape[-1])
    far = 1 << 40
    lowest = torch.where(taken, vectors, far).amin(-1)
    highest = torch.where(taken, vectors, -1).amax(-1)
    padded = (wanted & ~taken).any(-1)
    empty = highest < 0
    copied = (lowest == highest) & ~padded & ((lane == lanes) | ~taken).all(-1)
    base = torch.where(empty, far, lowest).flatten(1).amin(1)
    base = torch.where(base == far, 0, base) // whole * whole  # the first vector of a panel

    programs: dict[tuple[tuple[int, int, int, int, int], ...], tuple[int, int]] = {}
    moves: list[tuple[int, int, int, int, int]] = []
    indices: dict[tuple[int, ...], int] = {}
    panels = []
    power = 1 << lanes
    for b, (is_empty, is_copied, low, begin) in enumerate(
        zip(empty.tolist(), copied.tolist(), lowest.tolist(), base.tolist(), strict=True)
    ):
        one: list[tuple[int, int, int, int, int]] = []
        for to in range(vectors.shape[1]):
            if is_empty[to]:
                one.append((to, FILL, 0, 0, 0))
            elif is_copied[to]:
                one.append((to, COPY, low[to] - begin, 0, 0))
            else:
                here, mode = taken[b, to], PERMUTE
                for source in sorted(set(vectors[b, to][here].tolist())):
                    chosen = here & (vectors[b, to] == source)
                    index = tuple(torch.where(chosen, lane[b, to], 0).tolist())
                    mask = int((power * chosen).sum())
                    one.append((to, mode, source - begin, mask, indices.setdefault(index, len(indices))))
                    mode = PERMUTE_MORE
        key = tuple(one)
        if key not in programs:
            programs[key] = len(moves), len(moves) + len(one)
            moves += one
        panels.append((begin, *programs[key]))
    return Program(vectors.shape[1], taps, tuple(moves), tuple(panels), tuple(indices))
