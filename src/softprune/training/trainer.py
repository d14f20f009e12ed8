"""Lightning's Trainer, as a run wants it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy

from softprune.recipes.config import Config
from softprune.training import checkpoint, history
from softprune.training.history import Bar
from softprune.training.task import Task


def build(config: Config, folder: Path, task: Task, callbacks: Sequence[Callback]) -> Trainer:
    """One long epoch, validated every ``task.batches``, whose logs and checkpoints are in the run's folder."""
    return Trainer(
        accelerator=config.accelerator,
        devices=config.devices,
        num_nodes=config.nodes,
        strategy=_strategy(config),
        precision=config.precision,  # type: ignore[arg-type]
        max_steps=task.steps,
        val_check_interval=task.batches,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=any(isinstance(callback, Bar) for callback in callbacks),
        log_every_n_steps=history.interval(task.steps),
        logger=TensorBoardLogger(folder, name="", version="tensorboard") if find_spec("tensorboard") else False,
        plugins=[checkpoint.AtomicCheckpointIO()],
        callbacks=list(callbacks),
    )


def _strategy(config: Config) -> Strategy | str:
    """Lightning's own by name, except FSDP: the second version, with checkpoints in one file."""
    if config.strategy != "fsdp":
        return config.strategy
    processes = max(1, int(config.devices) if config.devices.isdigit() else torch.cuda.device_count()) * config.nodes
    return ModelParallelStrategy(
        data_parallel_size=processes, tensor_parallel_size=1, save_distributed_checkpoint=False
    )


def quieten() -> None:
    """Keep Lightning's advice out of the progress bar: the choices it advises on are ours, not the user's."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")
