"""Labels: of each element of an activation, the unit to which it belongs.

A label is a number that stands for a unit of the network: a channel, a neuron, a head. Every index of every dimension
of a parameter has one of its own. While the network runs, ``Ties`` notes which of them are the same unit after all
(the two sides of a sum, all numbers of one head); who is what is solved once, at the end. Label 0 is ``FIXED``: what is
tied to it must stay.

Most labels are the same for all samples and all pixels. Their tensors are expanded there, with stride 0, and all work
is done on one element of each such dimension (``compact``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

FIXED = 0


def compact(labels: Tensor) -> Tensor:
    """One element for every place in memory: dimensions along which a tensor is expanded get size 1."""
    for dim in range(labels.dim()):
        if labels.stride(dim) == 0 and labels.size(dim) > 1:
            labels = labels.narrow(dim, 0, 1)
    return labels


def together(labels: Sequence[Tensor], shape: Sequence[int]) -> list[Tensor]:
    """All labels broadcast to the shape, but with size 1 in dimensions along which none of them changes."""
    small = [compact(x.expand(shape)) for x in labels]
    return broadcast(small)


def broadcast(tensors: Sequence[Tensor]) -> list[Tensor]:
    return list(torch.broadcast_tensors(*tensors))  # type: ignore[no-untyped-call]


def unflatten(labels: Tensor, dim: int, rows: int) -> Tensor:
    """A dimension as two: so many rows."""
    dim %= labels.dim()
    return labels.reshape(*labels.shape[:dim], rows, -1, *labels.shape[dim + 1 :])


def changes_along(labels: Tensor) -> list[int]:
    """The dimensions along which neighbours are not all alike."""
    small = compact(labels)
    return [dim for dim in range(small.dim()) if bool((small != small.narrow(dim, 0, 1)).any())]


def pairs(a: Tensor, b: Tensor) -> Tensor:
    """The different pairs (a, b), 2 × n, each once."""
    a, b = broadcast([a, b])
    codes = torch.unique((a << 32) | b)
    return torch.stack([codes >> 32, codes & 0xFFFFFFFF])


def neighbours(labels: Tensor, dims: Iterable[int]) -> Tensor:
    """The pairs of labels that lie side by side along some of the dimensions, 2 × n."""
    small, found = compact(labels), [torch.empty(2, 0, dtype=torch.int64)]
    for dim in dims:
        size = small.size(dim)
        if size > 1:
            found.append(pairs(small.narrow(dim, 0, size - 1), small.narrow(dim, 1, size - 1)))
    return torch.cat(found, dim=1)


@dataclass(frozen=True)
class Grid:
    """Labels of a tensor that must stay a full box when units go: at most one dimension may tell units apart."""

    labels: Tensor
    tie: int | None

    def repair(self, roots: Tensor) -> Tensor | None:
        """The pairs that must be tied so that it does: along ``tie`` first, then along the leading dimensions."""
        labels = roots[self.labels]
        dims = changes_along(labels)
        if len(dims) < 2:
            return None
        dim = self.tie if self.tie in dims else dims[0]
        return pairs(labels, labels.narrow(dim, 0, 1))


class Ties:
    """Which labels stand for the same unit."""

    def __init__(self) -> None:
        self.size = 1
        self.grids: list[Grid] = []
        self._pairs: list[Tensor] = []
        self._walls: list[Tensor] = []

    def new(self, number: int) -> Tensor:
        """Labels that nothing else has."""
        labels = torch.arange(self.size, self.size + number)
        self.size += number
        return labels

    def tie(self, a: Tensor, b: Tensor) -> None:
        """Element by element, the two are the same unit."""
        self._pairs.append(pairs(a, b))

    def tie_along(self, labels: Tensor, dims: Iterable[int]) -> Tensor:
        """What lies along these dimensions is one unit; its labels, with size 1 there."""
        labels = compact(labels)
        dims = [dim for dim in dims if labels.size(dim) > 1]
        if not dims:
            return labels
        first = labels.amax(dims, keepdim=True)
        self.tie(first, labels)
        return first

    def fix(self, labels: Tensor) -> None:
        """These units must stay."""
        self.tie(torch.tensor(FIXED), compact(labels))

    def wall(self, labels: Tensor, dims: Iterable[int]) -> None:
        """Nothing can go along these dimensions: units that turn out to differ along them must stay."""
        self._walls.append(neighbours(labels, dims))

    def grid(self, labels: Tensor, tie: int | None = None) -> None:
        """Units must go in whole slices of this tensor, all along one dimension."""
        small = compact(labels)
        if len(changes_along(small)) > 1:
            self.grids.append(Grid(small, tie))

    def solve(self) -> Tensor:
        """Of each label the smallest label of the same unit."""
        roots = components(self.size, torch.cat([torch.empty(2, 0, dtype=torch.int64), *self._pairs], dim=1))
        while True:
            repairs = [more for grid in self.grids if (more := grid.repair(roots)) is not None]
            if not repairs and self._walls:
                walls = roots[torch.cat(self._walls, dim=1)]
                different = walls[:, walls[0] != walls[1]].flatten()
                if len(different):
                    repairs = [pairs(torch.tensor(FIXED), different)]
            if not repairs:
                return roots
            self._pairs.extend(repairs)
            edges = torch.cat(repairs, dim=1)
            roots = components(self.size, torch.cat([edges, torch.stack([roots, torch.arange(self.size)])], dim=1))


def components(size: int, edges: Tensor) -> Tensor:
    """Of each node the smallest one that edges (2 × n) connect it with.

    >>> components(5, torch.tensor([[4, 1], [3, 3]])).tolist()
    [0, 1, 2, 1, 1]
    """
    parents = torch.arange(size)
    while True:
        a, b = parents[edges[0]], parents[edges[1]]
        apart = a != b
        if not apart.any():
            return parents
        a, b = a[apart], b[apart]
        parents.scatter_reduce_(0, torch.maximum(a, b), torch.minimum(a, b), "amin")
        while not torch.equal(parents, parents[parents]):
            parents = parents[parents]
