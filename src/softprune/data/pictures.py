"""The large images of a split: which file, and which part of it in which epoch."""

from __future__ import annotations

import random
from dataclasses import dataclass

from softprune.data.decode import Photo
from softprune.data.listing import Listing


@dataclass(frozen=True)
class Pictures:
    """Cut to ``size`` × ``size`` pixels: at random to train, which depends on (seed, epoch, i) alone, or the centre."""

    listing: Listing
    size: int
    seed: int
    train: bool

    def photo(self, epoch: int, i: int) -> Photo:
        draw = random.Random(f"{self.seed} {epoch} {i}") if self.train else None
        return Photo(self.listing.paths[i], self.size, draw)
