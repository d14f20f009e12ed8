"""Augmentation: shifts, crops, mirrors. The random numbers are arguments; nothing here draws any."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels of the image."""


@dataclass(frozen=True)
class Cut:
    """What is shown of a large image, at ``size`` × ``size`` pixels.

    A box of whole pixels is cut out and then resized; at the border of any other the pixels beside it count too.
    """

    box: Box
    mirrored: bool = False

    @property
    def whole(self) -> bool:
        return all(float(edge).is_integer() for edge in self.box)

    @classmethod
    def of(cls, width: int, height: int, size: int, draw: random.Random | None) -> Cut:
        """A random resized crop, perhaps mirrored, or the centre if ``draw`` is None."""
        if draw is None:
            return cls(centre_box(width, height, size))
        return cls(random_box(width, height, draw), draw.random() < 0.5)


@dataclass(frozen=True)
class Shift:
    """Pad with zeros, crop at random, perhaps mirror: a whole batch of small images at once, on its device.

    Args:
        pixels: the padding on each side, which is how far an image may move.
        flip: mirror half of the images.

    >>> Shift(1)(torch.tensor([[[[1, 2], [3, 4]]]]), torch.tensor([[0.0, 0.5, 0.0]]))
    tensor([[[[0, 0],
              [1, 2]]]])
    """

    pixels: int = 0
    flip: bool = False

    def __call__(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Shift each image.

        Args:
            images: N × C × H × W.
            numbers: N × 3, uniform on [0, 1): for the rows, the columns and the mirror.
        """
        n, channels, height, width = images.shape
        p, device = self.pixels, images.device
        offsets = (numbers[:, :2] * (2 * p + 1)).long().clamp_(max=2 * p)
        rows = torch.arange(height, device=device) + offsets[:, 0, None]
        columns = torch.arange(width, device=device).expand(n, width)
        if self.flip:
            columns = torch.where(numbers[:, 2, None] < 0.5, columns.flip(1), columns)
        columns = columns + offsets[:, 1, None]
        return functional.pad(images, (p, p, p, p))[
            torch.arange(n, device=device)[:, None, None, None],
            torch.arange(channels, device=device)[:, None, None],
            rows[:, None, :, None],
            columns[:, None, None, :],
        ]


def random_box(width: int, height: int, draw: random.Random) -> Box:
    """The random resized crop of ImageNet training.

    An area uniform on [0.08, 1] of the image's, a ratio log-uniform on [3/4, 4/3]; after ten boxes that do not fit,
    the largest centre crop whose ratio is allowed.
    """
    for _ in range(10):
        area = width * height * (0.08 + 0.92 * draw.random())
        ratio = math.exp(math.log(4 / 3) * (2 * draw.random() - 1))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(draw.random() * (width - w + 1)), int(draw.random() * (height - h + 1))
            return left, top, left + w, top + h
    w, h = min(width, max(1, round(height * 4 / 3))), min(height, max(1, round(width * 4 / 3)))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def centre_box(width: int, height: int, size: int) -> Box:
    """Resize the shorter side to size × 256/224, take the centre: as one box of the image to be resized to ``size``.

    >>> centre_box(512, 256, 224)
    (144.0, 16.0, 368.0, 240.0)
    """
    shorter = round(size * 256 / 224)
    w, h = (int(shorter * side / min(width, height)) for side in (width, height))  # as a resize would round
    left, top = round((w - size) / 2), round((h - size) / 2)
    return left * width / w, top * height / h, (left + size) * width / w, (top + size) * height / h
