"""Where a pixel lies: group, panel, vector, lane.

A vector has 16 lanes (32 in int16). Lanes are tiles: ``images`` images times ``rows`` x ``columns`` tiles of each, so
that one step to the right is the next vector, in all lanes but those at the edge of a tile. The vectors of one line of
a tile (``down``: of one column) are a run, which is cut into panels of at most ``panel`` vectors.

    >>> grid = Grid(1, 56, 56, rows=4, columns=4, panel=7)
    >>> grid.tile, grid.run, grid.panels, grid.counts[:2]
    ((14, 14), 14, 28, (7, 7))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

MOST = 8  # vectors of a panel; as in native/steps.h


@dataclass(frozen=True)
class Grid:
    """``batch`` images of ``height`` x ``width`` pixels."""

    batch: int
    height: int
    width: int
    images: int = 1
    rows: int = 4
    columns: int = 4
    panel: int = 7
    down: bool = False

    @property
    def lanes(self) -> int:
        return self.images * self.rows * self.columns

    @property
    def stride(self) -> int:
        """Vectors from one channel group of a panel to the next: an odd number, lest pieces of all channel groups
        fall into the same few sets of the first cache."""
        return self.panel + (self.panel > 2 and self.panel % 2 == 0)

    @property
    def groups(self) -> int:
        """Of ``images`` images each; the last one may have fewer."""
        return -(-self.batch // self.images)

    @property
    def tile(self) -> tuple[int, int]:
        return -(-self.height // self.rows), -(-self.width // self.columns)

    @property
    def run(self) -> int:
        return self.tile[0] if self.down else self.tile[1]

    @property
    def runs(self) -> int:
        """In a group."""
        return self.tile[1] if self.down else self.tile[0]

    @property
    def panels(self) -> int:
        """In a group."""
        return self.runs * -(-self.run // self.panel)

    @property
    def vectors(self) -> int:
        """In a group, those that are computed."""
        return self.runs * self.run

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Vectors of each panel of a group."""
        one = [min(self.panel, self.run - first) for first in range(0, self.run, self.panel)]
        return tuple(one * self.runs)

    def places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Image, y and x of [panel, vector, lane] in a group; what is no pixel has y >= height or x >= width."""
        each = -(-self.run // self.panel)
        panel = torch.arange(self.panels).view(-1, 1, 1)
        vector = torch.arange(self.panel).view(1, -1, 1)
        lane = torch.arange(self.lanes).view(1, 1, -1)
        along = panel % each * self.panel + vector
        across = panel // each
        ty, tx = (along, across) if self.down else (across, along)
        # A short panel's vectors that are not computed must not be pixels of the next tile.
        beyond = (along >= self.run) * (self.height + self.width)
        y = ty + lane // self.columns % self.rows * self.tile[0] + beyond
        x = tx + lane % self.columns * self.tile[1] + 0 * y
        return lane // (self.rows * self.columns) + 0 * y, y, x

    def valid(self) -> Tensor:
        """Which of [panel, vector, lane] are pixels."""
        _, y, x = self.places()
        return (y < self.height) & (x < self.width)

    def find(self, image: Tensor, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Panel, vector and lane of pixels of a group; y and x must be inside."""
        (ty, my), (tx, mx) = [(p % t, p // t) for p, t in zip((y, x), self.tile, strict=True)]
        along, across = (ty, tx) if self.down else (tx, ty)
        each = -(-self.run // self.panel)
        lane = (image * self.rows + my) * self.columns + mx
        return across * each + along // self.panel, along % self.panel, lane


def panel_for(run: int) -> int:
    """The length of panels: long ones, of even length.

    >>> [panel_for(run) for run in (1, 4, 7, 8, 13, 14, 16, 28, 56, 9)]
    [1, 4, 7, 8, 7, 7, 8, 7, 7, 5]
    """
    for best in (7, 8):
        if run % best == 0:
            return best
    return -(-run // -(-run // 7))


def _tilings(lanes: int) -> Iterator[tuple[int, int]]:
    rows = 1
    while rows <= lanes:
        yield rows, lanes // rows
        rows *= 2


@lru_cache(maxsize=4096)
def choose(batch: int, height: int, width: int, images: int, lanes: int = 16) -> Grid:
    """The grid with the fewest vectors, of which long panels are better."""
    candidates = []
    for rows, columns in _tilings(lanes // images):
        for down in (False, True):
            grid = Grid(batch, height, width, images, rows, columns, 1, down)
            panel = panel_for(grid.run)
            cost = grid.vectors * (1 + 0.5 / panel) + 0.001 * abs(rows - columns)
            candidates.append((cost, down, Grid(batch, height, width, images, rows, columns, panel, down)))
    return min(candidates, key=lambda candidate: candidate[:2])[2]


def images_for(batch: int, height: int, width: int, lanes: int = 16) -> int:
    """How many images share a vector: as few as waste few lanes, since then fewer bytes are in the cache at once.

    >>> [images_for(16, size, size) for size in (56, 28, 14, 7)], images_for(1, 7, 7)
    ([1, 1, 4, 16], 1)
    """
    best, least = 1, float("inf")
    images = 1
    while images <= lanes:
        grid = choose(batch, height, width, images, lanes)
        cost = grid.groups * grid.vectors * (1 + 0.02 * images.bit_length())
        if cost < least:
            best, least = images, cost
        images *= 2
        if images >= 2 * batch:
            break
    return best
