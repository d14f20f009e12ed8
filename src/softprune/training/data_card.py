"""The data card of a run: its classes, and how its images become numbers; or which text it is.

A network is of little use without it. It stands in data.json, in the report and in the model file; a run is resumed
with the same data only, and evaluated on images of the same classes, normalised as those it was trained on.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Self, get_type_hints

import torch

from softprune.data import Dataset
from softprune.data.split import ImageSplit
from softprune.data.tensors import TensorSplit
from softprune.data.windows import TextSplit
from softprune.errors import ConfigError, listing
from softprune.recipes.config import fits
from softprune.training.files import read_object, readable


@dataclass(frozen=True)
class DataCard(ABC):
    """What is known of the data of a run."""

    @staticmethod
    def of(data: Dataset) -> DataCard:
        """The card of images, or of text."""
        return TextCard.of(data) if isinstance(data.train, TextSplit) else ImageCard.of(data)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None where there is none, as in runs of earlier versions."""
        if not path.exists():
            return None
        with readable(path):
            values, hints = read_object(path), get_type_hints(cls)
            if wrong := [name for name in hints if not fits(values.get(name), hints[name])] or values.keys() - hints:
                raise ConfigError(f"`{min(wrong)}` is missing, unknown or of the wrong type.")
            return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def resumed_with(self, other: Self, where: str) -> None:
        """Refuse to go on with other data than the run began with."""
        if difference := self.difference(other):
            raise ConfigError(
                f"{where} is not what the run began with: it had {difference}. Put the data back as they were, or "
                "begin another run."
            )

    def difference(self, other: Self) -> str:
        """What was, and what is now; empty if all is the same."""
        for same, what, before, now in self.compared(other):
            if not same:
                return f"{what} {before}, and has {now}"
        return ""

    @abstractmethod
    def compared(self, other: Self) -> Iterator[tuple[bool, str, Any, Any]]:
        """Whether it is the same, what it is, and both, one thing after another."""

    @abstractmethod
    def evaluated_on(self, data: Dataset, where: str) -> Dataset:
        """``data`` as this network is to see it."""

    @abstractmethod
    def remark(self) -> str | None:
        """What the user should know before training begins."""


@dataclass(frozen=True)
class ImageCard(DataCard):
    """A pixel x of channel c is given to the network as (x − mean[c]) / std[c]. Small images are kept in memory as they
    are; others are cut to size."""

    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    images: int  # to train on
    mean: tuple[float, ...]
    std: tuple[float, ...]
    in_memory: bool

    def __post_init__(self) -> None:
        if not len(self.mean) == len(self.std) == self.shape[0]:
            raise ConfigError(f"`mean` and `std` must have a number for each of {self.shape[0]} channels.")

    @staticmethod
    def of(data: Dataset) -> ImageCard:
        assert isinstance(data.train, ImageSplit)
        mean, std = (tuple(moment.tolist()) for moment in (data.train.mean, data.train.std))
        channels, rows, columns = data.shape
        in_memory = isinstance(data.train, TensorSplit)
        return ImageCard(data.classes, (channels, rows, columns), len(data.train), mean, std, in_memory)

    def compared(self, other: Self) -> Iterator[tuple[bool, str, Any, Any]]:
        moments = (*self.mean, *self.std), (*other.mean, *other.std)
        same_moments = len(moments[0]) == len(moments[1]) and all(map(_near, *moments))
        yield self.classes == other.classes, "classes", *_where_they_part(self.classes, other.classes)
        yield self.images == other.images, "images to train on", self.images, other.images
        yield self.shape == other.shape, "a shape of", self.shape, other.shape
        yield same_moments, "pixels with the moments", *moments

    def evaluated_on(self, data: Dataset, where: str) -> Dataset:
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

    def remark(self) -> str | None:
        return None if self.in_memory else f"Images are cut to {self.shape[2]} × {self.shape[1]} pixels."


@dataclass(frozen=True)
class TextCard(DataCard):
    """A token is a byte of the text, and the network reads ``context`` of them at once."""

    context: int
    windows: int  # to train on in an epoch
    train_bytes: int
    val_bytes: int
    sha256: str  # of the whole text

    @staticmethod
    def of(data: Dataset) -> TextCard:
        train, val = data.train, data.val
        assert isinstance(train, TextSplit)
        assert isinstance(val, TextSplit)
        digest = hashlib.sha256(train.text.numpy().tobytes())
        digest.update(val.text.numpy().tobytes())
        return TextCard(train.context, len(train), len(train.text), len(val.text), digest.hexdigest())

    def compared(self, other: Self) -> Iterator[tuple[bool, str, Any, Any]]:
        yield self.train_bytes == other.train_bytes, "bytes to train on", self.train_bytes, other.train_bytes
        yield self.sha256 == other.sha256, "the sha256 sum", self.sha256, other.sha256

    def evaluated_on(self, data: Dataset, where: str) -> Dataset:
        """Every text will do: all have the same tokens, and the network says how long a window is."""
        return data

    def remark(self) -> str | None:
        return (
            f"The text has {self.train_bytes:,} bytes to train on and {self.val_bytes:,} to validate with. An epoch is "
            f"{self.windows:,} windows of {self.context} bytes."
        )


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)


def _where_they_part(mine: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, str]:
    """Two lists of classes, from the first that differs."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(mine, theirs, strict=False)))
    return listing(mine[same:], most=8) or "no more", listing(theirs[same:], most=8) or "no more"
