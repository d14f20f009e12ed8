"""STDS: shapes g chosen by hand. Under cosine annealing they imply a penalty that ends at infinity (App. B)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

from softprune.schedules.base import Ramp


class Shaped(Ramp):
    """A schedule by formula: a delayed start squeezes the whole shape into what is left of training."""

    def shape(self, x: float) -> float:
        return self.formula((x - self.origin) / (1.0 - self.origin))

    @abstractmethod
    def formula(self, x: float) -> float:
        """g on [0, 1], with g(0) = 0 and g(1) = 1."""


@dataclass(frozen=True)
class Sine(Shaped):
    """STDS's own: g(x) = ½ (1 − cos πx). Implies μ ∝ tan(πx / 2) under cosine annealing (App. B).

    Args:
        final: D, the threshold at the end.
        steps: T, the length of training in optimizer steps.
        start: optimizer steps before pruning begins.

    >>> round(Sine(final=1.0, steps=4)(2), 9)
    0.5
    """

    def formula(self, x: float) -> float:
        return 0.5 * (1.0 - math.cos(math.pi * x))


@dataclass(frozen=True)
class Linear(Shaped):
    """g(x) = x.

    Args:
        final: D, the threshold at the end.
        steps: T, the length of training in optimizer steps.
        start: optimizer steps before pruning begins.

    >>> Linear(final=1.0, steps=4)(3)
    0.75
    """

    def formula(self, x: float) -> float:
        return x


@dataclass(frozen=True)
class Log2(Shaped):
    """g(x) = log₂(1 + x).

    Args:
        final: D, the threshold at the end.
        steps: T, the length of training in optimizer steps.
        start: optimizer steps before pruning begins.

    >>> round(Log2(final=1.0, steps=4)(2), 6)
    0.584963
    """

    def formula(self, x: float) -> float:
        return math.log2(1.0 + x)
