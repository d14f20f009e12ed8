"""What workers hand over when the GPU decodes: JPEG files as they are, and what is to be cut out of each.

What GPUs do not read (other formats, progressive files), and what is very large, comes as pixels that are cut already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from softprune.data.augment import Cut
from softprune.data.pictures import Pictures
from softprune.data.resample import Plan
from softprune.errors import DataError

LARGEST = 1 << 24
"""Pixels of a picture that the GPU decodes."""

MOST = 4 * LARGEST
"""Pixels that it decodes before it cuts them."""


class Part(NamedTuple):
    """Pictures that are decoded together. A length is that of a file, 0 where a picture comes as pixels; a size is
    height and width."""

    lengths: list[int]
    sizes: list[tuple[int, int]]
    plan: Plan


@dataclass(frozen=True)
class Encoded:
    """A batch. Other processes hand over few tensors only: each costs a connection."""

    epoch: int
    indices: list[int]
    labels: list[int]
    files: Tensor | None  # bytes, one file after the other
    pixels: Tensor | None  # M × size × size × 3
    parts: list[Part]
    problem: str

    def pin_memory(self) -> Encoded:
        """What a DataLoader's thread calls, so that the thread that decodes copies nothing on the host."""
        files, pixels = (None if t is None else t.pin_memory() for t in (self.files, self.pixels))
        return replace(self, files=files, pixels=pixels)


class Encoding(Dataset[Encoded]):
    """(epoch, indices) -> files. A problem is returned as text: a worker would add its traceback to an exception."""

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures

    def __getitem__(self, key: tuple[int, list[int]]) -> Encoded:
        return self.encode(*key)

    def encode(self, epoch: int, indices: list[int], refused: Collection[int] = ()) -> Encoded:
        """``refused``: pictures that the GPU could not decode, though they seem usual."""
        size = self.pictures.size
        files: list[bytes] = []
        pixels: list[Tensor] = []
        shown: list[tuple[int, int, Cut]] = []
        labels = self.pictures.listing.labels[indices].tolist()
        try:
            for i in indices:
                photo = self.pictures.photo(epoch, i)
                if photo.baseline and photo.width * photo.height <= LARGEST and i not in refused:
                    files.append(photo.content)
                    shown.append((photo.width, photo.height, photo.cut))
                else:
                    files.append(b"")
                    pixels.append(photo.pixels())
                    shown.append((size, size, Cut((0, 0, size, size))))
        except DataError as error:
            return Encoded(epoch, indices, labels, None, None, [], str(error))
        joined = bytearray().join(files)
        lengths = [len(file) for file in files]
        return Encoded(
            epoch,
            indices,
            labels,
            torch.frombuffer(joined, dtype=torch.uint8) if joined else None,
            torch.stack(pixels) if pixels else None,
            [_part(lengths[a:b], shown[a:b], size) for a, b in _parts([w * h for w, h, _ in shown], MOST)],
            "",
        )


def _part(lengths: list[int], shown: Sequence[tuple[int, int, Cut]], size: int) -> Part:
    return Part(lengths, [(height, width) for width, height, _ in shown], Plan.of(shown, size))


def _parts(pixels: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Where to cut, so that each part has at most ``most`` pixels, or one picture that has more.

    >>> list(_parts([100, 50, 50, 900, 1], 100))
    [(0, 1), (1, 3), (3, 4), (4, 5)]
    """
    begin, total = 0, 0
    for i, number in enumerate(pixels):
        if i > begin and total + number > most:
            yield begin, i
            begin, total = i, 0
        total += number
    if pixels:
        yield begin, len(pixels)
