"""The learning rate of a run: a frozen value, so that a scheduler which holds it can be copied and played forward."""

from __future__ import annotations

from dataclasses import dataclass

from softprune.recipes.config import Config
from softprune.schedules.curves import Curve
from softprune.training import names


@dataclass(frozen=True)
class Rate:
    """The learning rate of a step as a share of its peak: linear warm-up, then ``curve`` over the other steps, which
    changes every ``hold`` steps.

    >>> from softprune.schedules.curves import Cosine
    >>> rate = Rate(Cosine(), steps=6, warmup=2)
    >>> [round(rate(step), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    """

    curve: Curve
    steps: int
    warmup: int = 0
    hold: int = 1

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = step // self.hold * self.hold - self.warmup
        return self.curve(min(1.0, done / (self.steps - self.warmup)))

    @classmethod
    def of(cls, config: Config, batches: int) -> Rate:
        """That of a run whose epochs have ``batches`` steps."""
        entry = names.LR_CURVES.find(config.lr_curve)
        hold = batches if entry.by_epoch else 1
        return cls(entry.curve, config.epochs * batches, config.warmup * batches, hold)
