"""Dataset: a training and a validation split, each with loaders that resume."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from softprune.data.order import Key, Order
from softprune.errors import ConfigError

Batch = tuple[Tensor, Tensor]
"""What a network gets and what it is to say, both on the loader's device: images (normalised floats, N × C × H × W) and
labels (int64), or tokens (int64, N × T) and those that follow each of them."""

Read = Callable[[Iterator[Key]], Iterator[Batch]]


@dataclass(frozen=True)
class Dataset:
    """Images or text to train and to validate with; logit i stands for ``classes[i]``.

    ``shape`` is that of one input as the network sees it: C, H, W of an image, the length of a window of text.
    """

    train: Split
    val: Split
    classes: tuple[str, ...]
    shape: tuple[int, ...]


class Split(ABC):
    """Images with labels, or windows of text. ``train=True`` shuffles and augments, whichever split it is."""

    unit: ClassVar[str] = "images"
    """What is counted."""

    @abstractmethod
    def __len__(self) -> int:
        """Images, or windows."""

    def decoder(self, device: torch.device) -> str | None:
        """Who decodes JPEG files for this device, in words; None if there are none."""
        return None

    @abstractmethod
    def reader(self, order: Order, device: torch.device, workers: int) -> Read:
        """A function that turns (epoch, indices) into batches."""

    def loader(
        self,
        *,
        batch: int,
        train: bool,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        device: torch.device | str = "cpu",
        workers: int = 0,
    ) -> Loader:
        """Batches for one process.

        Args:
            batch: images, or windows, in a batch, of all processes together.
            train: shuffle and augment; else each image once, in order.
            seed: what order and augmentation depend on.
            rank: which process this is.
            world: how many processes there are.
            device: where the batches are needed.
            workers: processes that read files; what is in memory needs none.
        """
        if workers < 0:
            raise ConfigError(f"`workers` must be >= 0. Got {workers}.")
        order = Order(images=len(self), batch=batch, train=train, seed=seed, rank=rank, world=world)
        return Loader(order, self.reader(order, torch.device(device), workers))


class ImageSplit(Split):
    """Images with labels."""

    mean: Tensor
    std: Tensor
    """Of each channel, in the units of the pixels: what images are normalised by."""


class Loader:
    """Iterating gives the rest of the current epoch; then the epoch advances.

    Evaluation starts over each time: a pass that was interrupted does not shorten the next one. The state counts
    the batches that the caller was given, not those that workers have prefetched. Workers prefetch across the end of an
    epoch, so that nothing waits there; they end with the loader.
    """

    def __init__(self, order: Order, read: Read) -> None:
        self.order = order
        self._read = read
        self._stream: Iterator[Batch] | None = None
        self._epoch = 0
        self._batch = 0

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.order)

    def __iter__(self) -> Iterator[Batch]:
        if not self.order.train:
            self._batch, self._stream = 0, None
        epoch = self._epoch
        while self._epoch == epoch:
            yield self._next()

    def state_dict(self) -> dict[str, int]:
        """The next batch is batch ``batch`` of epoch ``epoch``."""
        return {"epoch": self._epoch, "batch": self._batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        epoch, batch = state.get("epoch"), state.get("batch")
        if not (isinstance(epoch, int) and isinstance(batch, int) and epoch >= 0 and 0 <= batch <= len(self)):
            raise ConfigError(
                f"The state of a loader with {len(self)} batches an epoch must be "
                f"{{'epoch': 0 or more, 'batch': 0 ... {len(self)}}}. Got {dict(state)}. "
                "Resume with the data and the batch size that the run started with."
            )
        self._epoch, self._batch = (epoch, batch) if batch < len(self) else (epoch + 1, 0)
        self._stream = None

    def _next(self) -> Batch:
        if self._stream is None:
            self._stream = self._read(self.order.batches(self._epoch, self._batch))
        try:
            images, labels = next(self._stream)
        except BaseException:  # an unreadable file, Ctrl-C: a generator that raised is over
            self._stream = None
            raise
        self._batch += 1
        if self._batch == len(self):
            self._epoch, self._batch = self._epoch + 1, 0
            if not self.order.train:
                self._stream = None
        return images, labels
