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
from heapq import heappush, heapreplace
from itertools import accumulate, pairwise
from typing import NamedTuple

Curve = Callable[[float], float]

_KNOTS = 1024  # panels of the cumulative table: a training step needs the integral over less than one
_HALVINGS = 200  # in one panel at most: enough for five jumps


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
    """Polynomial decay: h(x) = (1 − x)^κ, κ being ``power``; 0 is a constant learning rate.

    >>> Polynomial(power=1.0).integral(1.0)
    0.5
    """

    power: float = 0.9

    def __post_init__(self) -> None:
        if not self.power >= 0:
            raise ValueError(f"`Polynomial(power=...)` must be >= 0. Got {self.power}.")

    def __call__(self, x: float) -> float:
        return float((1.0 - x) ** self.power)

    def integral(self, x: float) -> float:
        return float((1.0 - (1.0 - x) ** (self.power + 1.0)) / (self.power + 1.0))


@dataclass(frozen=True)
class DecayedCosine:
    """Cosine annealing times an exponentially decaying penalty: h(x) = ½ (1 + cos πx) · β^(x − x₀), x >= x₀.

    The antiderivative, from x₀ = ``origin`` on, is written with a = −log β and expm1, so it neither overflows
    as β → 0 nor divides by zero as β → 1, where it becomes ``Cosine``'s. The decay counts from x₀ because a
    difference of two integrals from zero would be lost in rounding: β^x₀ may be 10⁻¹⁵⁰.
    """

    beta: float
    origin: float = 0.0

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
    """Any curve times an exponentially decaying penalty: h(x) · β^(x − x₀) from x₀ = ``origin`` on, else zero."""

    curve: Curve
    beta: float
    origin: float = 0.0

    def __call__(self, x: float) -> float:
        return float(self.curve(x) * self.beta ** (x - self.origin)) if x >= self.origin else 0.0


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
    """Adaptive Simpson rule. It halves the worst piece, which closes in on a jump 40 halvings later.

    The tolerance does not shrink with the piece, and the halvings are counted: rounding in ``curve`` would
    otherwise be chased for ever.
    """
    values = tuple(curve(a + (b - a) * i / 4) for i in range(5))
    tolerance = 4e-16 * max(map(abs, values))
    pieces = [_piece(a, b, values)]
    for _ in range(_HALVINGS):
        if pieces[0].worth >= -tolerance:
            break
        worst = pieces[0]
        heapreplace(pieces, _half(curve, worst, 0))
        heappush(pieces, _half(curve, worst, 1))
    return math.fsum(piece.integral for piece in pieces)


class _Piece(NamedTuple):
    worth: float  # minus the error, so that the worst piece comes first
    a: float
    b: float
    values: tuple[float, ...]  # at a, b and the quarters between
    integral: float


def _piece(a: float, b: float, values: tuple[float, ...]) -> _Piece:
    f0, f1, f2, f3, f4 = values
    coarse = (b - a) / 6 * (f0 + 4 * f2 + f4)
    fine = (b - a) / 12 * (f0 + 4 * f1 + 2 * f2 + 4 * f3 + f4)
    return _Piece(-abs(fine - coarse), a, b, values, fine + (fine - coarse) / 15)


def _half(curve: Curve, piece: _Piece, side: int) -> _Piece:
    middle = (piece.a + piece.b) / 2
    a, b = (piece.a, middle) if side == 0 else (middle, piece.b)
    f0, f2, f4 = piece.values[2 * side : 2 * side + 3]
    return _piece(a, b, (f0, curve(a + (b - a) / 4), f2, curve(a + (b - a) * 3 / 4), f4))
