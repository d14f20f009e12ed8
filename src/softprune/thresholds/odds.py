"""How the odds of being zero grow, and the final threshold D that ends at the odds wanted.

Under a constant penalty the threshold is proportional to the learning done, x = Σ η so far / Σ η in all, and the odds
of being zero, zeros / nonzeros, grow regularly with it, and once more when the learning rate falls
(docs/target_sparsity.md measures it):

    odds ≈ odds(at the end) · x^b / (1 + c · η / η_max),     b ≈ 1.3,     c ≈ 0.4

where c shrinks if the learning rate falls so late that little is learned afterwards.
So the odds measured now tell those at the end, if the threshold goes on to D = d / x. If they are not the odds wanted,
D is corrected. Early, weights follow the threshold, and the odds at the end are proportional to D. Late, they hardly
move any more: q, the quantile of |θ| as it is at the odds wanted over the growth to come, tells which threshold is
right. In between one view gives way to the other, s being how far the weights have settled:

    D = (d / x · wanted / foreseen)^(1−s) · (q / x)^s,     s = x^8

with the first factor never far from the second, and log D moved gently. At the end D is the quantile of the target. In
the beginning weights are still those of the initialization, and their odds tell little. But then the quantile of the
target itself is not far from D; so while x < 0.2, 1.2 · q stands in the place of q / x, with s = 1 − x / 0.2.
"""

from __future__ import annotations

GROWTH = 1.3  # b: how the odds grow with the learning done
ANNEALING = 0.4  # c: what they gain when the learning rate falls from its maximum to zero
COOLING = 0.05  # of the learning, at lower rates, for the odds to gain all of that
EARLY = 0.2  # of the learning: before it D is, less and less, guessed
GUESS = 1.2  # times the quantile of |θ| at the target
SETTLING = 8  # x to this power is how far the weights have settled: how much the quantile counts
TRUST = 4.0  # how far, as a factor, odds ∝ D may lead away from what the quantile tells
GAIN = 0.5  # how far log D moves towards each new solution while nothing is settled


def odds(share: float) -> float:
    """Of being zero, where this share is.

    >>> odds(0.75)
    3.0
    """
    return share / max(1 - share, 1e-9)


def share(odds: float) -> float:
    """The other way round.

    >>> share(3.0)
    0.75
    """
    return odds / (1 + odds)


def annealing(lr: float, last: float, top: float, cooler: float) -> float:
    """What the odds will gain when the learning rate falls to its ``last``; ``top`` is the highest of all.

    ``cooler`` is the share of the learning that is still to be done at lower rates, each counted by how much lower it
    is: Σ η·(1 − η / lr) over all Σ η. Noise takes that long to settle; 0.05 of it is enough at the highest rate.
    """
    if lr <= 0:
        return 1.0
    whole = (top + ANNEALING * lr) / (top + ANNEALING * last)
    return 1 + (whole - 1) * min(1.0, max(0.0, cooler * top / lr / COOLING))


def growth(x: float, annealed: float) -> float:
    """How many times the odds of now will be those at the end, if the threshold goes on to d / x."""
    return float(max(x, 1e-3) ** -GROWTH * annealed)


def odds_today(wanted: float, x: float, growth: float) -> float:
    """The odds at which ``final`` wants the quantile of |θ| as it is."""
    return wanted / growth if x >= EARLY else wanted


def final(d: float, x: float, lacking: float, q: float, old: float) -> float:
    """D where the odds must become ``lacking`` times what is foreseen; it was ``old`` up to now."""
    if d == 0:
        return GUESS * q
    settled = x**SETTLING
    anchor, weight = (q / x, settled) if x >= EARLY else (GUESS * q, 1 - x / EARLY)
    found = d * lacking / x
    if anchor > 0:  # unless most weights are zero of themselves
        found = min(max(found, anchor / TRUST), anchor * TRUST) ** (1 - weight) * anchor**weight
    gain = GAIN + (1 - GAIN) * settled
    return float(old ** (1 - gain) * found**gain)
