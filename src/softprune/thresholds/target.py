"""Ask for a sparsity and get it: the penalty that ends there, found while training.

Every few steps the odds of being zero are measured, ``odds.solve`` tells the threshold D that ends at the odds wanted,
and the penalty for the learning still to come is μ = (D − d) / Σ η to come. A constant penalty is what makes LATS good,
so D is changed gently. The last step lands: d is the quantile of the target, and nearly there already.

    TargetSparsity    the value: what is asked for
    TargetRule        d and D of each cell (parameters that share a threshold); the four lines above are ``advance``
    Clock             the learning done and to come, when to solve, when to land
    Guard             no parameter loses more than all but ``min_density``
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from softprune.attach.future import Future, future_lrs
from softprune.attach.lookup import LearningRate, group_indices, read, require_lr
from softprune.attach.state import Entries
from softprune.attach.wrappers import unwrap_scheduler
from softprune.errors import ArgumentError, require, require_range, require_whole
from softprune.thresholds import odds
from softprune.thresholds.base import Rule, Threshold, Weights
from softprune.thresholds.budgets import Budget, cells
from softprune.thresholds.clock import Clock
from softprune.thresholds.guard import Guard
from softprune.thresholds.quantile import Cell, quantiles, survivors

CONTROL = "control."  # keys of what the rule saves besides d, once, with the first parameter
PROMISE = 1e-3  # a target is met within 0.1 points


@dataclass(frozen=True)
class TargetSparsity(Threshold):
    """Ends a run of ``steps`` with the share ``target`` of the pruned parameters at zero.

        pruner = sp.Pruner(params, optimizer, threshold=sp.TargetSparsity(0.95, steps=T))

    Args:
        target: the share of the pruned weights that is zero at the end, between 0 and 1.
        steps: T, the length of training in optimizer steps.
        budget: a sparsity for each parameter, {name: sparsity}, or ``sp.uniform``, ``sp.erdos_renyi``, ``sp.erk``. When
            None, one threshold serves all parameters, and training decides which layers are sparse.
        flops: from ``sp.flops_per_weight(model, example)``: the target counts multiplications instead of weights.
        min_density: the share of every parameter that stays, so that no layer collapses by accident; 0 lets them.
        lr_scheduler: played forward on a copy to know the learning still to come. When None, the learning rate is taken
            to fall linearly to zero. The run ends at the target either way; the penalty is more constant with it.
        interval: optimizer steps between two steps of ``lr_scheduler``.
        start: optimizer steps before pruning begins.
        refresh: optimizer steps between two solutions, each of which is a host sync; a hundredth of the run, but at
            most 100, when None.

    >>> TargetSparsity(0.95, steps=1000).target
    0.95
    """

    target: float
    steps: int
    budget: Budget | None = field(default=None, kw_only=True)
    flops: Mapping[str, float] | None = field(default=None, kw_only=True)
    min_density: float = field(default=1e-3, kw_only=True)
    lr_scheduler: LRScheduler | None = field(default=None, kw_only=True, repr=False, compare=False)
    interval: int = field(default=1, kw_only=True)
    start: int = field(default=0, kw_only=True)
    refresh: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require("TargetSparsity", "target", self.target, "> 0 and < 1", lambda x: 0 < x < 1)
        require_range("TargetSparsity", self.steps, self.start)
        require_whole("TargetSparsity", "interval", self.interval, least=1)
        if self.refresh is not None:
            require_whole("TargetSparsity", "refresh", self.refresh, least=1)
        require("TargetSparsity", "min_density", self.min_density, ">= 0 and < 1", lambda x: 0 <= x < 1)
        if self.budget is not None and self.flops is not None:
            raise ArgumentError("`TargetSparsity` takes `budget` or `flops`, not both. Leave one out.")

    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        require_lr("TargetSparsity", optimizer)
        future = None
        if self.lr_scheduler is not None:
            groups = set(group_indices(unwrap_scheduler(self.lr_scheduler).optimizer, weights.params))
            future = Future(future_lrs(self.lr_scheduler, self.steps, self.interval, groups))
        return TargetRule(replace(self, lr_scheduler=None), weights, future)


class TargetRule(Rule):
    """d of each cell on its way to D, which is solved for again and again."""

    threshold: TargetSparsity
    counts_zeros = True
    fit = odds.FIT

    def __init__(self, goal: TargetSparsity, weights: Weights, future: Future | None) -> None:
        super().__init__(goal, weights)
        self.cells = cells(weights, goal.target, goal.budget, goal.flops)
        self.clock = Clock(goal.steps, goal.start, goal.refresh, future, self.fit)
        self.guard = Guard(weights, goal.min_density, self.fit)
        self.guard.refuse_impossible(self.cells)
        self.d = [0.0] * len(self.cells)  # before caps
        self.finals = [0.0] * len(self.cells)  # D
        self.penalties = [0.0] * len(self.cells)  # μ
        self.levels = ([0.0] * len(weights.params),)

    def advance(self, step: int, lrs: Sequence[LearningRate]) -> None:
        clock, lr = self.clock, max(read(lrs))
        if step <= clock.start or clock.landed:
            return
        if clock.ends(step):
            self._land(step)
            return
        if clock.due(step, lr):
            self._solve(step - 1, lr)
            clock.solved_at = lr
        clock.learned += lr
        self.d = [self._next(*cell, lr) for cell in zip(self.d, self.finals, self.penalties, strict=True)]
        self._spread()

    def finish(self, step: int) -> None:
        """Land, if only steps that a GradScaler skipped are missing; to stop well before is the user's choice."""
        goal, clock = self.threshold, self.clock
        if not clock.landed and step > clock.start and clock.nearly_ended(step):
            self._land(step)
        if not clock.landed:
            warnings.warn(
                f"Pruning ends after {step} of {goal.steps} steps, before its target {goal.target:.4g}. "
                "`TargetSparsity(steps=...)` counts steps of the optimizer: under gradient accumulation, not batches.",
                stacklevel=5,
            )
        elif abs((reached := self._sparsity()) - goal.target) > PROMISE + self._one_weight():
            late = f"training went on after its {goal.steps} steps"
            why = late if step > clock.landed else "many weights have the same size, or are no numbers"
            warnings.warn(
                f"Pruning ends at {reached:.2%}, not at its target {goal.target:.2%}: {why}.",
                stacklevel=5,
            )

    def _solve(self, step: int, lr: float) -> None:
        """D and μ of each cell, after ``step`` steps and before one that uses ``lr``."""
        to_come = self.clock.to_come(step, lr)
        if to_come <= 0:
            return
        x = self.clock.learned / (self.clock.learned + to_come)
        annealed = self.clock.annealed(step, lr)
        alive = survivors(self.weights, self.levels[0])  # type: ignore[arg-type]
        self.guard.watch(alive)
        standings = [
            odds.Standing(d, final, odds.odds(1 - cell.sum(alive) / self._mass(cell)), odds.odds(cell.target))
            for cell, d, final in zip(self.cells, self.d, self.finals, strict=True)
        ]
        self.forecast = self._forecast(standings, x, annealed)
        self.finals = odds.solve(standings, x, annealed, self._quantiles, self.fit)
        self.penalties = [(final - d) / to_come for final, d in zip(self.finals, self.d, strict=True)]

    def _land(self, step: int) -> None:
        """d of each cell is the quantile of its target."""
        self.clock.landed = step
        self.guard.watch_all()
        self.d = self._quantiles([cell.target for cell in self.cells])
        self._spread()

    @staticmethod
    def _next(d: float, final: float, penalty: float, lr: float) -> float:
        """d after a step: on its way to D, and no further, should the learning rate be higher than predicted."""
        d += penalty * lr
        return min(d, final) if penalty > 0 else max(d, final)

    def _spread(self) -> None:
        """d of each parameter: its cell's, up to its cap."""
        levels = [0.0] * len(self.weights.params)
        for cell, d in zip(self.cells, self.d, strict=True):
            for i in cell.members:
                levels[i] = min(d, self.guard.caps[i])
        self.levels = (levels,)

    def _quantiles(self, shares: list[float]) -> list[float]:
        """The thresholds that zero these shares of the cells now. A cell with too many NaNs keeps its threshold."""
        found = quantiles(
            self.weights, [replace(c, target=s) for c, s in zip(self.cells, shares, strict=True)], self.guard.caps
        )
        return [q if math.isfinite(q) else d for q, d in zip(found, self.d, strict=True)]

    def _forecast(self, standings: Sequence[odds.Standing], x: float, annealed: float) -> float | None:
        if x <= self.fit.early:
            return None
        zeros = (
            self._mass(c) * odds.forecast(s, x, annealed, self.fit) for c, s in zip(self.cells, standings, strict=True)
        )
        return math.fsum(zeros) / math.fsum(map(self._mass, self.cells))

    def _sparsity(self) -> float:
        alive = survivors(self.weights, self.levels[0])  # type: ignore[arg-type]
        return 1 - math.fsum(cell.sum(alive) for cell in self.cells) / math.fsum(map(self._mass, self.cells))

    def _one_weight(self) -> float:
        return max(max(cell.counts) for cell in self.cells) / math.fsum(map(self._mass, self.cells))

    def _mass(self, cell: Cell) -> float:
        return cell.sum(self.guard.sizes)

    def state(self) -> Entries:
        entries: dict[Tensor, dict[str, Any]] = {
            p: {"threshold": d} for p, d in zip(self.weights.params, self.levels[0], strict=True)
        }
        control = {**self.clock.state(), **{k: v for name, xs in self._lists().items() for k, v in _numbered(name, xs)}}
        entries[self.weights.params[0]].update({CONTROL + name: value for name, value in control.items()})
        return entries

    def load(self, entries: Entries) -> None:
        params = self.weights.params
        control = {key.removeprefix(CONTROL): float(value) for key, value in entries[params[0]].items()}
        self.clock.load(control)
        for name, values in self._lists().items():
            values[:] = [control[key] for key, _ in _numbered(name, values)]
        self.levels = ([float(entries[p]["threshold"]) for p in params],)

    def _lists(self) -> dict[str, list[float]]:
        return {"penalty": self.penalties, "final": self.finals, "level": self.d, "cap": self.guard.caps}


def _numbered(name: str, values: Sequence[float]) -> list[tuple[str, float]]:
    return [(f"{name}.{i}", value) for i, value in enumerate(values)]
