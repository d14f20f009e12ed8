"""The bridge of Theorem 1: every threshold schedule is an L1 penalty, and every L1 penalty a threshold schedule.

    μ(t) = (d(t+1) − d(t)) / η(t)          d(t) = d(0) + Σ μ(i) · η(i)  over i < t

For nonzero weights one step of soft threshold pruning with plain SGD is one proximal-gradient (ISTA) step
on ``loss + μ(t)·‖w‖₁``. Weight decay λ acts on θ = w + d·sign(w), and so it is weight decay λ on w together
with one more L1 penalty, λ·d(t) (docs/math.md derives it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import accumulate

from softprune.errors import ArgumentError


def implied_penalty(
    schedule: Callable[[int], float], lrs: Iterable[float], *, weight_decay: float = 0.0
) -> list[float]:
    """[μ(0), ..., μ(T−1)], the L1 penalties that a schedule implies: μ(t) = (d(t+1) − d(t)) / η(t).

    Where η(t) = 0 a growing threshold is an infinite penalty.

    Args:
        schedule: step -> d, such as ``sp.SLATS(final=0.1, steps=T)``.
        lrs: the learning rates η(0), ..., η(T−1).
        weight_decay: λ; the L1 part of its effect, λ·d(t), is added.

    >>> from softprune.schedules.stds import Linear
    >>> implied_penalty(Linear(final=1.0, steps=4), [0.5, 0.5, 0.25, 0.25])
    [0.5, 0.5, 1.0, 1.0]
    """
    return [quotient(schedule(t + 1) - schedule(t), lr) + weight_decay * schedule(t) for t, lr in enumerate(lrs)]


def threshold_from_penalty(penalties: Iterable[float], lrs: Iterable[float]) -> list[float]:
    """[d(0) = 0, d(1), ..., d(T)], the thresholds of a run with given L1 penalties: d(t) = Σ μ(i)·η(i) over i < t.

    Args:
        penalties: μ(0), ..., μ(T−1).
        lrs: the learning rates η(0), ..., η(T−1).

    >>> threshold_from_penalty([0.5, 0.5, 1.0], [0.5, 0.5, 0.25])
    [0.0, 0.25, 0.5, 0.75]
    """
    penalties, lrs = list(penalties), list(lrs)
    if len(penalties) != len(lrs):
        raise ArgumentError(
            "`threshold_from_penalty(penalties, lrs)` must be given one learning rate for each penalty. Got "
            f"{len(penalties)} penalties and {len(lrs)} learning rates."
        )
    return list(accumulate((mu * lr for mu, lr in zip(penalties, lrs, strict=True)), initial=0.0))


def quotient(growth: float, lr: float) -> float:
    """Δd / η, infinite where d changes at η = 0 and zero where nothing moves."""
    if lr == 0:
        return math.copysign(math.inf, growth) if growth else 0.0
    return growth / lr
