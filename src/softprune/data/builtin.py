"""Images that need no files: scikit-learn's digits, and synthetic ones."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from softprune.data.augment import Shift
from softprune.data.order import generator
from softprune.data.split import Dataset
from softprune.data.tensors import numbered, pair
from softprune.errors import ConfigError, needs


def digits() -> Dataset:
    """1,797 images of 8 × 8 pixels: three quarters of each class to train, one quarter to validate."""
    datasets = needs("sklearn.datasets", "scikit-learn", "digits()")
    selection = needs("sklearn.model_selection", "scikit-learn", "digits()")
    source = datasets.load_digits()
    images = torch.tensor(source.images, dtype=torch.uint8).unsqueeze(1)  # 0 ... 16
    labels = torch.tensor(source.target, dtype=torch.int64)
    rows = selection.train_test_split(range(len(labels)), test_size=0.25, random_state=0, stratify=source.target)
    train, val = ((images[at], labels[at]) for at in rows)
    return Dataset(*pair(train, val, Shift(pixels=1)), classes=numbered(10), shape=(1, 8, 8))


def synthetic(
    classes: int = 10, shape: tuple[int, int, int] = (3, 32, 32), images: int = 256, seed: int = 0
) -> Dataset:
    """A smooth pattern for each class, and noise of half its size: a network learns it in a few steps.

    Args:
        classes: the number of patterns.
        shape: C, H, W.
        images: how many to train with; a quarter as many validate.
        seed: what patterns and noise depend on.
    """
    if classes < 1 or images < 1 or len(shape) != 3 or min(shape) < 1:
        raise ConfigError(
            "`synthetic(...)` must be given at least one class, one image and a shape (C, H, W). "
            f"Got classes={classes}, images={images}, shape={shape}."
        )
    patterns = torch.randn(classes, shape[0], 4, 4, generator=generator("patterns", seed))
    train = _drawn(patterns, shape, images, generator("train", seed))
    val = _drawn(patterns, shape, max(1, images // 4), generator("val", seed))
    return Dataset(*pair(train, val, None), classes=numbered(classes), shape=shape)


def _drawn(patterns: Tensor, shape: tuple[int, int, int], count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.arange(count) % len(patterns)
    images = torch.empty(count, *shape, dtype=torch.uint8)
    for start in range(0, count, 64):  # in parts: the floats are four times as large
        coarse = patterns[labels[start : start + 64]]
        smooth = functional.interpolate(coarse, size=shape[1:], mode="bilinear", align_corners=False)
        noise = torch.randn(smooth.shape, generator=draw)
        images[start : start + 64] = (128 + 40 * smooth + 20 * noise).clamp_(0, 255).to(torch.uint8)
    return images, labels
