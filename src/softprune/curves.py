"""Learning-rate curves h on [0, 1] and their integrals: what S-LATS and PGH are made of.

A curve is any callable ``h(x) -> float`` with h >= 0, x being the share of training done. A curve that
knows its antiderivative offers it as ``integral(x)`` = ∫₀ˣ h; every other curve is integrated numerically.
Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

Curve = Callable[[float], float]

_KNOTS = 1024  # panels of the cumulative table: a training step needs the integral over less than one


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
    """Polynomial decay: h(x) = (1 − x)^κ, κ being ``power``.

    >>> Polynomial(power=1.0).integral(1.0)
    0.5
    """

    power: float = 0.9

    def __post_init__(self) -> None:
        if not self.power > 0:
            raise ValueError(f"`Polynomial(power=...)` must be > 0. Got {self.power}.")

    def __call__(self, x: float) -> float:
        return float((1.0 - x) ** self.power)

    def integral(self, x: float) -> float:
        return float((1.0 - (1.0 - x) ** (self.power + 1.0)) / (self.power + 1.0))


@dataclass(frozen=True)
class DecayedCosine:
    """Cosine annealing times an exponentially decaying penalty: h(x) = ½ (1 + cos πx) · βˣ.

    The antiderivative is written with a = −log β and expm1, so it neither overflows as β → 0 nor divides
    by zero as β → 1, where it becomes ``Cosine``'s.
    """

    beta: float

    def __call__(self, x: float) -> float:
        return float(0.5 * (1.0 + math.cos(math.pi * x)) * self.beta**x)

    def integral(self, x: float) -> float:
        a = -math.log(self.beta)
        decay = math.exp(-a * x)
        level = -math.expm1(-a * x) / a
        wave = a + decay * (math.pi * math.sin(math.pi * x) - a * math.cos(math.pi * x))
        return 0.5 * (level + wave / (a * a + math.pi * math.pi))


@dataclass(frozen=True)
class Decayed:
    """Any curve times an exponentially decaying penalty: h(x) · βˣ."""

    curve: Curve
    beta: float

    def __call__(self, x: float) -> float:
        return float(self.curve(x) * self.beta**x)


def integral(curve: Curve, x: float) -> float:
    """∫₀ˣ curve, by its own antiderivative if it has one, by adaptive quadrature otherwise.

    >>> round(integral(lambda x: 1.0 if x < 0.3 else 0.1, 1.0), 12)
    0.37
    """
    antiderivative = getattr(curve, "integral", None)
    if antiderivative is not None:
        return float(antiderivative(x))
    panel = min(int(x * _KNOTS), _KNOTS - 1)
    return _cumulative(curve)[panel] + _quadrature(curve, panel / _KNOTS, x)


@lru_cache(maxsize=64)
def _cumulative(curve: Curve) -> tuple[float, ...]:
    knots = [i / _KNOTS for i in range(_KNOTS + 1)]
    return tuple(accumulate((_quadrature(curve, a, b) for a, b in pairwise(knots)), initial=0.0))


def _quadrature(curve: Curve, a: float, b: float) -> float:
    """Adaptive Simpson rule; halving stops at the tolerance, or at jumps once the piece is negligible."""
    fa, fm, fb = curve(a), curve((a + b) / 2), curve(b)
    whole = (b - a) / 6 * (fa + 4 * fm + fb)
    return _refine(curve, (a, b), (fa, fm, fb), whole, depth=40)


def _refine(
    curve: Curve,
    interval: tuple[float, float],
    values: tuple[float, float, float],
    whole: float,
    depth: int,
) -> float:
    a, b = interval
    m = (a + b) / 2
    fa, fm, fb = values
    fl, fr = curve((a + m) / 2), curve((m + b) / 2)
    left = (m - a) / 6 * (fa + 4 * fl + fm)
    right = (b - m) / 6 * (fm + 4 * fr + fb)
    error = left + right - whole
    if depth == 0 or abs(error) <= 1e-15 * max(abs(whole), b - a):
        return left + right + error / 15
    return _refine(curve, (a, m), (fa, fl, fm), left, depth - 1) + _refine(
        curve, (m, b), (fm, fr, fb), right, depth - 1
    )
