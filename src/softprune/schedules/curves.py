"""Learning-rate curves h on [0, 1] and their integrals: what S-LATS and PGH are made of.

A curve is any callable ``h(x) -> float`` with h >= 0, x being the share of training done; its scale does not matter.

    Cosine          cosine annealing to zero
    Polynomial      (1 − x)^κ; a constant learning rate for κ = 0
    Steps           step decay
    DecayedCosine   cosine annealing × β^x, which PGH integrates
    Decayed         any curve × β^x

A curve that knows its antiderivative offers it as ``integral(x)`` = ∫₀ˣ h. Every other curve is integrated
numerically, by Simpson's rule on 4,096 panels: to 1e-12 where it is smooth and 1e-6 at a kink. A jump costs up to 1e-4
of its height: about 1e-4 of the integral.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from numbers import Real

from softprune.errors import ArgumentError, require

Curve = Callable[[float], float]

_PANELS = 4096


@dataclass(frozen=True)
class Cosine:
    """Cosine annealing to zero: h(x) = ½ (1 + cos πx).

    >>> Cosine()(0.5), Cosine().integral(1.0)
    (0.5, 0.5)
    """

    def __call__(self, x: float) -> float:
        return 0.5 * (1.0 + math.cos(math.pi * x))

    def integral(self, x: float) -> float:
        return 0.5 * (x + math.sin(math.pi * x) / math.pi)


@dataclass(frozen=True)
class Polynomial:
    """Polynomial decay: h(x) = (1 − x)^κ.

    Args:
        power: κ >= 0; 1 is a straight line to zero, 0 a constant learning rate.

    >>> Polynomial(power=1.0)(0.25), Polynomial(power=1.0).integral(1.0)
    (0.75, 0.5)
    """

    power: float = 0.9

    def __post_init__(self) -> None:
        require("Polynomial", "power", self.power, ">= 0", lambda x: x >= 0)

    def __call__(self, x: float) -> float:
        return float((1.0 - x) ** self.power)

    def integral(self, x: float) -> float:
        return float((1.0 - (1.0 - x) ** (self.power + 1.0)) / (self.power + 1.0))


@dataclass(frozen=True)
class Steps:
    """Step decay: the learning rate is multiplied by ``factor`` at each of the shares of training ``at``.

    ``MultiStepLR(optimizer, [30, 60], gamma=0.1)`` over 90 epochs is ``Steps(at=(30 / 90, 60 / 90), factor=0.1)``.

    Args:
        at: where the learning rate steps down; increasing, between 0 and 1.
        factor: what it is multiplied by, > 0.

    >>> h = Steps(at=(0.25, 0.5), factor=0.5)
    >>> h(0.2), h(0.25), h(0.9), h.integral(0.5), h.integral(1.0)
    (1.0, 0.5, 0.25, 0.375, 0.5)
    """

    at: tuple[float, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        at = tuple(self.at) if isinstance(self.at, Iterable) else ()
        known = at and all(isinstance(x, Real) for x in at)
        if not known or not all(earlier < later for earlier, later in pairwise((0.0, *at, 1.0))):
            raise ArgumentError(
                "`Steps(at=...)` must be increasing shares of training between 0 and 1, as (0.5, 0.75). "
                f"Got {self.at!r}."
            )
        object.__setattr__(self, "at", at)  # a list has no hash
        require("Steps", "factor", self.factor, "> 0 and finite", lambda x: 0 < x < math.inf)

    def __call__(self, x: float) -> float:
        return float(self.factor ** bisect_right(self.at, x))

    def integral(self, x: float) -> float:
        ends = [0.0, *(end for end in self.at if end < x), x]
        return math.fsum(self.factor**n * (end - begin) for n, (begin, end) in enumerate(pairwise(ends)))


@dataclass(frozen=True)
class DecayedCosine:
    """Cosine annealing times an exponentially decaying penalty: h(x) = ½ (1 + cos πx) · β^(x − x₀), x >= x₀.

    The antiderivative, from x₀ = ``origin`` on, is written with a = −log β and expm1, so it neither overflows
    as β → 0 nor divides by zero as β → 1, where it becomes ``Cosine``'s. The decay counts from x₀ because a
    difference of two integrals from zero would be lost in rounding: β^x₀ may be 10⁻¹⁵⁰.

    Args:
        beta: β, > 0 and < 1.
        origin: x₀.

    >>> round(DecayedCosine(beta=0.1).integral(1.0), 6)
    0.278906
    """

    beta: float
    origin: float = 0.0

    def __post_init__(self) -> None:
        require(type(self).__name__, "beta", self.beta, "> 0 and < 1", lambda x: 0 < x < 1)

    def __call__(self, x: float) -> float:
        return float(0.5 * (1.0 + math.cos(math.pi * x)) * self.beta ** (x - self.origin))

    def integral(self, x: float) -> float:
        a = -math.log(self.beta)
        decay = math.exp(-a * (x - self.origin))
        level = -math.expm1(-a * (x - self.origin)) / a
        wave = decay * self._wave(a, x) - self._wave(a, self.origin)
        return 0.5 * (level + wave / (a * a + math.pi * math.pi))

    @staticmethod
    def _wave(a: float, x: float) -> float:
        return math.pi * math.sin(math.pi * x) - a * math.cos(math.pi * x)


@dataclass(frozen=True)
class Decayed:
    """Any curve times an exponentially decaying penalty: h(x) · β^(x − x₀), x >= x₀.

    Args:
        curve: h.
        beta: β, > 0 and < 1.
        origin: x₀.

    >>> Decayed(Polynomial(0.0), beta=0.01)(0.5)
    0.1
    """

    curve: Curve
    beta: float
    origin: float = 0.0

    def __post_init__(self) -> None:
        require(type(self).__name__, "beta", self.beta, "> 0 and < 1", lambda x: 0 < x < 1)

    def __call__(self, x: float) -> float:
        return float(self.curve(x) * self.beta ** (x - self.origin))


def integral(curve: Curve, x: float, origin: float = 0.0) -> float:
    """∫ of a curve from ``origin`` to ``x``, by its own antiderivative if it has one, else by Simpson's rule.

    Args:
        curve: h, hashable unless it has an antiderivative: its table of areas is kept.
        x: the upper limit, origin <= x <= 1.
        origin: the lower limit.

    >>> integral(Polynomial(1.0), 0.5)
    0.375
    >>> round(integral(lambda x: 1.0 - x, 0.5), 12)
    0.375
    """
    antiderivative = getattr(curve, "integral", None)
    if antiderivative is not None:
        return float(antiderivative(x) - antiderivative(origin))
    heights, areas = _table(curve, origin)
    width = (1.0 - origin) / _PANELS
    n = min(int((x - origin) / width), _PANELS - 1)
    # Inside a panel, a cubic through its areas whose slopes are the heights. Slopes of at most three times the mean
    # height keep it increasing (Fritsch and Carlson 1980), also where the curve jumps.
    mean = (areas[n + 1] - areas[n]) / width
    left, right = min(heights[n], 3 * mean), min(heights[n + 1], 3 * mean)
    u = (x - origin) / width - n
    return areas[n] + width * u * (left + u * (3 * mean - 2 * left - right + u * (left + right - 2 * mean)))


@lru_cache(maxsize=64)
def _table(curve: Curve, origin: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The curve's heights at the ends of the panels of [origin, 1], and the areas up to there."""
    points = [min(1.0, origin + (1.0 - origin) * i / (2 * _PANELS)) for i in range(2 * _PANELS + 1)]
    h = [curve(x) for x in points]
    sixth = (1.0 - origin) / (6 * _PANELS)
    panels = (sixth * (a + 4 * b + c) for a, b, c in zip(h[::2], h[1::2], h[2::2], strict=False))
    return tuple(h[::2]), tuple(accumulate(panels, initial=0.0))
