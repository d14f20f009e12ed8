"""MNIST, Fashion-MNIST and their kin: IDX files.

A file is two zero bytes, the type (8: unsigned bytes), the number of dimensions, each dimension as a big-endian
32-bit integer, and the bytes.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from softprune.data.augment import Shift
from softprune.data.listing import existing
from softprune.data.split import Dataset
from softprune.data.tensors import numbered, pair, shape_of
from softprune.errors import DataError


def idx(path: str | os.PathLike[str]) -> Dataset:
    """MNIST's format: train-images-idx3-ubyte, train-labels-idx1-ubyte and the two files of t10k.

    Args:
        path: the folder of the four files, which may be compressed (.gz).
    """
    folder = existing(path)
    train, val = (_images_and_labels(folder, part) for part in ("train", "t10k"))
    if train[0].shape[1:] != val[0].shape[1:]:
        raise DataError(f"The training and test images in {folder} differ in size.")
    classes = int(train[1].max()) + 1
    if (most := int(val[1].max())) >= classes:
        raise DataError(f"The test labels in {folder} have class {most}, which the training labels lack.")
    splits = pair(train, val, augment=Shift(pixels=2))
    return Dataset(*splits, classes=numbered(classes), shape=shape_of(train[0]))


def read(path: Path, dimensions: int) -> Tensor:
    """The array of one file."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"Cannot read {path}: {error}.") from error
    header = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, 8, dimensions)):
        raise DataError(
            f"{path} is not an IDX file of unsigned bytes in {dimensions} dimension{'s'[: dimensions > 1]}: it must "
            f"begin with {bytes((0, 0, 8, dimensions)).hex()}, and begins with {content[:4].hex() or 'nothing'}."
        )
    if len(content) < header:
        raise DataError(f"{path} is truncated: it ends within its header.")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) != header + math.prod(shape):
        problem = "is truncated" if len(content) < header + math.prod(shape) else "is too long"
        raise DataError(
            f"{path} {problem}: its header announces {' × '.join(map(str, shape))} = {math.prod(shape)} bytes, "
            f"and {len(content) - header} follow."
        )
    if not math.prod(shape):
        raise DataError(f"{path} is empty: its header announces {' × '.join(map(str, shape))} bytes.")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header).reshape(shape)


def _images_and_labels(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    image_file, label_file = _find(folder, f"{part}-images", 3), _find(folder, f"{part}-labels", 1)
    images, labels = read(image_file, 3), read(label_file, 1)
    if len(images) != len(labels):
        raise DataError(f"{image_file} has {len(images)} images, but {label_file} has {len(labels)} labels.")
    return images.unsqueeze(1), labels.long()


def _find(folder: Path, name: str, dimensions: int) -> Path:
    for dash in "-.":  # some archives write train-images.idx3-ubyte
        for end in ("", ".gz"):
            if (path := folder / f"{name}{dash}idx{dimensions}-ubyte{end}").is_file():
                return path
    raise DataError(f"{folder} has no {name}-idx{dimensions}-ubyte or {name}-idx{dimensions}-ubyte.gz.")
