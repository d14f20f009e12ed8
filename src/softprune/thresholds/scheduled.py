"""Thresholds that the host computes step by step: any schedule, and LATS, which follows the learning rate."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from softprune.attach.future import future_lrs
from softprune.attach.lookup import LearningRate, read, require_lr
from softprune.attach.state import Entries
from softprune.errors import ArgumentError, require_nonnegative, require_range, require_whole
from softprune.schedules.base import Schedule
from softprune.schedules.slats import CosineLATS
from softprune.thresholds.base import Rule, Threshold, Weights

NEARLY = 0.9  # share of the final threshold; stopping above it is early pruning (PGH), below it a likely mistake


class Stepwise(Threshold):
    """A threshold that the host computes, step by step: d(t) from d(t−1) and the learning rates η(t).

    >>> class Creep(Stepwise):
    ...     def next(self, d, lrs, step):
    ...         return [x + 0.5 for x in d]
    >>> Creep().next(Creep().first(2), lrs=[0.1, 0.1], step=1)
    [0.5, 0.5]
    """

    def first(self, count: int) -> list[float]:
        """d(0) for ``count`` parameters."""
        return [0.0] * count

    @abstractmethod
    def next(self, d: list[float], lrs: Sequence[LearningRate], step: int) -> list[float]:
        """d(t) for each parameter after step ``step`` = 1, 2, ..."""

    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        return StepwiseRule(self, weights)

    def finish(self, d: list[float], step: int) -> None:
        """Warn, if d is not where it should end."""


class StepwiseRule(Rule):
    """d, and nothing else to remember."""

    threshold: Stepwise

    def __init__(self, threshold: Stepwise, weights: Weights) -> None:
        super().__init__(threshold, weights)
        self._take(threshold.first(len(weights.params)))

    def _take(self, d: list[float]) -> None:
        self.d, self.levels = d, (d,)

    def advance(self, step: int, lrs: Sequence[LearningRate]) -> None:
        self._take(self.threshold.next(self.d, lrs, step))

    def finish(self, step: int) -> None:
        self.threshold.finish(self.d, step)

    def state(self) -> Entries:
        return {p: {"threshold": d} for p, d in zip(self.weights.params, self.d, strict=True)}

    def load(self, entries: Entries) -> None:
        self._take([float(entries[p]["threshold"]) for p in self.weights.params])


@dataclass(frozen=True, repr=False)
class Scheduled(Stepwise):
    """d(t) = schedule(t), the same for every parameter."""

    schedule: Callable[[int], float]

    def __repr__(self) -> str:
        return repr(self.schedule)

    def first(self, count: int) -> list[float]:
        return [self._at(0)] * count

    def next(self, d: list[float], lrs: Sequence[LearningRate], step: int) -> list[float]:
        return [self._at(step)] * len(d)

    def finish(self, d: list[float], step: int) -> None:
        if isinstance(self.schedule, Schedule) and d[0] < NEARLY * self.schedule.final:
            warnings.warn(
                f"Pruning ends after {step} steps at the threshold {d[0]:.4g}, before {self.schedule} is at its final "
                "one. A schedule counts steps of the optimizer: under gradient accumulation, not batches.",
                stacklevel=7,
            )

    def _at(self, step: int) -> float:
        d: Any = self.schedule(step)
        if not isinstance(d, Real | Tensor) or not 0 <= float(d) < math.inf:
            raise ArgumentError(f"A threshold must be >= 0 and finite. {self.schedule!r} gives {d} at step {step}.")
        return float(d)


@dataclass(frozen=True)
class LATS(Stepwise):
    """Learning rate adapted: d(t+1) = d(t) + μ · η(t), with η the optimizer's own learning rate.

    The penalty is constant whatever the learning rate does: warm-up, step decay, one-cycle. A parameter follows the
    learning rate of its param group.

    Args:
        penalty: μ, the L1 penalty. ``LATS.from_final`` finds the one that ends at a given threshold.
        start: optimizer steps before pruning begins.

    >>> LATS(penalty=0.5).next([0.0, 0.0], lrs=[0.1, 0.2], step=1)
    [0.05, 0.1]
    """

    penalty: float
    start: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        require_nonnegative("LATS", "penalty", self.penalty)
        require_whole("LATS", "start", self.start)

    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        require_lr("LATS", optimizer)
        return super().bind(weights, optimizer)

    def next(self, d: list[float], lrs: Sequence[LearningRate], step: int) -> list[float]:
        mu = self.penalty if step > self.start else 0.0
        return [d_i + mu * lr for d_i, lr in zip(d, read(lrs), strict=True)]

    @classmethod
    def from_final(
        cls, final: float, lr_scheduler: LRScheduler, steps: int, *, interval: int = 1, start: int = 0
    ) -> LATS:
        """The penalty whose threshold ends at ``final`` after ``steps``, under this learning-rate scheduler.

        The scheduler is played forward on a copy of the learning rates; it, the optimizer and the model are
        left alone. It is played from where it is: build this before a scheduler's state is restored. With several param
        groups, the first one ends at ``final``.

        Args:
            final: D, the threshold at the end.
            lr_scheduler: any scheduler of ``torch.optim.lr_scheduler`` but ``ReduceLROnPlateau``.
            steps: T, the length of training in optimizer steps.
            interval: optimizer steps between two steps of the scheduler: 1, or the batches of an epoch.
            start: optimizer steps before pruning begins.

        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        >>> scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
        >>> round(LATS.from_final(0.5, scheduler, steps=100).penalty, 6)
        0.05
        """
        require_nonnegative("LATS.from_final", "final", final)
        require_range("LATS.from_final", steps, start)
        require_whole("LATS.from_final", "interval", interval, least=1)
        total = math.fsum(future_lrs(lr_scheduler, steps, interval)[start:])
        if not total > 0:
            raise ArgumentError(
                f"`LATS.from_final` needs learning rates that sum to more than 0. Got {total} over {steps} steps."
            )
        return cls(final / total, start=start)

    @staticmethod
    def cosine(final: float, epochs: int, batches: int) -> CosineLATS:
        """Eq. 9: the closed form for cosine annealing by epochs, a pure schedule.

        Args:
            final: D, the threshold at the end.
            epochs: N, after each of which the learning rate falls.
            batches: B, optimizer steps in an epoch.
        """
        return CosineLATS(final, epochs, batches)
