"""Ask for a sparsity and get it: the penalty that ends there, found while training.

Under a constant penalty the threshold is proportional to the learning done, x = Σ η so far / Σ η in all, and the odds
of being zero grow regularly with it (docs/target_sparsity.md measures it):

    odds(x) ≈ odds(1) · x^b,     odds(1) ∝ D,     odds = zeros / nonzeros,     b ≈ 1.3

So the odds measured now tell the D that ends at the target, D = (d / x) · odds(target) · x^b / odds(now), and with it
the penalty for the learning still to come, μ = (D − d) / Σ η to come. It is solved again every few steps, and changed
gently, for a constant penalty is what makes LATS good. When little learning is left, weights hardly move any more, and
D tends to the quantile of |θ| as it is. The last step lands on that quantile exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from torch.optim.lr_scheduler import LRScheduler

from softprune.hidden import Hidden
from softprune.quantile import density, kth_magnitude, size
from softprune.threshold import Columns, Threshold, future_lrs

GROWTH = 1.3  # b: how the odds grow with the learning done
EARLY = 0.03  # of the learning: before it, the odds tell nothing, and D is guessed
GUESS = 2.0  # times the quantile of the first |θ|
LATE = 0.15  # of the learning: after 1 − LATE, D tends to the quantile
GAIN = 0.5  # how far log μ moves towards each new solution


@dataclass(frozen=True)
class TargetSparsity(Threshold):
    """Ends a run of ``steps`` with the share ``target`` of the pruned parameters at zero.

    One threshold for all parameters. Every ``refresh`` steps the penalty is solved for again, which is when the host
    waits for the device; a hundredth of the run, but at most 100, when None. ``lr_scheduler``, if given, is played
    forward to know the learning still to come; else it is taken to end as cosine annealing does. Neither changes where
    the run ends, only how constant the penalty is on the way.

        pruner = sp.Pruner(params, optimizer, threshold=sp.TargetSparsity(0.95, steps=T))
    """

    target: float
    steps: int
    lr_scheduler: LRScheduler | None = field(default=None, kw_only=True, repr=False, compare=False)
    start: int = field(default=0, kw_only=True)
    refresh: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise ValueError(f"`TargetSparsity(target=...)` must be > 0 and < 1. Got {self.target}.")
        if not 0 <= self.start < self.steps:
            raise ValueError(
                f"`TargetSparsity` needs steps > start >= 0. Got steps = {self.steps}, start = {self.start}."
            )
        if self.refresh is not None and self.refresh < 1:
            raise ValueError(f"`TargetSparsity(refresh=...)` must be >= 1. Got {self.refresh}.")

    def watch(self, hidden: Hidden) -> Threshold:
        lrs = None if self.lr_scheduler is None else tuple(future_lrs(self.lr_scheduler, self.steps))
        return Controller(replace(self, lr_scheduler=None), hidden, lrs)

    def initial(self, count: int) -> Columns:
        return ([0.0] * count,)

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        raise TypeError("`TargetSparsity` advances through the controller that `watch` returns.")


class Controller(Threshold):
    """A ``TargetSparsity`` that watches the weights of one pruner."""

    def __init__(self, goal: TargetSparsity, hidden: Hidden, lrs: tuple[float, ...] | None) -> None:
        self.goal = goal
        self.hidden = hidden
        self.lrs = lrs
        self.refresh = goal.refresh or min(100, max(1, goal.steps // 100))
        self.penalty = 0.0  # μ
        self.learned = 0.0  # Σ η so far
        self.forecast: float | None = None  # the final sparsity that the penalty before the last change led to

    def __repr__(self) -> str:
        return repr(self.goal)

    def initial(self, count: int) -> Columns:
        return self.goal.initial(count)

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        goal, d, lr = self.goal, float(columns[0][0]), lrs[0]
        if step <= goal.start or step > goal.steps:
            return columns
        if step == goal.steps:
            d = self._quantile()
        else:
            if self.penalty == 0.0 or (step - goal.start) % self.refresh == 0:
                self._solve(d, step - 1, lr)
            self.learned += lr
            d += self.penalty * lr
        return ([d] * len(lrs),)

    def state(self) -> dict[str, float]:
        return {"penalty": self.penalty, "learned": self.learned}

    def load_state(self, state: dict[str, float]) -> None:
        if state.keys() != self.state().keys():
            raise ValueError("Cannot load this state: it was saved with another kind of threshold than TargetSparsity.")
        self.penalty, self.learned = state["penalty"], state["learned"]

    def _solve(self, d: float, step: int, lr: float) -> None:
        to_come = self._to_come(step, lr)
        if to_come <= 0:
            return
        x = self.learned / (self.learned + to_come)
        quantile = self._quantile()
        final = GUESS * quantile
        if x > EARLY:
            alive = max(density(self.hidden, d), 1 / size(self.hidden))
            odds, wanted = (1 - alive) / alive, self.goal.target / (1 - self.goal.target)
            grown = odds / x**GROWTH * (d + self.penalty * to_come) * x / d if d > 0 else 0.0
            self.forecast = grown / (1 + grown)
            if odds > 0:
                final = d / x * wanted * x**GROWTH / odds
        late = min(1.0, (1 - x) / LATE)
        final = math.exp(late * math.log(final) + (1 - late) * math.log(quantile)) if quantile > 0 else final
        solved = max((final - d) / to_come, 0.2 * self.penalty)  # a weight that is dead by now may come back: go slower
        self.penalty = self.penalty ** (1 - GAIN) * solved**GAIN if self.penalty > 0 else solved

    def _quantile(self) -> float:
        """The threshold at which the target is met as the weights are now."""
        return kth_magnitude(self.hidden, max(1, round(self.goal.target * size(self.hidden))))

    def _to_come(self, step: int, lr: float) -> float:
        if self.lrs is not None:
            return math.fsum(self.lrs[step:])
        return 0.5 * lr * (self.goal.steps - step)
