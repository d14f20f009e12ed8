"""A grouping is a value; bound to parameters it becomes a partition, which a prox and a target ask about its groups.

The size of a group is its root mean square, r = ‖θ_G‖ / √|G|, so that groups of different sizes, and weights alone, are
compared with the same threshold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from torch import Tensor, nn

from softprune.kernels.columns import Column
from softprune.kernels.pairs import Pairs


class Grouping(ABC):
    """Which weights share a fate: ``Pruner(..., groups=sp.Blocks(1, 4))``."""

    def complete(self, params: Mapping[str, nn.Parameter]) -> Mapping[str, nn.Parameter]:
        """These parameters, and others that must be pruned with them."""
        return params

    @abstractmethod
    def bind(self, params: Mapping[str, nn.Parameter]) -> Partition:
        """The groups of these parameters.

        Args:
            params: {name: parameter} of what is pruned.
        """


class Partition(ABC):
    """Groups at work on the weights of one pruner. Lists of tensors are in the order of its parameters."""

    spans: ClassVar[bool] = False
    """Whether a group may have weights in several parameters. Then they are mapped together or not at all."""

    @property
    @abstractmethod
    def grain(self) -> int:
        """The most weights that a group has."""

    @property
    @abstractmethod
    def mark(self) -> tuple[float, ...]:
        """Numbers by which a saved state tells which groups it was made with."""

    @abstractmethod
    def means(self, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> list[Tensor]:
        """The mean of x·y over each weight's group, weight by weight, in single precision or better.

        NaN where a weight is in no group.
        """

    def sizes(self, thetas: Sequence[Tensor]) -> list[Tensor]:
        """r of each weight's group, weight by weight: the very numbers that ``write`` compares with d. They may be in
        units of their own."""
        return [mean.sqrt() for mean in self.means(thetas, thetas)]

    @abstractmethod
    def write(self, weights: Pairs, d: Column, p: float) -> None:
        """w ← θ·(1 − (d/r)^p)₊^(1/p) for many parameters, in place; weights in no group are θ."""

    def freed(self, ws: Sequence[Tensor]) -> Iterable[Tensor]:
        """The weights w, without those that only groups of zeros would use."""
        return ws

    scales: Sequence[float] = ()
    """Numbers that a saved state carries, one for each parameter; none for most."""

    def take(self, scales: Sequence[float]) -> None:
        """Take back what ``scales`` gave."""

    def levels(self, d: Column, like: Sequence[Tensor]) -> list[Tensor | float]:
        """The threshold of each parameter's weights: d, or one for each weight, where groups span parameters."""
        return list(d)
