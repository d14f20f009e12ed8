"""Large images: read from their files by workers, normalised on the device.

Workers hand over bytes, a quarter of what floats would be.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from softprune.data.decode import crop
from softprune.data.listing import Listing
from softprune.data.order import Key, Order
from softprune.data.split import Batch, ImageSplit, Read
from softprune.errors import DataError

MEAN = 255 * torch.tensor([0.485, 0.456, 0.406])
STD = 255 * torch.tensor([0.229, 0.224, 0.225])


class FileSplit(ImageSplit):
    """Images of any size, cropped to ``size`` × ``size`` pixels in RGB and normalised by ImageNet's moments."""

    mean, std = MEAN, STD

    def __init__(self, listing: Listing, size: int) -> None:
        self.listing, self.size = listing, size

    def __len__(self) -> int:
        return len(self.listing.paths)

    def reader(self, order: Order, device: torch.device, workers: int) -> Read:
        """With ``workers`` = 0 this process reads the files. Batches for a GPU pass through pinned memory.

        Images have the memory format ``channels_last``, as in their files.
        """
        source = _Batches(self.listing, self.size, order.seed, order.train)
        pin = device.type == "cuda"

        def read(keys: Iterator[Key]) -> Iterator[Batch]:
            mean, std = (t.repeat(self.size).to(device) for t in (self.mean, self.std))
            batches = DataLoader(
                source,
                sampler=((epoch, indices.tolist()) for epoch, indices in keys),
                batch_size=None,
                num_workers=workers,
                pin_memory=pin,
                generator=torch.Generator(),  # or it would draw from the process's random state
            )
            for images, labels, problem in batches:
                if problem:
                    raise DataError(problem)
                rows = images.to(device, non_blocking=pin).flatten(2)  # a CPU has no fast loop over three channels
                pixels = rows.float().sub_(mean).div_(std).view(images.shape).permute(0, 3, 1, 2)
                yield pixels, labels.to(device, non_blocking=pin)

        return read


class _Batches(TorchDataset[tuple[Tensor, Tensor, str]]):
    """(epoch, indices) -> images as bytes, labels, and what went wrong.

    A problem is returned as text: a worker would add its traceback to the message of an exception.
    """

    def __init__(self, listing: Listing, size: int, seed: int, train: bool) -> None:
        self.listing, self.size, self.seed, self.train = listing, size, seed, train

    def __getitem__(self, key: tuple[int, list[int]]) -> tuple[Tensor, Tensor, str]:
        epoch, indices = key
        images = torch.empty(len(indices), self.size, self.size, 3, dtype=torch.uint8)
        problem = ""
        try:
            for out, i in zip(images, indices, strict=True):
                draw = random.Random(f"{self.seed} {epoch} {i}") if self.train else None
                out.copy_(crop(self.listing.paths[i], self.size, draw))
        except DataError as error:
            problem = str(error)
        return images, self.listing.labels[indices], problem
