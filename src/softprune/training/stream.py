"""The images or the text of a run, batch by batch: one resumable stream over all epochs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightning.pytorch import LightningDataModule
from torch import Tensor

from softprune.data import Dataset, Loader
from softprune.data.order import Order
from softprune.errors import ConfigError
from softprune.recipes.config import Config


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


class Samples(LightningDataModule):
    """Gives each process its part of every batch, on the process's own device."""

    def __init__(self, config: Config, data: Dataset) -> None:
        super().__init__()
        self.config = config
        self.data = data

    def batches(self) -> int:
        """Training steps in an epoch."""
        train, batch = self.data.train, self.config.batch
        if batch > len(train):
            raise ConfigError(
                f"`batch` must be at most the number of training {train.unit}, {len(train)}. Got {batch}."
            )
        return len(Order(len(train), batch, train=True))

    def train_dataloader(self) -> Stream:
        return Stream(self._loader(train=True), self.config.epochs)

    def val_dataloader(self) -> Loader:
        return self._loader(train=False)

    def _loader(self, train: bool) -> Loader:
        assert self.trainer is not None
        if self.config.batch % (world := self.trainer.world_size):
            raise ConfigError(
                f"`batch` must be divisible by the number of processes, {world}. Got {self.config.batch}."
            )
        split = self.data.train if train else self.data.val
        return split.loader(
            batch=self.config.batch,
            train=train,
            seed=self.config.seed,
            rank=self.trainer.global_rank,
            world=world,
            device=self.trainer.strategy.root_device,
            workers=self.config.workers,
        )
