"""PruningCallback for the command: what it logs is also written to history.jsonl, and said where there is no bar."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.trainer.states import TrainerFn

import softprune as sp
from softprune.errors import DivergedError
from softprune.lightning import PruningCallback
from softprune.training.history import History
from softprune.training.task import Task

POINTS = 200  # of a curve, about


def interval(steps: int) -> int:
    """How many steps lie between two points of a curve."""
    return max(1, steps // POINTS)


class Recorder(PruningCallback):
    """The training curve with loss and learning rate, and after each validation accuracy and turnover.

    Turnover, the weights dropped and regrown, is counted from the validation before. At the first one, it is counted
    from the start of training, or from the checkpoint that training was resumed from. ``report`` is that of the last
    validation, and None before there is one. A network that is not pruned is recorded too. ``say`` gets a line for each
    epoch, if there is no progress bar to look at.
    """

    def __init__(self, history: History, say: Callable[[str], None] | None = None) -> None:
        super().__init__(verbose=False)
        self.history = history
        self.say = say
        self._loss = math.nan
        self._earlier: sp.Report | None = None  # turnover is counted from it

    def on_train_start(self, trainer: Trainer, pl_module: Task) -> None:  # type: ignore[override]
        """Drop the rows after the checkpoint, so that a resumed run has a row for every step, and none twice."""
        self.pruner = pl_module.pruner
        self._earlier = sp.summarize(self.pruner, pl_module.network) if self.pruner is not None else None
        self._logged = trainer.global_step
        if trainer.is_global_zero:
            self.history.cut(trainer.global_step)

    def steps(self, trainer: Trainer) -> int:
        return trainer.global_step

    def record(self, trainer: Trainer, pl_module: Task, outputs: Any, numbers: Mapping[str, float]) -> None:  # type: ignore[override]
        step, self._loss = trainer.global_step, float(outputs["loss"])
        if not math.isfinite(self._loss):
            raise DivergedError(f"The loss is {self._loss} after step {step}. Lower `lr`, or lengthen `warmup`.")
        numbers = {"loss": self._loss, **numbers}
        super().record(trainer, pl_module, outputs, numbers)
        if trainer.is_global_zero:
            self.history.append({"step": step, "lr": pl_module.config.lr * pl_module.rate(step - 1), **numbers})

    def on_validation_end(self, trainer: Trainer, pl_module: Task) -> None:  # type: ignore[override]
        if trainer.state.fn != TrainerFn.FITTING:
            return
        numbers = {name: float(trainer.callback_metrics[name]) for name in ("accuracy", "val_loss")}
        row: dict[str, float | None] = {"step": trainer.global_step, **numbers}
        if self.pruner is not None and self._earlier is not None:
            self._earlier = self.report = sp.summarize(self.pruner, pl_module.network).since(self._earlier)
            row |= {"dropped": self.report.dropped, "regrown": self.report.regrown}
        if trainer.is_global_zero:
            self.history.append(row)
        if self.say is not None:
            sparsity = f", sparsity {self.report.sparsity:.2%}" if self.report else ""
            self.say(
                f"epoch {trainer.global_step // pl_module.batches}/{pl_module.config.epochs}: step "
                f"{trainer.global_step:,}, loss {self._loss:.4g}, validation loss {numbers['val_loss']:.4g}, accuracy "
                f"{numbers['accuracy']:.2%}{sparsity}"
            )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The report stays that of the last validation: another one would count turnover since that."""
        self.log_last(trainer)


class Bar(TQDMProgressBar):
    """Counts the epochs of the run, of which Lightning sees only one, and shows accuracy first."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: Task, *args: Any) -> None:  # type: ignore[override]
        epoch = min(trainer.global_step // pl_module.batches + 1, pl_module.config.epochs)
        self.train_progress_bar.set_description(f"epoch {epoch}/{pl_module.config.epochs}")
        super().on_train_batch_end(trainer, pl_module, *args)

    def get_metrics(self, trainer: Trainer, pl_module: Task) -> dict[str, Any]:  # type: ignore[override]
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        return {key: metrics[key] for key in sorted(metrics, key=lambda key: key != "accuracy")}
