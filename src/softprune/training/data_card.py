"""The data card of a run: its classes, and how its images become numbers.

A network is of little use without it. It stands in data.json, in the report and in the model file; a run is resumed
with the same data only, and evaluated on images of the same classes, normalised as those it was trained on.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Self, get_type_hints

import torch

from softprune.data import Dataset
from softprune.data.tensors import TensorSplit
from softprune.errors import ConfigError, listing
from softprune.recipes.config import fits
from softprune.training.files import read_object, readable


@dataclass(frozen=True)
class DataCard:
    """A pixel x of channel c is given to the network as (x − mean[c]) / std[c]. Small images are kept in memory as they
    are; others are cut to size."""

    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    images: int  # to train on
    mean: tuple[float, ...]
    std: tuple[float, ...]
    in_memory: bool

    @classmethod
    def of(cls, data: Dataset) -> Self:
        mean, std = (tuple(moment.tolist()) for moment in (data.train.mean, data.train.std))
        in_memory = isinstance(data.train, TensorSplit)
        return cls(data.classes, data.shape, len(data.train), mean, std, in_memory)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None where there is none, as in runs of earlier versions."""
        if not path.exists():
            return None
        with readable(path):
            values, hints = read_object(path), get_type_hints(cls)
            if wrong := [name for name in hints if not fits(values.get(name), hints[name])] or values.keys() - hints:
                raise ConfigError(f"`{min(wrong)}` is missing, unknown or of the wrong type.")
            restored: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
            moments = {name: tuple(map(float, restored[name])) for name in ("mean", "std")}
            card = cls(**restored | moments)
            if not len(card.mean) == len(card.std) == card.shape[0]:
                raise ConfigError(f"`mean` and `std` must have a number for each of {card.shape[0]} channels.")
            return card

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def resumed_with(self, other: DataCard, where: str) -> None:
        """Refuse to go on with other data than the run began with."""
        moments = (*self.mean, *self.std), (*other.mean, *other.std)
        same_moments = len(moments[0]) == len(moments[1]) and all(map(_near, *moments))
        for same, what, before, now in (
            (self.classes == other.classes, "classes", *_where_they_part(self.classes, other.classes)),
            (self.images == other.images, "images to train on", self.images, other.images),
            (self.shape == other.shape, "a shape of", self.shape, other.shape),
            (same_moments, "pixels with the moments", *moments),
        ):
            if not same:
                raise ConfigError(
                    f"{where} is not what the run began with: it had {what} {before}, and has {now}. Put the data back "
                    "as they were, or begin another run."
                )

    def evaluated_on(self, data: Dataset, where: str) -> Dataset:
        """``data`` as this network is to see it."""
        if data.classes != self.classes:
            mine, theirs = _where_they_part(self.classes, data.classes)
            raise ConfigError(
                f"The network was trained on the classes {mine}, and {where} has {theirs}. Choose data with the same "
                "classes, in folders of the same names."
            )
        if isinstance(data.val, TensorSplit) != self.in_memory:
            kinds = ["cut to size from images of any size", f"kept as they are, at {self.shape[2]} × {self.shape[1]}"]
            raise ConfigError(
                f"The network was trained on images {kinds[self.in_memory]}, and those of {where} would be "
                f"{kinds[not self.in_memory].split(',')[0]}. Choose images of the same kind, or another `image_size`."
            )
        if not isinstance(data.val, TensorSplit):
            return data
        if data.shape != self.shape:
            sizes = [" × ".join(map(str, shape)) for shape in (self.shape, data.shape)]
            raise ConfigError(
                f"The network was trained on images of {sizes[0]} numbers, and those of {where} have {sizes[1]}. "
                "Choose images of the same size."
            )
        return replace(data, val=data.val.normalised(torch.tensor(self.mean), torch.tensor(self.std)))


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)


def _where_they_part(mine: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, str]:
    """Two lists of classes, from the first that differs."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(mine, theirs, strict=False)))
    return listing(mine[same:], most=8) or "no more", listing(theirs[same:], most=8) or "no more"
