"""Windows of a text, which is kept as bytes on the device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from softprune.data.order import Key, Order, generator
from softprune.data.split import Batch, Dataset, Read, Split
from softprune.data.tensors import upload
from softprune.errors import ConfigError, DataError

EPOCH = 6400
"""Windows to train with in an epoch, however long the text is: 100 steps of 64."""

MOST = 1024
"""Windows to validate with, at most."""


class TextSplit(Split):
    """Windows of ``context`` bytes, each with the bytes that follow: what a network reads, and what it is to predict.

    Training takes windows at random places, ``windows`` of them an epoch. Evaluation takes as many, spread evenly over
    the text.

    Args:
        text: its bytes, as uint8.
        context: bytes in a window.
        windows: how many.
    """

    unit = "windows"

    def __init__(self, text: Tensor, context: int, windows: int) -> None:
        self.text, self.context, self.windows = text, context, windows
        self._copies: dict[torch.device, Tensor] = {}

    def __len__(self) -> int:
        return self.windows

    def reader(self, order: Order, device: torch.device, workers: int) -> Read:
        """Needs no workers: a batch is one indexing operation on the device."""

        def read(keys: Iterator[Key]) -> Iterator[Batch]:
            if device not in self._copies:
                self._copies[device] = self.text.to(device)
            text, within = self._copies[device], torch.arange(self.context + 1, device=device)
            drawn, starts = -1, torch.empty(0)
            for epoch, indices in keys:
                if epoch != drawn:
                    drawn, starts = epoch, self._starts(order, epoch)
                windows = text[upload(starts[indices], device)[:, None] + within].long()
                yield windows[:, :-1], windows[:, 1:]

        return read

    def _starts(self, order: Order, epoch: int) -> Tensor:
        """Where each window of the epoch begins: the same on every device and in every process."""
        last = len(self.text) - self.context - 1
        if order.train:
            return torch.randint(last + 1, (self.windows,), generator=generator("windows", order.seed, epoch))
        return torch.arange(self.windows) * last // max(1, self.windows - 1)


def windowed(content: bytes, context: int, where: str, windows: int = EPOCH) -> Dataset:
    """A text to train and to validate with: the last tenth validates, in windows that do not overlap.

    Args:
        content: the text.
        context: bytes in a window.
        where: the text in words, for an error.
        windows: how many an epoch has.
    """
    if context < 1:
        raise ConfigError(f"`context` must be >= 1. Got {context}.")
    if len(content) < (least := 10 * (context + 1)):
        raise DataError(
            f"{where} has {len(content):,} bytes of text, and a tenth of them must fill a window of {context} bytes. "
            f"There must be at least {least:,}."
        )
    text = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    train, val = text.tensor_split([len(text) - len(text) // 10])
    splits = TextSplit(train, context, windows), TextSplit(val, context, min(MOST, (len(val) - 1) // context))
    return Dataset(*splits, classes=tuple(f"{byte:02x}" for byte in range(256)), shape=(context,))
