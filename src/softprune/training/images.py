"""Data for a run: from a setting to batches, the whole run as one resumable stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule
from torch import Tensor

from softprune import data
from softprune.data import Dataset, Loader
from softprune.recipes.config import Config

SMALL = {  # synthetic images for networks that look at few pixels, or are slow to smoke-test
    "digits_resnet": (1, 8, 8),
    "mlp": (1, 8, 8),
    "sew_digits": (1, 8, 8),
    "sew_resnet18_cifar": (3, 8, 8),
}


def dataset(config: Config) -> Dataset:
    """The images that ``config.data`` names."""
    if config.data == "digits":
        return data.digits()
    if config.data == "synthetic":
        return data.synthetic(classes=10, shape=SMALL.get(config.network, (3, 32, 32)), images=32)
    if config.data.startswith("idx:"):
        return data.idx(Path(config.data.removeprefix("idx:")).expanduser())
    return data.folder(Path(config.data).expanduser(), size=config.image_size)


class Stream:
    """All epochs of training, one after the other: an iterable that knows where it is.

    To Lightning the run is one long epoch, so that resuming in the middle of an epoch is the only kind there is.
    """

    def __init__(self, loader: Loader, epochs: int) -> None:
        self.loader = loader
        self.epochs = epochs

    def __len__(self) -> int:
        return self.epochs * len(self.loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while self.loader.state_dict()["epoch"] < self.epochs:
            yield from self.loader

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)


class Images(LightningDataModule):
    """Gives each process its part of every batch, on the process's own device."""

    def __init__(self, config: Config, images: Dataset) -> None:
        super().__init__()
        self.config = config
        self.images = images

    def batches(self) -> int:
        """Training steps in an epoch."""
        return len(self.images.train.loader(batch=self.config.batch, train=True))

    def train_dataloader(self) -> Stream:
        return Stream(self._loader(train=True), self.config.epochs)

    def val_dataloader(self) -> Loader:
        return self._loader(train=False)

    def _loader(self, train: bool) -> Loader:
        assert self.trainer is not None
        split = self.images.train if train else self.images.val
        return split.loader(
            batch=self.config.batch,
            train=train,
            seed=self.config.seed,
            rank=self.trainer.global_rank,
            world=self.trainer.world_size,
            device=self.trainer.strategy.root_device,
            workers=self.config.workers,
        )
