"""How the odds of being zero grow, and the final threshold D that ends at the odds wanted.

The rule. Under a constant penalty the threshold is proportional to the learning done, x = Σ η so far / Σ η in all. The
odds of being zero, zeros / nonzeros, grow regularly with x, and once more when the learning rate falls
(docs/target_sparsity.md has the measurements):

    odds(x) = odds(1) · x^b / (1 + c · η / η_max)                                        b = 1.3, c = 0.4

1. Predict. If the threshold goes on as before, to d / x, the odds at the end are

    predicted = odds(x) · growth,    growth = x^−b · annealed,    annealed = (1 + c·η/η_max) / (1 + c·η_last/η_max)

   where c shrinks if the learning rate falls so late that little is learned afterwards.

2. Correct D. Early in training weights follow the threshold: the odds at the end are proportional to D, so D must be
   d/x · wanted/predicted. Late in training weights hardly move: with q the quantile of |θ| at the odds wanted / growth,
   D must be q / x. One gives way to the other as the weights settle:

    D = (d/x · wanted/predicted)^(1−s) · (q/x)^s,       s = x^8

   The first factor stays within 4 times the second, and log D moves half of the way to each new solution at first, all
   of it at the end, where D is the quantile of the target.

3. Guess, while x < 0.2: weights still remember their initialization, and their odds tell little. There 1.2 times the
   quantile of |θ| at the target stands in the place of q / x, with s = 1 − x / 0.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fit:
    """The constants of the rule. Measured on CIFAR-10 with ResNet-18, 30 epochs, LATS at four final thresholds, seed 0
    (docs/data/findings/curves.csv), unless another source is named."""

    growth: float = 1.3
    """b: how the odds grow with the learning done."""
    annealing: float = 0.4
    """c: what they gain when the learning rate falls from its maximum to zero."""
    cooling: float = 0.05
    """The share of the learning, at lower rates, that it takes to gain all of that; chosen for learning rates
    that fall in the last tenth or fiftieth of the steps (tests/thresholds/test_target.py)."""
    early: float = 0.2
    """The share of the learning before which D is, less and less, guessed."""
    guess: float = 1.2
    """D over the quantile of |θ| at the target, in the beginning; runs ended at 0.7 to 2.6 times it."""
    settling: int = 8
    """x to this power is how far the weights have settled: how much the quantile counts."""
    trust: float = 4.0
    """How far, as a factor, odds ∝ D may lead away from what the quantile tells. A safeguard, not a measurement."""
    gain: float = 0.5
    """How far log D moves to each new solution while nothing is settled. Any exponent of odds ∝ D^a below 4 converges
    with it."""


FIT = Fit()


@dataclass(frozen=True)
class Standing:
    """Where a cell of weights stands: its threshold, the D aimed at, its odds of being zero, and those wanted."""

    d: float
    final: float
    odds: float
    wanted: float


def odds(share: float) -> float:
    """The odds of being zero, where this share is.

    >>> odds(0.75)
    3.0
    """
    return share / max(1 - share, 1e-9)


def share(odds: float) -> float:
    """The inverse of ``odds``.

    >>> share(3.0)
    0.75
    """
    return odds / (1 + odds)


def annealing(lr: float, last: float, top: float, cooler: float, fit: Fit = FIT) -> float:
    """What the odds will gain when the learning rate falls to its ``last``; ``top`` is the highest of all.

    ``cooler`` is the share of the learning that is still to be done at lower rates, each counted by how much lower it
    is: Σ η·(1 − η / lr) over all Σ η. Noise takes that long to settle.
    """
    if lr <= 0:
        return 1.0
    whole = (top + fit.annealing * lr) / (top + fit.annealing * last)
    return 1 + (whole - 1) * min(1.0, max(0.0, cooler * top / lr / fit.cooling))


def forecast(cell: Standing, x: float, annealed: float, fit: Fit = FIT) -> float:
    """The sparsity at the end that the D of the last solution leads to."""
    return share(_predicted(cell, x, annealed, fit) * cell.final * x / cell.d) if cell.d > 0 else 0.0


def solve(
    cells: Sequence[Standing],
    x: float,
    annealed: float,
    quantiles: Callable[[list[float]], list[float]],
    fit: Fit = FIT,
) -> list[float]:
    """D for each cell.

    Args:
        cells: where they stand.
        x: the share of the learning done.
        annealed: what the odds will gain when the learning rate falls (``annealing``).
        quantiles: a function of one share for each cell, which gives the thresholds that zero them now; called once.
        fit: the constants.
    """
    growth = _growth(x, annealed, fit)
    at = [share(cell.wanted / growth if x >= fit.early else cell.wanted) for cell in cells]
    return [_final(cell, x, annealed, q, fit) for cell, q in zip(cells, quantiles(at), strict=True)]


def _final(cell: Standing, x: float, annealed: float, q: float, fit: Fit) -> float:
    if cell.d == 0:
        return fit.guess * q
    settled = x**fit.settling
    anchor, weight = (q / x, settled) if x >= fit.early else (fit.guess * q, 1 - x / fit.early)
    found = cell.d * (cell.wanted / _predicted(cell, x, annealed, fit)) / x
    if anchor > 0:  # unless most weights are zero of themselves
        found = min(max(found, anchor / fit.trust), anchor * fit.trust) ** (1 - weight) * anchor**weight
    gain = fit.gain + (1 - fit.gain) * settled
    return float(cell.final ** (1 - gain) * found**gain)


def _predicted(cell: Standing, x: float, annealed: float, fit: Fit) -> float:
    return max(cell.odds, 1e-9) * _growth(x, annealed, fit)


def _growth(x: float, annealed: float, fit: Fit) -> float:
    return float(max(x, 1e-3) ** -fit.growth * annealed)
