"""Pruning for people with a LightningModule of their own: one callback.

    trainer = Trainer(callbacks=[PruningCallback(target=0.9)])

The pruner sits on the module's optimizer, so Lightning's checkpoints carry its state and resume it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch.optim.lr_scheduler import LRScheduler

import softprune as sp
from softprune.attach.future import foreseen
from softprune.errors import ArgumentError, needs
from softprune.prox.gradient import Gradient
from softprune.pruner import registry
from softprune.pruner.plan import Build, Groups, Plan, Thresholds
from softprune.report.measurements import measurements

needs("lightning.pytorch", "Lightning", "softprune.lightning")

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402 - after the sentence that it is missing
from lightning.pytorch.callbacks import GradientAccumulationScheduler  # noqa: E402

_built: WeakSet[sp.Pruner] = WeakSet()  # by callbacks


class PruningCallback(Callback, Plan):
    """Builds a pruner when training starts, logs what it does, prints a report at the end.

    Give a ``target``, a ``threshold``, or ``build(params, steps) -> threshold`` where it depends on the number of
    optimizer steps, which Lightning counts. With none of them, the module's own ``pl_module.pruner`` is logged. A
    trained threshold needs the module's help: its parameters belong into ``configure_optimizers``, so build threshold
    and pruner there.

    Sparsity, threshold and penalty are logged every ``Trainer(log_every_n_steps=...)`` steps and at the end, and shown
    in the progress bar; those of a second callback as ``sparsity_2`` and so on. After training, ``report`` holds the
    report, and the module exactly sparse weights. ``pruner`` stays attached, so that a checkpoint saved after ``fit``
    resumes too, until the module is fitted again or ``pruner.detach()``.

    Args:
        threshold: where d comes from: a schedule, ``LATS``, ``TargetSparsity``, ``KeepZeros``, ...
        target: the sparsity to end with, instead of it: ``TargetSparsity`` for as many steps as Lightning counts.
        build: ``build(params, steps) -> threshold``, instead of both.
        prox: as in ``sp.Pruner``.
        groups: as in ``sp.Pruner``; or a function of the module that gives it, for a model that is not built yet:
            ``lambda module: sp.Channels(module, example)``.
        gradient: as in ``sp.Pruner``.
        include: patterns of parameters to prune, as in ``sp.select``.
        exclude: patterns of parameters to leave alone.
        verbose: print the report after training.
    """

    def __init__(
        self,
        threshold: Thresholds | None = None,
        *,
        target: float | None = None,
        build: Build | None = None,
        prox: sp.Prox | None = None,
        groups: Groups | None = None,
        gradient: Gradient | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        verbose: bool = True,
    ) -> None:
        Plan.__init__(self, threshold, target, build, prox, groups, gradient, include, exclude)
        if self.given > 1:
            raise ArgumentError(
                "`PruningCallback` takes one of `target`, `threshold` and `build`. Leave the others out."
            )
        self.verbose = verbose
        self.pruner: sp.Pruner | None = None
        self.report: sp.Report | None = None
        self._logged: int | None = None  # the step

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Every fit begins anew. A pruner that a callback built for an earlier fit, perhaps one that failed, is
        detached now, before Lightning loads a checkpoint's weights. One that the module built makes way when it builds
        another, as a module does in ``configure_optimizers``."""
        if stage == "fit":
            for pruner in {registry.pruner_of(p) for p in pl_module.parameters()} - {None}:
                registry.replaceable(pruner)
                if pruner in _built:
                    registry.make_way(pruner)
            self.pruner = self.report = self._logged = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The optimizer exists, and its state is not restored yet."""
        if not self.given:
            return
        if len(trainer.optimizers) != 1:
            raise ArgumentError(
                f"`PruningCallback` needs one optimizer. The module configures {len(trainer.optimizers)}: "
                "build a `softprune.Pruner` in `configure_optimizers` instead."
            )
        params, groups = self.choose(pl_module)
        optimizer = trainer.optimizers[0]
        self.pruner = self.begin(params, groups, optimizer, lambda: _steps(trainer, pl_module), _scheduler(trainer))
        _built.add(self.pruner)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A module may build its own pruner as late as in its ``on_fit_start``."""
        if self.pruner is None:
            self.pruner = getattr(pl_module, "pruner", None)
        if not isinstance(self.pruner, sp.Pruner):
            raise ArgumentError(
                "`PruningCallback()` needs a `target`, a `threshold`, a `build`, or a module with a pruner. "
                f"`{type(pl_module).__name__}.pruner` is {self.pruner!r}."
            )

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any) -> None:
        """Log when Lightning's loggers listen. The progress bar also gets the first step and, if ``max_steps`` is set,
        the last one; ``log_last`` gives that to the loggers."""
        step, every = self.steps(trainer), trainer.log_every_n_steps  # type: ignore[attr-defined]
        if not every or step in (0, self._logged):  # accumulating gradients
            return
        if self._logged is None or step % every == 0 or step == trainer.max_steps:
            self._logged = step
            self.record(trainer, pl_module, outputs, {} if self.pruner is None else measurements(self.pruner))

    def steps(self, trainer: Trainer) -> int:
        """Optimizer steps done."""
        assert self.pruner is not None
        return self.pruner.step

    def record(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, numbers: Mapping[str, float]) -> None:
        """Hand numbers to loggers and the progress bar, as CPU tensors: Lightning reads the bar's at every step, and
        each number on a device would be a host sync."""
        named = self._named(trainer, numbers)
        pl_module.log_dict({name: torch.tensor(value, device="cpu") for name, value in named.items()}, prog_bar=True)

    def _named(self, trainer: Trainer, numbers: Mapping[str, float]) -> dict[str, float]:
        """Under names that tell the callbacks of a trainer apart."""
        others = [c for c in trainer.callbacks if isinstance(c, PruningCallback)]  # type: ignore[attr-defined]
        number = others.index(self) + 1
        suffix = f"_{number}" if number > 1 else ""
        return {name + suffix: value for name, value in numbers.items()}

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.pruner is not None:
            self.report = sp.summarize(self.pruner, pl_module)
        self.log_last(trainer)

    def log_last(self, trainer: Trainer) -> None:
        """Log the last step to the loggers, if it is not one at which Lightning lets them listen."""
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if self.pruner is None or not every or self.steps(trainer) % every == 0:
            return
        named = self._named(trainer, measurements(self.pruner))
        for logger in trainer.loggers:
            logger.log_metrics(named, step=trainer.global_step - 1)  # Lightning counts from 0 here

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The progress bar is closed by now."""
        if self.report is not None and self.verbose and trainer.is_global_zero:
            print(self.report)


def _scheduler(trainer: Trainer) -> LRScheduler | None:
    """The learning-rate scheduler, if it steps with the optimizer and its learning rates are known in advance."""
    configs = [c for c in trainer.lr_scheduler_configs if (c.interval, c.frequency) == ("step", 1)]
    return foreseen(configs[0].scheduler) if len(configs) == 1 == len(trainer.lr_scheduler_configs) else None


def _steps(trainer: Trainer, module: LightningModule) -> int:
    """How many steps the optimizer will make, if Lightning knows."""
    steps = trainer.estimated_stepping_batches
    schedulers = [c for c in trainer.callbacks if isinstance(c, GradientAccumulationScheduler)]  # type: ignore[attr-defined]
    guessed = trainer.max_steps == -1  # from the number of batches
    if guessed and not module.automatic_optimization:
        reason = "the module steps the optimizer itself"
    elif guessed and schedulers:
        reason = "gradient accumulation varies"
    elif not 1 <= steps < math.inf:
        reason = f"it says {steps}"
    else:
        return int(steps)
    raise ArgumentError(
        "`PruningCallback` needs the number of training steps, which Lightning does not know here "
        f"({reason}). Write `Trainer(max_steps=...)`, or pass a `threshold` for as many steps as you mean."
    )
