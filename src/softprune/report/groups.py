"""Groups in a report: how many a layer or a place has, and how many of them are dead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from softprune.groups.base import Partition
from softprune.groups.blocks import Blocks
from softprune.groups.units import UnitPartition
from softprune.kernels.sharding import sharding, total
from softprune.prox.base import Prox
from softprune.prox.group import Grouped


@dataclass(frozen=True)
class Place:
    """Groups that lie side by side, such as the channels of a layer or of a residual stream: how many, and how many of
    them are dead."""

    name: str
    groups: int
    dead: int

    @property
    def alive(self) -> int:
        return self.groups - self.dead

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def partition_of(prox: Prox) -> Partition | None:
    return prox.partition if isinstance(prox, Grouped) else None


def in_layer(partition: Partition | None, alive: Tensor, p: Tensor) -> tuple[int, int] | tuple[None, None]:
    """The groups of one parameter and the dead ones among them, where a group has weights of one parameter alone."""
    if not isinstance(partition, Blocks):
        return None, None
    dead = partition.dead(alive.float())
    counts = total(torch.stack([torch.ones_like(dead).sum(), dead.sum()]), sharding(p))
    return int(counts[0]), int(counts[1])


def in_places(partition: Partition | None, weights: Iterable[Tensor]) -> tuple[Place, ...]:
    """The groups that have weights in several parameters, by place."""
    if not isinstance(partition, UnitPartition):
        return ()
    dead = partition.dead(list(weights)).cpu()
    return tuple(
        Place(name, len(numbers), int(dead[list(numbers)].sum())) for name, numbers in partition.places.items()
    )
