"""Class folders of images: small ones are kept in memory, large ones are read when they are needed."""

from __future__ import annotations

import multiprocessing
import os

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from softprune.data.augment import Shift
from softprune.data.decode import measure, whole
from softprune.data.files import FileSplit
from softprune.data.listing import Paths, existing, listings
from softprune.data.split import Dataset
from softprune.data.tensors import pair, shape_of
from softprune.errors import ConfigError, DataError, needs

SMALL = 64
"""Images of at most this many pixels a side are kept in memory."""


def folder(path: str | os.PathLike[str], size: int | None = None, on_gpu: bool | None = None) -> Dataset:
    """Class folders: ``path``/train/CLASS/ and ``path``/val/CLASS/ (or test/), and Tiny-ImageNet as it is unpacked.

    Small images (at most 64 pixels a side: CIFAR, Tiny-ImageNet) are decoded now, kept on the device and shifted by up
    to 4 pixels there; images in colour from 28 pixels on are also mirrored. They must all have one size. Large images
    are read when they are needed: random resized crop and mirror to train, resize and centre crop to evaluate.

    Args:
        path: the folder; ``~`` is the home folder.
        size: the side of the crops, 224 when None. If small images have another size than this one, or several sizes,
            they are cropped as large images are.
        on_gpu: whether the GPU that trains decodes large images; None: if it can, and the CPU has few cores.
    """
    if size is not None and size < 1:
        raise ConfigError(f"`folder(size=...)` must be >= 1. Got {size}.")
    needs("PIL.Image", "Pillow", "folder()")
    train, val, classes = listings(existing(path))
    first = measure(train.paths[0])
    if max(first) <= SMALL and (size is None or first == (size, size)):
        try:
            pixels = [_decoded(listing.paths, *first) for listing in (train, val)]
            return _in_memory((pixels[0], train.labels), (pixels[1], val.labels), classes)
        except OddSizeError:  # crops of 224 pixels would be 50 times the work, and nobody asked for them
            if size is None:
                raise
    size = size or 224
    return Dataset(FileSplit(train, size, on_gpu), FileSplit(val, size, on_gpu), classes=classes, shape=(3, size, size))


class OddSizeError(DataError):
    """A small image has another size than the first."""


def _in_memory(train: tuple[Tensor, Tensor], val: tuple[Tensor, Tensor], classes: tuple[str, ...]) -> Dataset:
    shape = shape_of(train[0])
    side = min(shape[1:])
    colour = bool((train[0][:, 1:] != train[0][:, :1]).any())
    augment = Shift(4, flip=colour) if side >= 28 else Shift(max(1, side // 8))
    return Dataset(*pair(train, val, augment), classes=classes, shape=shape)


def _decoded(paths: Paths, width: int, height: int) -> Tensor:
    """All images as N × 3 × H × W."""
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
        if problem is not None:
            raise problem
        images[part.start : part.stop] = pixels.permute(0, 3, 1, 2)
    return images


class _Whole(TorchDataset[tuple[Tensor, Exception | None]]):
    """A range of indices -> images as bytes, and what went wrong.

    An exception is returned, not raised: a worker would add its traceback to the message.
    """

    def __init__(self, paths: Paths, width: int, height: int) -> None:
        self.paths, self.width, self.height = paths, width, height

    def __getitem__(self, part: range) -> tuple[Tensor, Exception | None]:
        images = torch.empty(len(part), self.height, self.width, 3, dtype=torch.uint8)
        try:
            for n, i in enumerate(part):
                pixels = whole(self.paths[i])
                if pixels.shape != images.shape[1:]:
                    raise OddSizeError(self._sentence(self.paths[i], *pixels.shape[:2]))
                images[n] = pixels
        except DataError as error:
            return images, error
        return images, None

    def _sentence(self, path: str, height: int, width: int) -> str:
        return (
            f"{path} has {width} × {height} pixels, the first training image {self.width} × {self.height}. Small "
            "images must all have one size. Remove or resize those that differ, or choose the size of crops for all "
            "images: `folder(size=...)`, or the setting `image_size=...`."
        )


def _workers(images: int) -> int:
    """How many workers decode: none for few images, or where a new process would run the user's script again."""
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return min(len(os.sched_getaffinity(0)), images // 2048) if method == "fork" else 0
