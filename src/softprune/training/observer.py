"""Measuring a network: its accuracy, its loss, and what else it has to tell."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from lightning.pytorch import Trainer

from softprune.training.headline import LOSS
from softprune.training.stream import Samples
from softprune.training.task import Task


class Observation(Protocol):
    """What an observer saw, for the files of a run."""

    def figures(self) -> dict[str, float]:
        """Numbers by name, one or a few, by which runs are compared."""

    def to_dict(self) -> dict[str, Any]: ...

    def to_markdown(self) -> str: ...


class Observer(AbstractContextManager[Any], Protocol):
    """Watches the network between ``with`` and its end; every process then asks for the result."""

    def result(self) -> Observation: ...


@runtime_checkable
class Observed(Protocol):
    """A network whose last evaluation is to be watched."""

    def observer(self) -> Observer: ...


@dataclass(frozen=True)
class Measured:
    """On so many images, or windows of text. ``observed`` is None for networks that have nothing else to tell."""

    accuracy: float
    loss: float
    count: int
    unit: str
    observed: Observation | None

    def figures(self) -> dict[str, float]:
        """Numbers by name, by which runs are compared besides their accuracy."""
        return {LOSS: self.loss} | (self.observed.figures() if self.observed else {})


def measure(trainer: Trainer, task: Task, samples: Samples) -> Measured:
    """Evaluate ``task.network`` on the validation data. Every process of a launch must call it."""
    trainer.logger = None  # TensorBoard would begin another file for this one point
    observer = task.network.observer() if isinstance(task.network, Observed) else None
    with observer or nullcontext():
        found = trainer.validate(task, samples, verbose=False)[0]
    val = samples.data.val
    return Measured(found["accuracy"], found["val_loss"], len(val), val.unit, observer.result() if observer else None)
