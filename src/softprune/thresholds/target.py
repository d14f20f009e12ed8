"""Ask for a sparsity and get it: the penalty that leads there, found while training.

Every few steps the odds of being zero are measured, ``odds.solve`` tells the threshold D that arrives at the odds
wanted, and the penalty for the learning still to come is μ = (D − d) / Σ η to come. A constant penalty is what makes
LATS good, so D is changed gently. The step of arrival lands: d is the quantile of the target, and nearly there already.
Where channels, neurons or heads die, the odds follow no such law, and d goes the way of ``GradualSparsity``.

    TargetSparsity    the value: what is asked for
    TargetRule        D and μ of each cell; the lines above are ``approach``
    Clock             the learning done and to come, when to solve
    Race              whether weights outrun the threshold
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from softprune.attach.future import Future, future_lrs
from softprune.attach.lookup import LearningRate, group_indices, read, require_lr
from softprune.attach.wrappers import unwrap_scheduler
from softprune.errors import require_whole
from softprune.thresholds import odds
from softprune.thresholds.aim import Aim, AimRule
from softprune.thresholds.base import Rule, Weights
from softprune.thresholds.clock import Clock
from softprune.thresholds.gradual import CURVE, GradualRule
from softprune.thresholds.race import Race


@dataclass(frozen=True)
class TargetSparsity(Aim):
    """Brings the share ``target`` of the pruned parameters to zero, and holds it to the end of ``steps``.

        pruner = sp.Pruner(params, optimizer, threshold=sp.TargetSparsity(0.95, steps=T))

    Args:
        target: the share of the pruned weights that is zero at the end, between 0 and 1.
        steps: T, the length of training in optimizer steps. Whoever trains on keeps the target.
        arrive: the share of the run after which the target is reached. It is held from then on, while weights still
            come and go; 1 arrives with the last step.
        budget: a sparsity for each parameter, {name: sparsity}, or ``sp.uniform``, ``sp.erdos_renyi``, ``sp.erk``. When
            None, one threshold serves all parameters, and training decides which layers are sparse.
        flops: from ``sp.flops_per_weight(model, example)``: the target counts multiplications instead of weights.
        min_density: the share of every parameter that stays, so that no layer collapses by accident; 0 lets them.
        start: optimizer steps before pruning begins.
        refresh: optimizer steps between two looks at the weights, each of which is a host sync; a hundredth of the run,
            but at most 100, when None.
        lr_scheduler: played forward on a copy to know the learning still to come. When None, the learning rate is taken
            to fall linearly to zero. The target is reached either way; the penalty is more constant with it.
        interval: optimizer steps between two steps of ``lr_scheduler``.

    >>> TargetSparsity(0.95, steps=1000).target
    0.95
    """

    lr_scheduler: LRScheduler | None = field(default=None, kw_only=True, repr=False, compare=False)
    interval: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("TargetSparsity", "interval", self.interval, least=1)

    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        require_lr("TargetSparsity", optimizer)
        if weights.prox.spans:  # units of one place begin with nearly one size: no penalty takes some and leaves others
            return GradualRule(replace(self, lr_scheduler=None), weights, CURVE)
        future = None
        if self.lr_scheduler is not None:
            groups = set(group_indices(unwrap_scheduler(self.lr_scheduler).optimizer, weights.params))
            lrs = future_lrs(self.lr_scheduler, self.steps, self.interval, groups)
            future = Future(lrs[: self.arrival])
        return TargetRule(replace(self, lr_scheduler=None), weights, future)


class TargetRule(AimRule):
    """d of each cell on its way to D, which is solved for again and again."""

    threshold: TargetSparsity
    fit = odds.FIT

    def __init__(self, aim: TargetSparsity, weights: Weights, future: Future | None) -> None:
        super().__init__(aim, weights)
        self.clock = Clock(aim, future, self.fit)
        self.race = Race(weights)
        self.finals = [0.0] * len(self.d)  # D
        self.penalties = [0.0] * len(self.d)  # μ

    @property
    def skipped(self) -> int:
        return self.clock.skipped

    def approach(self, step: int, lrs: Sequence[LearningRate]) -> None:
        aim, lr = self.threshold, max(read(lrs))
        if step == 1:  # after a ``start``, what weights learned before is not seen
            self.race.start()
        elif step == (aim.start + aim.arrival) // 2:
            self.race.check(self.levels[0], step)  # type: ignore[arg-type]
        if self.clock.due(step, lr):
            self._solve(step - 1, lr)
            self.clock.solved_at = lr
        self.clock.learned += lr
        self.d = [self._next(*cell, lr) for cell in zip(self.d, self.finals, self.penalties, strict=True)]

    def _solve(self, step: int, lr: float) -> None:
        """D and μ of each cell, after ``step`` steps and before one that uses ``lr``."""
        to_come = self.clock.to_come(step, lr)
        if to_come <= 0:
            return
        x = self.clock.learned / (self.clock.learned + to_come)
        annealed = self.clock.annealed(step, lr)
        census = self.census
        left = census.watched(self.levels[0])  # type: ignore[arg-type]
        standings = [
            odds.Standing(d, final, odds.odds(1 - alive / mass), odds.odds(target))
            for d, final, alive, mass, target in zip(
                self.d, self.finals, left, census.masses, census.targets, strict=True
            )
        ]
        self.forecast = self._forecast(standings, x, annealed)
        self.finals = odds.solve(standings, x, annealed, self.quantiles, self.fit)
        self.penalties = [(final - d) / to_come for final, d in zip(self.finals, self.d, strict=True)]

    @staticmethod
    def _next(d: float, final: float, penalty: float, lr: float) -> float:
        """d after a step: on its way to D, and no further, should the learning rate be higher than predicted."""
        d += penalty * lr
        return min(d, final) if penalty > 0 else max(d, final)

    def _forecast(self, standings: Sequence[odds.Standing], x: float, annealed: float) -> float | None:
        if x <= self.fit.early:
            return None
        counted = zip(self.census.masses, standings, strict=True)
        return math.fsum(mass * odds.forecast(s, x, annealed, self.fit) for mass, s in counted) / self.census.total

    def numbers(self) -> dict[str, float]:
        return {**self.clock.numbers(), **super().numbers()}

    def lists(self) -> dict[str, list[float]]:
        return {"penalty": self.penalties, "final": self.finals, **super().lists()}

    def take(self, numbers: Mapping[str, float]) -> None:
        self.clock.take(numbers)
        super().take(numbers)
