"""Blocks: small rectangles of a weight, of which all or none is zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from softprune.errors import ArgumentError, require_whole
from softprune.groups.base import Grouping, Partition
from softprune.kernels import blocks
from softprune.kernels.columns import Column
from softprune.kernels.pairs import Pairs
from softprune.kernels.sharding import cuts


@dataclass(frozen=True)
class Blocks(Grouping, Partition):
    """Rectangles of ``rows`` outputs and ``cols`` inputs; in a convolution, at each position of the kernel.

    At the edges of a weight blocks are smaller. A block has weights of one parameter, so that budgets, trained
    thresholds and sharded parameters are as without blocks.

        (1, 4)      what the dot products of int8 on a CPU want
        (64, 64)    what block-sparse products on a GPU want

    Args:
        rows: along the first dimension of a weight, its outputs.
        cols: along the second, its inputs.

    >>> import torch, softprune as sp
    >>> layer = torch.nn.Linear(4, 1, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([0.1, 2.0, 1.0, -0.4]))
    >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    >>> pruner = sp.Pruner(sp.select(layer), optimizer, threshold=sp.Constant(1.0), groups=Blocks(1, 2))
    >>> layer.weight.data
    tensor([[0.0294, 0.5876, 0.0000, -0.0000]])
    """

    rows: int
    cols: int

    def __post_init__(self) -> None:
        require_whole("Blocks", "rows", self.rows, least=1)
        require_whole("Blocks", "cols", self.cols, least=1)

    def bind(self, params: Mapping[str, nn.Parameter]) -> Partition:
        for name, p in params.items():
            for dim, step in enumerate((self.rows, self.cols) if p.ndim > 1 else (self.cols,)):
                if cuts(p, dim, step):
                    raise ArgumentError(
                        f"{name} is sharded along dimension {dim} into parts that cut blocks of {step}. Shard it along "
                        "another dimension (`shard_placement_fn`), or choose blocks that divide the parts."
                    )
        return self

    @property
    def grain(self) -> int:
        return self.rows * self.cols

    @property
    def mark(self) -> tuple[float, ...]:
        return float(self.rows), float(self.cols)

    def means(self, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> list[Tensor]:
        found = [blocks.means(_matrix(x), _matrix(y), self.rows, self.cols) for x, y in zip(xs, ys, strict=True)]
        return [self._spread(mean, x) for mean, x in zip(found, xs, strict=True)]

    def sizes(self, thetas: Sequence[Tensor]) -> list[Tensor]:
        found = blocks.scores([_matrix(theta) for theta in thetas], self.rows, self.cols)
        return [self._spread(r, theta) for r, theta in zip(found, thetas, strict=True)]

    def write(self, weights: Pairs, d: Column, p: float) -> None:
        if any(theta.ndim < 2 for theta in weights.thetas):
            weights = Pairs([_matrix(w) for w in weights.xs], [_matrix(theta) for theta in weights.thetas])
        blocks.threshold(weights, d, self.rows, self.cols, p)

    def dead(self, w: Tensor) -> Tensor:
        """Of each block of a weight, whether all of it is zero."""
        return blocks.means(_matrix(w), _matrix(w), self.rows, self.cols) == 0

    def _spread(self, values: Tensor, like: Tensor) -> Tensor:
        return blocks.spread(values, _matrix(like).shape, self.rows, self.cols).view_as(like)


def _matrix(x: Tensor) -> Tensor:
    """A vector, or a number, is one row."""
    return x if x.ndim > 1 else x.view(1, -1)
