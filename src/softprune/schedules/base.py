"""Threshold schedules: step -> d.

    d(t) = D · g(t / T),    g(0) = 0,  g(1) = 1,  g increasing

with D = ``final`` and T = ``steps``, the length of training in optimizer steps. Schedules differ in the L1 penalty that
they imply, μ(t) = (d(t+1) − d(t)) / η(t) (see ``penalty.py``):

    Sine, Linear, Log2    STDS: shapes chosen by hand; under cosine annealing μ ends at infinity
    SLATS                 μ constant: d follows the integral of the learning-rate curve (Eq. 10-11)
    PGH                   μ decays as βˣ: sparse early; β -> 1 is SLATS, β -> 0 pruning at initialization
    CosineLATS            μ constant, summed exactly for cosine annealing by epochs (Eq. 9)
    Constant              d at once, then a normal training run: the limit β -> 0 itself

If training goes on past T, d stays at D. With ``start``, d is zero for that many steps and still reaches D at T.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from softprune.errors import require_nonnegative, require_range, require_whole


@dataclass(frozen=True)
class Schedule(ABC):
    """A threshold that is known in advance: ``schedule(step) -> d``.

    A schedule that rises over a given number of steps subclasses ``Ramp`` and gives ``shape``, which is g.

    Args:
        final: D, the threshold at the end.

    >>> class Root(Ramp):
    ...     def shape(self, x):
    ...         return x**0.5
    >>> Root(final=0.4, steps=100)(25)
    0.2
    """

    final: float

    @abstractmethod
    def __call__(self, step: int) -> float:
        """d after ``step`` optimizer steps."""


@dataclass(frozen=True)
class Ramp(Schedule):
    """d(t) = D · g(t / T), and zero for the first ``start`` steps; a subclass gives ``shape``, which is g.

    Args:
        final: D, the threshold at the end.
        steps: T, the length of training in optimizer steps.
        start: optimizer steps before pruning begins.
    """

    steps: int
    start: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        require_nonnegative(type(self).__name__, "final", self.final)
        require_range(type(self).__name__, self.steps, self.start)

    def __call__(self, step: int) -> float:
        if step <= self.start:
            return 0.0
        if step >= self.steps:
            return float(self.final)
        return float(self.final * self.shape(step / self.steps))

    @abstractmethod
    def shape(self, x: float) -> float:
        """g(x) for a share x of training, start/T < x < 1."""

    @property
    def origin(self) -> float:
        """The share of training at which pruning begins."""
        return self.start / self.steps


@dataclass(frozen=True)
class Constant(Schedule):
    """d(t) = D from step ``start`` on, at once: pruning at initialization, then normal training.

    Args:
        final: D, the threshold.
        start: optimizer steps before pruning.

    >>> Constant(final=0.1)(0), Constant(final=0.1, start=1)(0)
    (0.1, 0.0)
    """

    start: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        require_nonnegative(type(self).__name__, "final", self.final)
        require_whole(type(self).__name__, "start", self.start)

    def __call__(self, step: int) -> float:
        return float(self.final) if step >= self.start else 0.0
