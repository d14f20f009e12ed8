"""Schedules as thresholds, and LATS."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from torch.optim.lr_scheduler import LRScheduler

from softprune.attach.future import future_lrs
from softprune.errors import require_nonnegative, require_range, require_whole
from softprune.kernels.columns import Columns
from softprune.schedules.slats import CosineLATS
from softprune.thresholds.base import Threshold


@dataclass(frozen=True)
class Scheduled(Threshold):
    """d(t) = schedule(t), the same for every parameter."""

    schedule: Callable[[int], float]

    def initial(self, count: int) -> Columns:
        return self.advance((), [0.0] * count, 0)

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        d = float(self.schedule(step))
        if not 0 <= d < math.inf:
            raise ValueError(f"A threshold must be >= 0 and finite. {self.schedule!r} gives {d} at step {step}.")
        return ([d] * len(lrs),)


@dataclass(frozen=True)
class LATS(Threshold):
    """Learning rate adapted: d(t+1) = d(t) + μ · η(t), with μ = ``penalty`` and η the optimizer's own lr.

    The penalty is constant whatever the learning rate does: warm-up, step decay, one-cycle. A parameter
    follows the lr of its param group. Pruning begins after ``start`` steps.

    >>> LATS(penalty=0.5).advance(([0.0, 0.0],), lrs=[0.1, 0.2], step=1)
    ([0.05, 0.1],)
    """

    penalty: float
    start: int = field(default=0, kw_only=True)
    reads_lr: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_nonnegative("LATS", "penalty", self.penalty)
        require_whole("LATS", "start", self.start)

    def initial(self, count: int) -> Columns:
        return ([0.0] * count,)

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        mu = self.penalty if step > self.start else 0.0
        return ([d + mu * lr for d, lr in zip(columns[0], lrs, strict=True)],)

    @classmethod
    def from_final(
        cls, final: float, lr_scheduler: LRScheduler, steps: int, *, interval: int = 1, start: int = 0
    ) -> LATS:
        """The penalty whose threshold ends at ``final`` after ``steps``, under this learning-rate scheduler.

        The scheduler is played forward on a copy of the learning rates; it, the optimizer and the model are
        left alone. It is played from where it is: build this before a scheduler's state is restored. It is taken
        to be stepped after every ``interval`` optimizer steps (1, or the batches of an epoch). With several param
        groups, the first one ends at ``final``.

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
            raise ValueError(
                f"`LATS.from_final` needs learning rates that sum to more than 0. Got {total} over {steps} steps."
            )
        return cls(final / total, start=start)

    @staticmethod
    def cosine(final: float, epochs: int, batches: int) -> CosineLATS:
        """Eq. 9: the closed form for cosine annealing by epochs, a pure schedule."""
        return CosineLATS(final, epochs, batches)
