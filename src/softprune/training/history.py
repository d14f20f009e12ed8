"""What happened on the way: a line of JSON every few steps, for plots and for whoever resumes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.trainer.states import TrainerFn

import softprune as sp
from softprune.errors import DivergedError
from softprune.lightning import log, measurements
from softprune.training.atomic import replacing
from softprune.training.task import Task

POINTS = 200  # of a curve, about


def interval(steps: int) -> int:
    """How many steps lie between two points of a curve."""
    return max(1, steps // POINTS)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows, up to one that was being written when the machine went down."""
    rows: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def last(path: Path) -> dict[str, Any]:
    """What was last written of each number."""
    return {key: value for row in read(path) for key, value in row.items()}


class History(Callback):
    """Appends to ``history.jsonl``: the training curve, and after each validation accuracy and who left.

    What it writes it also logs, for TensorBoard and the progress bar; Lightning takes as long to log as a small network
    to train, so nothing is logged in between.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.report: sp.Report | None = None  # the last one

    def on_train_start(self, trainer: Trainer, pl_module: Task) -> None:  # type: ignore[override]
        """A resumed run forgets what an interrupted one wrote after its last checkpoint."""
        if trainer.is_global_zero:
            kept = [row for row in read(self.path) if row["step"] <= trainer.global_step]
            with replacing(self.path) as beside:
                beside.write_text("".join(json.dumps(row) + "\n" for row in kept))

    def on_train_batch_end(self, trainer: Trainer, pl_module: Task, outputs: Any, *_: Any) -> None:  # type: ignore[override]
        step = trainer.global_step
        if step % interval(pl_module.steps) and step != pl_module.steps:
            return
        numbers = {"loss": float(outputs["loss"])}
        if not math.isfinite(numbers["loss"]):
            raise DivergedError(f"The loss is {numbers['loss']} after step {step}. Lower `lr`, or lengthen `warmup`.")
        if pl_module.pruner is not None:
            numbers |= measurements(pl_module.pruner)
        log(pl_module, numbers)
        self._append(trainer, {"step": step, "lr": pl_module.config.lr * pl_module.lr_factor(step - 1), **numbers})

    def on_validation_end(self, trainer: Trainer, pl_module: Task) -> None:  # type: ignore[override]
        if trainer.state.fn != TrainerFn.FITTING:
            return
        row: dict[str, Any] = {"step": trainer.global_step, "accuracy": float(trainer.callback_metrics["accuracy"])}
        if pl_module.pruner is not None:
            self.report = sp.summarize(pl_module.pruner)
            row |= {"left": self.report.left, "returned": self.report.returned}
        self._append(trainer, row)

    def _append(self, trainer: Trainer, row: dict[str, Any]) -> None:
        if trainer.is_global_zero:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


class Bar(TQDMProgressBar):
    """Counts the epochs of the run, of which Lightning sees only one."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: Task, *args: Any) -> None:  # type: ignore[override]
        epoch = min(trainer.global_step // pl_module.batches + 1, pl_module.config.epochs)
        self.train_progress_bar.set_description(f"epoch {epoch}/{pl_module.config.epochs}")
        super().on_train_batch_end(trainer, pl_module, *args)

    def get_metrics(self, trainer: Trainer, pl_module: Task) -> dict[str, Any]:  # type: ignore[override]
        return {key: value for key, value in super().get_metrics(trainer, pl_module).items() if key != "v_num"}
