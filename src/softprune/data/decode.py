"""Image files -> pixels: decoded by Pillow, or by torchvision where it is installed, and resized by torch, which has a
fast path for bytes.

torchvision takes JPEG files of the usual kind, and makes the same pixels of them; all others are Pillow's to read.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from functools import cache
from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from softprune.data.augment import Box, Cut
from softprune.data.jpeg import header
from softprune.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

Result = TypeVar("Result")

GAP = 2.0
"""Very large images are first shrunk by averaging, if possible while decoding, to this multiple of the size."""


@cache
def torchvision() -> ModuleType | None:
    """``torchvision.io``, where it is installed and fits torch."""
    try:
        from torchvision import io
    except Exception:  # RuntimeError, where its operators do not fit
        return None
    return io if hasattr(io, "decode_jpeg") else None


def whole(path: str) -> Tensor:
    """All pixels, H × W × 3."""
    return _decode(path, read(path), lambda image: _pixels(_rgb(image)))


def measure(path: str) -> tuple[int, int]:
    """Width and height, from the file's header."""
    return _size(path, read(path))


class Photo:
    """A file that was read, and what is to be cut out of it: a random resized crop, perhaps mirrored, or the centre if
    ``draw`` is None.

    ``simple``: whether others than Pillow may decode it. They cannot read a JPEG at a half of its size or less, which
    Pillow does where the box is large enough. ``baseline``: whether a GPU may.
    """

    def __init__(self, path: str, size: int, draw: random.Random | None) -> None:
        self.path, self.size, self.content = path, size, read(path)
        jpeg = header(self.content)
        self.width, self.height = (jpeg.width, jpeg.height) if jpeg else _size(path, self.content)
        self.cut = Cut.of(self.width, self.height, size, draw)
        left, top, right, bottom = self.cut.box
        self.simple = jpeg is not None and jpeg.plain and max(right - left, bottom - top) < 2 * GAP * size
        self.baseline = self.simple and jpeg is not None and jpeg.baseline

    def pixels(self) -> Tensor:
        """size × size × 3."""
        if self.simple and (io := torchvision()) is not None:
            try:
                pixels = io.decode_jpeg(_bytes(self.content), io.ImageReadMode.RGB)
            except RuntimeError:  # damaged: Pillow reads what there is, or says what is wrong
                return self.by_pillow()
            return _cut(pixels.permute(1, 2, 0), self.cut, self.size)
        return self.by_pillow()

    def by_pillow(self) -> Tensor:
        """The same, of any format."""

        def work(image: Image.Image) -> Tensor:
            box = _draft(image, self.cut.box, self.size)
            return _mirrored(_resize(_rgb(image), box, self.size), self.cut)

        return _decode(self.path, self.content, work)


def read(path: str) -> bytes:
    """What is in the file."""
    try:
        if not os.path.isfile(path):  # opening a pipe would wait for somebody to write to it
            raise ValueError("it is not a file")
        with open(path, "rb") as file:
            return file.read()
    except Exception as error:
        raise _unreadable(path, error) from error


def _decode(path: str, content: bytes, work: Callable[[Image.Image], Result]) -> Result:
    from PIL import Image

    try:
        with Image.open(BytesIO(content)) as image:
            return work(image)
    except Exception as error:  # Pillow raises OSError, SyntaxError, ValueError, struct.error and more
        raise _unreadable(path, error) from error


def _size(path: str, content: bytes) -> tuple[int, int]:
    return _decode(path, content, lambda image: image.size)


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _pixels(image: Image.Image) -> Tensor:
    return _bytes(image.tobytes()).view(image.height, image.width, 3)


def _cut(pixels: Tensor, cut: Cut, size: int) -> Tensor:
    """Of pixels H × W × 3."""
    if cut.whole:
        left, top, right, bottom = map(int, cut.box)
        resized = _interpolated(pixels[top:bottom, left:right], size)
    else:
        from PIL import Image

        resized = _resize(Image.fromarray(pixels.numpy()), cut.box, size)
    return _mirrored(resized, cut)


def _mirrored(pixels: Tensor, cut: Cut) -> Tensor:
    return pixels.flip(1) if cut.mirrored else pixels


def _resize(image: Image.Image, box: Box, size: int) -> Tensor:
    """What is inside the box, at ``size`` × ``size`` pixels.

    Torch is three times as fast as Pillow and differs by at most 1 of 255, but takes boxes of whole pixels only.
    """
    if Cut(box).whole:
        return _interpolated(_pixels(image.crop(box)), size)
    from PIL.Image import Resampling

    return _pixels(image.resize((size, size), Resampling.BILINEAR, box=box, reducing_gap=GAP))


def _interpolated(pixels: Tensor, size: int) -> Tensor:
    resized = interpolate(pixels.unsqueeze(0).permute(0, 3, 1, 2), (size, size), mode="bilinear", antialias=True)
    return resized.permute(0, 2, 3, 1).squeeze(0)


def _unreadable(path: str, error: Exception) -> DataError:
    reason = str(error).rstrip(".")
    if "cannot identify" in reason:
        reason = "it is not an image, or it is damaged"
    return DataError(f"Cannot read the image {path}: {reason}.")


def _rgb(image: Image.Image) -> Image.Image:
    """Converted to RGB. Orientation tags are ignored, except by Pillow's reader of TIFF files."""
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"its pixels have more than 8 bits (mode {image.mode}); convert it to 8 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")


def _draft(image: Image.Image, box: Box, size: int) -> Box:
    """Decode a JPEG at a half, a quarter or an eighth of its size, if the box stays large enough; the box there."""
    left, top, right, bottom = box
    factor = min(right - left, bottom - top) / (GAP * size)
    if factor < 2:
        return box
    width, height = image.size
    drafted = image.draft("RGB", (math.ceil(width / factor), math.ceil(height / factor)))
    if drafted is None:
        return box
    scale = drafted[1][2] / width
    return left * scale, top * scale, right * scale, bottom * scale
