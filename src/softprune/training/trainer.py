"""Lightning's Trainer, as a run wants it: one to train, one to measure, and a rehearsal that makes nothing."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from torch import nn
from torch.optim import Optimizer

from softprune.errors import ConfigError, UserError
from softprune.recipes.config import Config
from softprune.training import names
from softprune.training.checkpoint import AtomicCheckpointIO
from softprune.training.launch import check_nodes, check_processes
from softprune.training.recorder import Bar, interval
from softprune.training.task import Task

_TINY = 100_000  # parameters


def training(
    config: Config, folder: Path, task: Task, callbacks: Sequence[Callback], reader: AtomicCheckpointIO
) -> Trainer:
    """One long epoch, validated every ``task.batches``, whose logs and checkpoints are in the run's folder."""
    logger: TensorBoardLogger | None = None
    if find_spec("tensorboard"):
        logger = TensorBoardLogger(folder, name="", version="tensorboard", default_hp_metric=False)
        logger.log_hyperparams(json.loads(config.to_json()))
    return _launched(
        config,
        strategy=_strategy(config),
        max_steps=task.steps,
        gradient_clip_val=config.clip,
        val_check_interval=task.batches,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_progress_bar=any(isinstance(callback, Bar) for callback in callbacks),
        log_every_n_steps=interval(task.steps),
        logger=logger or False,
        plugins=[reader],
        callbacks=list(callbacks),
    )


def measuring(config: Config) -> Trainer:
    """On one device, without logs."""
    return build(config, devices=1)


def rehearse(config: Config) -> None:
    """Build all that needs no data: what cannot be is refused before anything is made."""
    rehearsed(config)
    strategy = "auto" if config.strategy == "fsdp" else config.strategy
    _launched(config, strategy=strategy)


def rehearsed(config: Config) -> Optimizer:
    """The optimizer of a run, with its pruner, of a network without memory, unless that must run."""
    shape = names.NETWORKS.find(config.network).smoke
    with torch.device("cpu" if names.needs_memory(config) else "meta"):
        return Task(config, classes=10, shape=shape, batches=1).configure_optimizers()["optimizer"]


def _launched(config: Config, **options: Any) -> Trainer:
    """On all devices of all nodes."""
    check_nodes(config.nodes)
    trainer = build(config, devices=config.devices, num_nodes=config.nodes, **options)
    check_processes(trainer.world_size)
    return trainer


def build(config: Config, **options: Any) -> Trainer:
    """The one place where a Trainer is built: what Lightning refuses here are settings."""
    quieten()
    try:
        return Trainer(
            **{
                "accelerator": config.accelerator,
                "precision": config.precision,
                "logger": False,
                "enable_checkpointing": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
                **options,
            }
        )
    except UserError:
        raise
    except (ValueError, ModuleNotFoundError, MisconfigurationException) as error:
        raise ConfigError(str(error)) from error


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


@contextmanager
def threads(network: nn.Module) -> Iterator[None]:
    """One thread for a tiny network, unless OMP_NUM_THREADS says otherwise: its layers are over before two threads have
    met, and beside a busy process they would wait for each other most of the time."""
    before = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ and sum(p.numel() for p in network.parameters()) < _TINY:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
