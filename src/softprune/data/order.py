"""Which images are in which batch of which epoch, and which of them a process gets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from softprune.errors import ConfigError

Key = tuple[int, Tensor]
"""The epoch, and the indices of a batch's images."""


def generator(*words: int | str) -> torch.Generator:
    """Random numbers that depend on the words alone."""
    digest = hashlib.blake2b(repr(words).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


@dataclass(frozen=True)
class Order:
    """A permutation of the images for each (seed, epoch), cut into batches, each batch cut into ``world`` parts.

    ``batch`` counts the images of all processes together. Training drops the last batch if it is incomplete;
    evaluation goes through the images once, in order, and cuts the last batch as evenly as it can: a process may get
    an empty part of it, and every process gets the same number of batches.

    >>> [indices.tolist() for _, indices in Order(images=7, batch=4, train=False, rank=1, world=2).batches()]
    [[2, 3], [5, 6]]
    """

    images: int
    batch: int
    train: bool
    seed: int = 0
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise ConfigError(f"`rank` must be >= 0 and < world = {self.world}. Got {self.rank}.")
        if self.batch < 1:
            raise ConfigError(f"`batch` must be >= 1. Got {self.batch}.")
        if self.batch % self.world:
            raise ConfigError(
                f"`batch` counts the images of all processes together and must be divisible by their number. "
                f"Got {self.batch} images for {self.world} processes."
            )
        if self.train and self.images < self.batch:
            raise ConfigError(
                f"`batch` must be at most the number of training images. Got {self.batch} for {self.images} images."
            )

    def __len__(self) -> int:
        """Batches an epoch."""
        return self.images // self.batch if self.train else -(-self.images // self.batch)

    def epoch(self, epoch: int) -> Tensor:
        """The images in the order of this epoch."""
        if not self.train:
            return torch.arange(self.images)
        return torch.randperm(self.images, generator=generator("order", self.seed, epoch))

    def batches(self, epoch: int = 0, batch: int = 0) -> Iterator[Key]:
        """This process's parts from there on: epoch after epoch in training, one pass in evaluation."""
        while True:
            order = self.epoch(epoch)
            for start in range(batch * self.batch, len(self) * self.batch, self.batch):
                together = order[start : start + self.batch]
                n = len(together)
                yield epoch, together[n * self.rank // self.world : n * (self.rank + 1) // self.world]
            if not self.train:
                return
            epoch, batch = epoch + 1, 0
