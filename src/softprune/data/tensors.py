"""Small images: all of them in one uint8 tensor on the device, augmented there."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from softprune.data.augment import Shift
from softprune.data.order import Key, Order, generator
from softprune.data.split import Batch, ImageSplit, Read


def moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel, in units of the pixels; the deviation of a constant channel counts as 1."""
    total = torch.zeros(2, images.shape[1], dtype=torch.float64)
    for start in range(0, len(images), 1024):
        pixels = images[start : start + 1024].double()
        total += torch.stack([pixels.sum((0, 2, 3)), pixels.square().sum((0, 2, 3))])
    mean, square = total / (images.numel() / images.shape[1])
    std = (square - mean.square()).clamp(min=0).sqrt()
    return mean.float(), torch.where(std > 1e-6 * mean.abs(), std, 1.0).float()


class TensorSplit(ImageSplit):
    """``images`` as N × C × H × W; ``mean`` and ``std`` of each channel in the same units as the pixels."""

    def __init__(self, images: Tensor, labels: Tensor, mean: Tensor, std: Tensor, augment: Shift | None = None) -> None:
        self.images, self.labels, self.mean, self.std = images, labels, mean, std
        self.augment = augment
        self._copies: dict[torch.device, tuple[Tensor, Tensor, Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.images)

    def normalised(self, mean: Tensor, std: Tensor) -> TensorSplit:
        """The same images, normalised by other moments."""
        return TensorSplit(self.images, self.labels, mean, std, self.augment)

    def reader(self, order: Order, device: torch.device, workers: int) -> Read:
        """Needs no workers: a batch is one indexing operation on the device."""
        augment = self.augment if order.train else None

        def read(keys: Iterator[Key]) -> Iterator[Batch]:
            images, labels, mean, std = self._on(device)
            drawn, numbers = -1, torch.empty(0)
            for epoch, indices in keys:
                at = upload(indices, device)
                batch = images[at]
                if augment is not None:
                    if epoch != drawn:
                        drawn, numbers = epoch, upload(self._numbers(order.seed, epoch), device)
                    batch = augment(batch, numbers[at])
                yield batch.float().sub_(mean).div_(std), labels[at]

        return read

    def _numbers(self, seed: int, epoch: int) -> Tensor:
        """Three random numbers for each image: drawn on the CPU, so that every device and process draws the same."""
        return torch.rand(len(self), 3, generator=generator("augment", seed, epoch))

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if device not in self._copies:
            here = self.images, self.labels, self.mean[:, None, None], self.std[:, None, None]
            self._copies[device] = tuple(t.to(device) for t in here)  # type: ignore[assignment]
        return self._copies[device]


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """To the device, without a host sync."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def pair(
    train: tuple[Tensor, Tensor], val: tuple[Tensor, Tensor], augment: Shift | None
) -> tuple[TensorSplit, TensorSplit]:
    """Training and validation split, both normalised by the moments of the training images."""
    mean, std = moments(train[0])
    return TensorSplit(*train, mean, std, augment), TensorSplit(*val, mean, std, augment)


def numbered(count: int) -> tuple[str, ...]:
    """Names for classes that have none."""
    return tuple(str(i) for i in range(count))


def shape_of(images: Tensor) -> tuple[int, int, int]:
    channels, height, width = images.shape[1:]
    return channels, height, width
