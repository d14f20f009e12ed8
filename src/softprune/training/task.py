"""The Lightning module: a network, its loss, its optimizer, and the pruner on that optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

import softprune as sp
from softprune.recipes.config import Config
from softprune.training import names, settings
from softprune.training.entries import Asked
from softprune.training.rate import Rate


class Task(LightningModule):
    """Trains ``config.network`` for ``config.epochs`` of ``batches`` steps each."""

    def __init__(self, config: Config, classes: int, shape: tuple[int, ...], batches: int) -> None:
        super().__init__()
        settings.check(config)
        self.config = config
        self.batches = batches
        self.rate = Rate.of(config, batches)
        entry, pattern = names.NETWORKS.find(config.network), names.PATTERNS.find(config.pattern)
        self.network, example = entry.build(classes, shape), entry.example(shape)
        self.groups = pattern.build and pattern.build(self.network, example)  # before it is sharded
        count = names.COUNTS.find(config.count).build
        self.flops = count and count(self.network, example)
        if config.precision == "64-true":
            self.network.double()  # before Lightning does, which loads checkpoints first
        self._loss = torch.compile(self.loss, dynamic=False) if config.compile else self.loss
        self.pruner: sp.Pruner | None = None
        self._validated = torch.zeros(3)  # Σ loss, correct predictions, predictions

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
            elif isinstance(child, nn.ModuleList):
                for block in child:
                    fully_shard(block, mesh=mesh)
        fully_shard(self.network, mesh=mesh)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return self._loss(*batch)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """What training minimises, and all that is compiled: validation would be compiled again for its last batch.

        An image has one label, a window of text one for each of its tokens."""
        logits = self.network(x).flatten(0, -2)
        return nn.functional.cross_entropy(logits, y.flatten(), label_smoothing=self.config.label_smoothing)

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        x, y = batch
        if len(y) == 0:  # of several processes, some get nothing of the last batch
            if isinstance(self.network, FSDPModule):
                self.network(x)  # which gathers weights, all processes together
            return
        logits, y = self.network(x).flatten(0, -2), y.flatten()
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # half precision has three digits
        loss = nn.functional.cross_entropy(logits, y, reduction="sum")
        self._validated += torch.stack([loss.float(), (logits.argmax(1) == y).sum().float(), loss.new_tensor(len(y))])

    def on_validation_epoch_start(self) -> None:
        """Summed here over batches and processes: Lightning would average the number of predictions over processes,
        and round it."""
        self._validated = torch.zeros(3, device=self.device)

    def on_validation_epoch_end(self) -> None:
        total = self.trainer.strategy.reduce(self._validated, reduce_op="sum")
        assert isinstance(total, Tensor)
        loss, correct, predictions = total.unbind()
        self.log("val_loss", loss / predictions)
        self.log("accuracy", correct / predictions, prog_bar=True)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Optimizer, learning-rate schedule and pruner. A threshold that is trained comes first, since the optimizer
        holds its parameters; any other comes last, since it may read the scheduler."""
        config, method = self.config, names.METHODS.find(self.config.method)
        params = sp.select(self.network, exclude=config.exclude) if method.build else {}
        asked = Asked(config, params, self.steps, config.start * self.batches, flops=self.flops)
        trained = method.build(asked) if method.build and method.trained else None
        assert trained is None or isinstance(trained, sp.Trainable), f"{method.name} is not trained"
        optimizer = self._optimizer(trained)
        rate = self.rate
        scheduler = LambdaLR(optimizer, lambda step: rate(step))  # of a function, LambdaLR saves nothing
        if method.build:
            threshold = trained or method.build(replace(asked, lr_scheduler=scheduler))
            prox, gradient = names.prox(config), names.gradient(config)
            self.pruner = sp.Pruner(
                params, optimizer, threshold=threshold, prox=prox, groups=self.groups, gradient=gradient
            )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _optimizer(self, trained: sp.Trainable | None) -> Optimizer:
        """Parameters are given with their names, which reports and checkpoints then have."""
        config = self.config
        named = list(self.network.named_parameters())
        groups: list[dict[str, Any]] = [{"params": named}]
        if not config.decay_vectors:
            matrices, vectors = ([(name, p) for name, p in named if (p.ndim < 2) == flat] for flat in (False, True))
            groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
        if trained is not None:
            decay = config.weight_decay if config.threshold_decay is None else config.threshold_decay
            own = {} if config.blend_decay is None else {"b": config.blend_decay}
            groups += [
                {"params": [(f"threshold.{name}", p)], "weight_decay": own.get(name, decay)}
                for name, p in trained.named_parameters()
            ]
        return names.OPTIMIZERS.find(config.optimizer).build(groups, config)
