"""Large images: read from their files by workers, decoded there or on the GPU, normalised on the device.

Workers hand over bytes: of the files, or of the pixels, a quarter of what floats would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from softprune.data import gpu
from softprune.data.decode import torchvision
from softprune.data.encoded import Encoding
from softprune.data.listing import Listing
from softprune.data.order import Key, Order
from softprune.data.pictures import Pictures
from softprune.data.split import Batch, ImageSplit, Read
from softprune.errors import ConfigError, DataError

MEAN = 255 * torch.tensor([0.485, 0.456, 0.406])
STD = 255 * torch.tensor([0.229, 0.224, 0.225])

T = TypeVar("T")


class FileSplit(ImageSplit):
    """Images of any size, cropped to ``size`` × ``size`` pixels in RGB and normalised by ImageNet's moments.

    Args:
        listing: the files.
        size: pixels a side.
        on_gpu: whether the GPU that needs the images decodes them; None: if it can.
    """

    mean, std = MEAN, STD

    def __init__(self, listing: Listing, size: int, on_gpu: bool | None = None) -> None:
        self.listing, self.size, self.on_gpu = listing, size, on_gpu

    def __len__(self) -> int:
        return len(self.listing.paths)

    def decoder(self, device: torch.device) -> str | None:
        on_gpu, paths = self._by_gpu(device), self.listing.paths
        if not any(paths[i].lower().endswith((".jpg", ".jpeg")) for i in range(len(paths))):
            return None
        if on_gpu:
            return "torchvision on the GPU"
        return "Pillow" if torchvision() is None else "torchvision on the CPU"

    def _by_gpu(self, device: torch.device) -> bool:
        if self.on_gpu is False:
            return False
        if (reason := gpu.unable(device)) is None:
            return True
        if self.on_gpu:
            raise ConfigError(
                f"Cannot decode images on the GPU. This is because {reason}. Write `decode=auto`, or install "
                "what is missing: `pip install 'softprune[vision]'`, on a machine with an NVIDIA GPU."
            )
        return False

    def reader(self, order: Order, device: torch.device, workers: int) -> Read:
        """With ``workers`` = 0 this process reads the files. What is for a GPU passes through pinned memory.

        Images have the memory format ``channels_last``, as in their files.
        """
        pictures = Pictures(self.listing, self.size, order.seed, order.train)
        if self._by_gpu(device):
            encoding = Encoding(pictures)
            decoder = gpu.Decoder(encoding, device, self.mean, self.std)
            return lambda keys: gpu.ahead(loaded(encoding, keys, workers, pin=True), decoder)
        pin = device.type == "cuda"

        def read(keys: Iterator[Key]) -> Iterator[Batch]:
            mean, std = (t.repeat(self.size).to(device) for t in (self.mean, self.std))
            for images, labels, problem in loaded(_Pixels(pictures), keys, workers, pin):
                if problem:
                    raise DataError(problem)
                rows = images.to(device, non_blocking=pin).flatten(2)  # a CPU has no fast loop over three channels
                pixels = rows.float().sub_(mean).div_(std).view(images.shape).permute(0, 3, 1, 2)
                yield pixels, labels.to(device, non_blocking=pin)

        return read


def loaded(source: TorchDataset[T], keys: Iterator[Key], workers: int, pin: bool = False) -> DataLoader[T]:
    """What the source has for each of the keys, one after the other."""
    return DataLoader(
        source,
        sampler=((epoch, indices.tolist()) for epoch, indices in keys),
        batch_size=None,
        num_workers=workers,
        pin_memory=pin,
        collate_fn=_as_it_is,
        generator=torch.Generator(),  # or it would draw from the process's random state
    )


def _as_it_is(batch: T) -> T:
    """Else torch would look for arrays in it, and make lists of tuples."""
    return batch


class _Pixels(TorchDataset[tuple[Tensor, Tensor, str]]):
    """(epoch, indices) -> images as bytes, labels, and what went wrong.

    A problem is returned as text: a worker would add its traceback to the message of an exception.
    """

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures

    def __getitem__(self, key: tuple[int, list[int]]) -> tuple[Tensor, Tensor, str]:
        epoch, indices = key
        size, problem = self.pictures.size, ""
        images = torch.empty(len(indices), size, size, 3, dtype=torch.uint8)
        try:
            for out, i in zip(images, indices, strict=True):
                out.copy_(self.pictures.photo(epoch, i).pixels())
        except DataError as error:
            problem = str(error)
        return images, self.pictures.listing.labels[indices], problem
