"""The Lightning module: a network, its loss, its optimizer, and the pruner on that optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

import softprune as sp
from softprune import models
from softprune.errors import ConfigError, UserError
from softprune.recipes.config import Config
from softprune.training import methods

OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


@contextmanager
def in_sentences() -> Iterator[None]:
    """What objects refuse while they are built from settings is the user's to mend."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, ModuleNotFoundError, MisconfigurationException) as error:
        raise ConfigError(str(error)) from error


@in_sentences()
def rehearse(config: Config) -> None:
    """Build all that needs no data, without memory for weights: what cannot be is refused before anything is made."""
    with torch.device("meta"):
        Task(config, classes=10, channels=3, batches=1).configure_optimizers()
    strategy = "auto" if config.strategy == "fsdp" else config.strategy
    plain_trainer(config, devices=config.devices, num_nodes=config.nodes, strategy=strategy)


def plain_trainer(config: Config, **options: Any) -> Trainer:
    """One that neither logs nor saves."""
    return Trainer(
        accelerator=config.accelerator,
        precision=config.precision,  # type: ignore[arg-type]
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


class Task(LightningModule):
    """Trains ``config.network`` for ``config.epochs`` of ``batches`` steps each."""

    def __init__(self, config: Config, classes: int, channels: int, batches: int) -> None:
        super().__init__()
        methods.check(config)
        self.config = config
        self.batches = batches
        self.network = models.build(config.network, classes, channels)
        if config.precision == "64-true":
            self.network.double()  # before Lightning does, which loads checkpoints first
        self._loss = torch.compile(self.loss) if config.compile else self.loss
        self.pruner: sp.Pruner | None = None

    @property
    def steps(self) -> int:
        return self.config.epochs * self.batches

    def configure_model(self) -> None:
        """Under FSDP2, shard each block of the network, then the rest; Lightning calls this more than once.

        A GPU convolves faster with channels last, which FSDP2 does not know.
        """
        if not isinstance(self.trainer.strategy, ModelParallelStrategy):
            if self.trainer.strategy.root_device.type == "cuda":
                self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            return
        if isinstance(self.network, FSDPModule):
            return
        assert self.device_mesh is not None
        mesh = self.device_mesh["data_parallel"]
        for child in self.network.children():
            if isinstance(child, nn.Sequential):
                fully_shard(child, mesh=mesh)
        fully_shard(self.network, mesh=mesh)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return self._loss(*batch)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """What training minimises, and all that is compiled: validation would be compiled again for its last batch."""
        return nn.functional.cross_entropy(self.network(x), y, label_smoothing=self.config.label_smoothing)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        x, y = batch
        if len(y) == 0:  # of several processes, some get nothing of the last batch
            if isinstance(self.network, FSDPModule):
                self.network(x)  # which gathers weights, all processes together
            return
        logits = self.network(x)
        options: dict[str, Any] = {"on_epoch": True, "sync_dist": True, "batch_size": len(y)}
        self.log("val_loss", nn.functional.cross_entropy(logits, y), **options)
        self.log("accuracy", (logits.argmax(1) == y).float().mean(), prog_bar=True, **options)

    @in_sentences()
    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Optimizer, learning-rate schedule and pruner: the two lines are the last two."""
        config = self.config
        params = sp.select(self.network, exclude=config.exclude) if config.method != "dense" else {}
        trained = methods.trained(config, params)
        groups: list[dict[str, Any]] = [{"params": list(self.network.parameters())}]
        if trained is not None:
            decay = _first(config.threshold_decay, config.weight_decay)
            decays = {"s": decay, "b": _first(config.blend_decay, decay)}
            groups += [{"params": [p], "weight_decay": decays[name]} for name, p in trained.named_parameters()]
        optimizer = self._optimizer(groups)
        scheduler = LambdaLR(optimizer, self.lr_factor)
        if config.method != "dense":
            threshold = trained or methods.scheduled(config, scheduler, self.steps, config.start * self.batches)
            gradient = methods.GRADIENTS[config.gradient]
            self.pruner = sp.Pruner(params, optimizer, threshold=threshold, gradient=gradient)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _optimizer(self, groups: list[dict[str, Any]]) -> Optimizer:
        config = self.config
        options: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
        if config.optimizer == "sgd":
            options |= {"momentum": config.momentum, "nesterov": config.nesterov}
        return OPTIMIZERS[config.optimizer](groups, **options)

    def lr_factor(self, step: int) -> float:
        """The learning rate of a step, as a share of its peak."""
        config, batches = self.config, self.batches
        if step < (warm := config.warmup * batches):
            return (step + 1) / warm
        if config.lr_curve == "constant":
            return 1.0
        done = step // batches * batches if config.lr_curve == "epoch-cosine" else step
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - warm) / (self.steps - warm))))


def _first(*values: float | None) -> float:
    """The first that is given."""
    return next(value for value in values if value is not None)
