"""S-LATS and PGH: d follows the integral of the learning-rate curve; the implied penalty is constant, or decays."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from softprune.errors import ArgumentError, ArgumentTypeError, require, require_nonnegative, require_whole
from softprune.schedules import curves
from softprune.schedules.base import Ramp, Schedule
from softprune.schedules.curves import Curve


class FromCurve(Ramp):
    """g(x) = ∫h / ∫₀¹h. A delayed start only moves the lower limit: h stays the curve of the whole run."""

    @property
    @abstractmethod
    def curve(self) -> Curve:
        """h."""

    def shape(self, x: float) -> float:
        return min(1.0, curves.integral(self.curve, x, self.origin) / self._total)  # rounding may pass 1

    @cached_property
    def _total(self) -> float:
        total = curves.integral(self.curve, 1.0, self.origin)
        if not total > 0:
            raise ArgumentError(
                f"`{type(self).__name__}(lr=...)` must be positive somewhere after the start of pruning. "
                f"Got a curve whose integral over [{self.origin}, 1] is {total}."
            )
        return total

    def _check_curve(self, lr: Curve | None) -> None:
        if lr is not None and not callable(lr):
            raise ArgumentTypeError(
                f"`{type(self).__name__}(lr=...)` must be a curve h on [0, 1], such as `softprune.curves.Cosine()`: "
                f"how the learning rate falls, not how large it is. Got {lr!r}."
            )
        if getattr(lr, "__hash__", None) is None:
            raise ArgumentTypeError(
                f"`{type(self).__name__}(lr=...)` must be hashable, since its integral is kept. Make the curve a "
                "function, or a dataclass with `frozen=True`."
            )
        for x in (i / 64 for i in range(65)):
            if lr is not None and not lr(x) >= 0:
                raise ArgumentError(
                    f"`{type(self).__name__}(lr=...)` must be a curve h(x) >= 0 on [0, 1]. Got h({x:g}) = {lr(x)}."
                )
        _ = self._total  # refuse at construction


@dataclass(frozen=True)
class SLATS(FromCurve):
    """Simplified LATS: g(x) = ∫₀ˣh / ∫₀¹h for the learning-rate curve h = ``lr`` (cosine when None).

    The implied penalty is constant, so training solves one and the same L1 problem from start to end:
    μ = D / Σ η(t).

    Args:
        final: D, the threshold at the end. How sparse it makes a network depends on the network.
        steps: T, the length of training in optimizer steps.
        start: optimizer steps before pruning begins.
        lr: the learning-rate curve h on [0, 1], any callable h(x) >= 0; ``sp.curves`` has some. Cosine when None.
            A curve of ``sp.curves`` is integrated exactly, a jump in any other to 1e-4 of its height.

    >>> SLATS(final=0.5, steps=100)
    SLATS(final=0.5, steps=100, start=0, lr=None)
    >>> [round(SLATS(final=0.5, steps=100)(t), 4) for t in (0, 25, 50, 100, 200)]
    [0.0, 0.2375, 0.4092, 0.5, 0.5]
    >>> SLATS(final=1.0, steps=10, lr=curves.Polynomial(1.0))(5)
    0.75
    """

    lr: Curve | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_curve(self.lr)

    @property
    def curve(self) -> Curve:
        return curves.Cosine() if self.lr is None else self.lr


@dataclass(frozen=True)
class PGH(FromCurve):
    """Proximal gradient homotopy: g(x) = ∫₀ˣ h·βˣ / ∫₀¹ h·βˣ, a penalty that decays as μ ∝ β^(t/T).

    The smaller β, the sooner the network is sparse: ``stop()`` tells when pruning is over.

    Args:
        final: D, the threshold at the end.
        steps: T, the length of training in optimizer steps.
        beta: β, between 0 and 1: the penalty at the end over the penalty at the start.
        start: optimizer steps before pruning begins.
        lr: the learning-rate curve h on [0, 1]; cosine when None.

    >>> round(PGH(final=1.0, steps=100, beta=1e-5)(38), 4)
    0.9928
    """

    beta: float
    lr: Curve | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.beta, float | int) or not 0 < self.beta < 1:
            raise ArgumentError(
                f"`PGH(beta=...)` must be > 0 and < 1. Got {self.beta}. For pruning at initialization "
                f"(beta -> 0) write `Constant({self.final})`; for a constant penalty (beta -> 1) write "
                f"`SLATS({self.final}, {self.steps})`."
            )
        self._check_curve(self.lr)

    @property
    def curve(self) -> Curve:
        if self.lr is None or self.lr == curves.Cosine():
            return curves.DecayedCosine(self.beta, self.origin)
        return curves.Decayed(self.lr, self.beta, self.origin)

    def stop(self, slope: float = 0.1) -> float:
        """The share of training x after which g'(x) < ``slope``: early pruning may end there.

        Args:
            slope: of g = d/D against the share of training; 1 is the mean.

        >>> [round(PGH(1.0, 100, beta=b).stop(), 3) for b in (0.1, 1e-5, 1e-10)]
        [0.743, 0.382, 0.231]
        """
        require("PGH.stop", "slope", slope, "> 0", lambda x: x > 0)
        if isinstance(self.curve, curves.DecayedCosine):
            return self._bisect(slope)  # g' falls monotonically
        grid = [i / 4096 for i in range(4097) if i / 4096 >= self.origin]
        return max((x for x in grid if self.curve(x) >= slope * self._total), default=self.origin)

    def _bisect(self, slope: float) -> float:
        low, high = self.origin, 1.0
        while high - low > 1e-12:
            middle = (low + high) / 2
            if self.curve(middle) >= slope * self._total:
                low = middle
            else:
                high = middle
        return low


@dataclass(frozen=True)
class CosineLATS(Schedule):
    """LATS for cosine annealing that changes the learning rate once an epoch (Eq. 9), ending at ``final``.

    After b steps of epoch n, of N epochs with B batches each, d is proportional to

        B/4 · (2n + 1 + sin((2n − 1)π / 2N) / sin(π / 2N)) + b/2 · (1 + cos(nπ / N))

    Args:
        final: D, the threshold at the end.
        epochs: N.
        batches: B, optimizer steps in an epoch.

    >>> CosineLATS(final=1.0, epochs=2, batches=2)(2)  # learning rates 1, 1, ½, ½  # doctest: +ELLIPSIS
    0.666...
    """

    epochs: int
    batches: int

    def __post_init__(self) -> None:
        require_nonnegative(type(self).__name__, "final", self.final)
        for name in ("epochs", "batches"):
            require_whole("CosineLATS", name, getattr(self, name), least=1)

    @property
    def steps(self) -> int:
        return self.epochs * self.batches

    def __call__(self, step: int) -> float:
        if step <= 0:
            return 0.0
        if step >= self.steps:
            return float(self.final)
        n, b = divmod(step, self.batches)
        return self.final * self._sum(n, b) / self._sum(self.epochs - 1, self.batches)

    def _sum(self, n: int, b: int) -> float:
        """The learning rates of n epochs and b batches, summed, for a peak learning rate of 1."""
        N, B = self.epochs, self.batches
        ratio = math.sin((2 * n - 1) * math.pi / (2 * N)) / math.sin(math.pi / (2 * N))
        return B / 4 * (2 * n + 1 + ratio) + b / 2 * (1 + math.cos(n * math.pi / N))
