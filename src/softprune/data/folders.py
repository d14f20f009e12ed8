"""Class folders of images: small ones are kept in memory, large ones are read when they are needed."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from softprune.data.augment import Shift
from softprune.data.decode import measure, whole
from softprune.data.files import FileSplit
from softprune.data.listing import Paths, listings
from softprune.data.split import Dataset
from softprune.data.tensors import pair, shape_of
from softprune.errors import ConfigError, DataError, needs

SMALL = 64
"""Images of at most so many pixels a side are kept in memory, if all have the same size."""


def folder(path: str | os.PathLike[str], size: int | None = None) -> Dataset:
    """``path``/train/CLASS/ and ``path``/val/CLASS/ (or test/), and Tiny-ImageNet as it is unpacked.

    Images of one size of at most 64 pixels (CIFAR, Tiny-ImageNet) are decoded now, kept on the device and shifted by
    up to 4 pixels there; images in colour from 28 pixels on are also mirrored. Other images are read from their files:
    random resized crop and mirror to train, resize and centre crop to evaluate, at ``size`` pixels (224). Small images
    are treated as others are if ``size`` is not theirs.
    """
    if size is not None and size < 1:
        raise ConfigError(f"`folder(size=...)` must be >= 1. Got {size}.")
    needs("PIL.Image", "Pillow", "folder()")
    train, val, classes = listings(Path(path))
    first = measure(train.paths[0])
    if max(first) <= SMALL and (size is None or first == (size, size)):
        images = [_decoded(listing.paths, *first) for listing in (train, val)]
        if images[0] is not None and images[1] is not None:
            return _in_memory((images[0], train.labels), (images[1], val.labels), classes)
    size = size or 224
    return Dataset(FileSplit(train, size), FileSplit(val, size), classes=classes, shape=(3, size, size))


def _in_memory(train: tuple[Tensor, Tensor], val: tuple[Tensor, Tensor], classes: tuple[str, ...]) -> Dataset:
    shape = shape_of(train[0])
    side = min(shape[1:])
    colour = bool((train[0][:, 1:] != train[0][:, :1]).any())
    augment = Shift(4, flip=colour) if side >= 28 else Shift(max(1, side // 8))
    return Dataset(*pair(train, val, augment), classes=classes, shape=shape)


def _decoded(paths: Paths, width: int, height: int) -> Tensor | None:
    """All images as N × 3 × H × W, or nothing if one has another size."""
    images = torch.empty(len(paths), 3, height, width, dtype=torch.uint8)
    parts = [range(start, min(start + 512, len(paths))) for start in range(0, len(paths), 512)]
    batches = DataLoader(
        _Whole(paths, width, height),
        sampler=parts,
        batch_size=None,
        num_workers=_workers(len(paths)),
        generator=torch.Generator(),
    )
    for part, (pixels, problem) in zip(parts, batches, strict=True):
        if problem:
            raise DataError(problem)
        if len(pixels) < len(part):
            return None
        images[part.start : part.stop] = pixels.permute(0, 3, 1, 2)
    return images


class _Whole(TorchDataset[tuple[Tensor, str]]):
    """A range of indices -> images as bytes, fewer if one has another size, and what went wrong."""

    def __init__(self, paths: Paths, width: int, height: int) -> None:
        self.paths, self.width, self.height = paths, width, height

    def __getitem__(self, part: range) -> tuple[Tensor, str]:
        images = torch.empty(len(part), self.height, self.width, 3, dtype=torch.uint8)
        try:
            for n, i in enumerate(part):
                pixels = whole(self.paths[i])
                if pixels.shape != images.shape[1:]:
                    return images[:n], ""
                images[n] = pixels
        except DataError as error:
            return images[:0], str(error)
        return images, ""


def _workers(images: int) -> int:
    """To decode with: none where a new process would run the user's script again, or where they would not pay."""
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return min(len(os.sched_getaffinity(0)), images // 2048) if method == "fork" else 0
