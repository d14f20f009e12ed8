"""Ask for a sparsity and get it: the penalty that ends there, found while training.

Every few steps the odds of being zero are measured, the law in law.py tells the threshold D that ends at the odds
wanted, and the penalty for the learning still to come is μ = (D − d) / Σ η to come. A constant penalty is what makes
LATS good, so D is changed gently. At the end nothing is left to learn, D is the quantile of the target, and d is there
already.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch.optim.lr_scheduler import LRScheduler

from softprune.attach.future import Future, future_lrs, innermost
from softprune.attach.hooks import group_indices
from softprune.errors import require_range, require_whole
from softprune.kernels.columns import Columns
from softprune.pruner.hidden import Hidden
from softprune.thresholds import budgets as allocation
from softprune.thresholds import odds as law
from softprune.thresholds.base import Threshold
from softprune.thresholds.cells import cells
from softprune.thresholds.quantile import Cell, survivors, thresholds

GROWN = 1.5  # times the learning rate of the last solution: solve again
RISK = 20.0  # times min_density: a layer this thin is watched closely
SKIPPED = 0.02  # of the steps: so many may a GradScaler leave out, and the run still ends at the target


@dataclass(frozen=True)
class TargetSparsity(Threshold):
    """Ends a run of ``steps`` with the share ``target`` of the pruned parameters at zero.

        pruner = sp.Pruner(params, optimizer, threshold=sp.TargetSparsity(0.95, steps=T))

    One threshold serves all parameters, unless a ``budget`` gives each its own sparsity: {name: sparsity}, or
    ``sp.uniform``, ``sp.erdos_renyi``, ``sp.erk``. With ``flops``, from ``sp.flops_per_weight(model, example)``, the
    target counts multiplications instead of weights. ``min_density`` of every parameter stays, so that no layer
    collapses by accident; 0 lets them.

    Every ``refresh`` steps the penalty is solved for again, which is when the host waits for the device; a hundredth of
    the run, but at most 100, when None. ``lr_scheduler``, if given, is played forward to know the learning still to
    come; it is taken to be stepped after every ``interval`` optimizer steps. Else the learning rate is taken to fall
    linearly to zero. Neither changes where the run ends, only how constant the penalty is on the way.
    """

    target: float
    steps: int
    budget: allocation.Budget | None = field(default=None, kw_only=True)
    flops: Mapping[str, float] | None = field(default=None, kw_only=True)
    min_density: float = field(default=1e-3, kw_only=True)
    lr_scheduler: LRScheduler | None = field(default=None, kw_only=True, repr=False, compare=False)
    interval: int = field(default=1, kw_only=True)
    start: int = field(default=0, kw_only=True)
    refresh: int | None = field(default=None, kw_only=True)
    reads_lr: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise ValueError(f"`TargetSparsity(target=...)` must be > 0 and < 1. Got {self.target}.")
        require_range("TargetSparsity", self.steps, self.start)
        require_whole("TargetSparsity", "interval", self.interval, least=1)
        if self.refresh is not None:
            require_whole("TargetSparsity", "refresh", self.refresh, least=1)
        if not 0 <= self.min_density < 1:
            raise ValueError(f"`TargetSparsity(min_density=...)` must be >= 0 and < 1. Got {self.min_density}.")
        if self.budget is not None and self.flops is not None:
            raise ValueError("`TargetSparsity` takes `budget` or `flops`, not both.")

    def watch(self, hidden: Hidden) -> Threshold:
        future = None
        if self.lr_scheduler is not None:
            groups = set(group_indices(innermost(self.lr_scheduler).optimizer, hidden.params))
            future = Future(future_lrs(self.lr_scheduler, self.steps, self.interval, groups))
        return Controller(replace(self, lr_scheduler=None), hidden, future)

    def initial(self, count: int) -> Columns:
        return ([0.0] * count,)

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        raise TypeError("`TargetSparsity` advances through the controller that `watch` returns.")


class Controller(Threshold):
    """A ``TargetSparsity`` that watches the weights of one pruner."""

    reads_lr = True
    counts_zeros = True

    def __init__(self, goal: TargetSparsity, hidden: Hidden, future: Future | None) -> None:
        self.goal = goal
        self.hidden = hidden
        self.future = future
        self.refresh = goal.refresh or min(100, max(1, goal.steps // 100))
        self.cells = cells(hidden, goal.target, goal.budget, goal.flops)
        self.masses = [cell.mass(hidden) for cell in self.cells]
        self.keep = [math.ceil(goal.min_density * p.numel()) for p in hidden.params]
        self._refuse_the_impossible()
        self.penalties = [0.0] * len(self.cells)  # μ
        self.finals = [0.0] * len(self.cells)  # D
        self.learned = 0.0  # Σ η so far
        self.solved_at = 0.0  # η of the last solution
        self.skipped = 0  # steps of the scheduler without one of the optimizer
        self.landed = 0  # the step that was the last
        self.levels = [0.0] * len(self.cells)  # d, before caps
        self.caps = [math.inf] * len(hidden.params)  # thresholds that leave min_density
        self.forecast: float | None = None  # the final sparsity that the penalties of the last solution lead to
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return repr(self.goal)

    def initial(self, count: int) -> Columns:
        return self.goal.initial(count)

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        goal, lr = self.goal, max(lrs)
        if step <= goal.start or self.landed:
            return columns
        if step + self.skipped >= goal.steps:  # or later, where a longer run was resumed with fewer steps
            return self._land(step)
        if self._due(step + self.skipped, lr):
            self._solve(list(columns[0]), step - 1, lr)
            self.solved_at = lr
        self.learned += lr
        self.levels = [self._next(c, lr) for c in range(len(self.cells))]
        return (self._spread(),)

    def conclude(self, columns: Columns, step: int) -> Columns:
        """Steps that a GradScaler skipped are missing at the end; to stop well before it is the user's choice."""
        if self.landed or step <= self.goal.start:
            return columns
        if self.goal.steps - step <= max(1, SKIPPED * self.goal.steps):
            return self._land(step)
        warnings.warn(
            f"Pruning ends after {step} of {self.goal.steps} steps, before its target {self.goal.target:.4g}. "
            "`TargetSparsity(steps=...)` counts steps of the optimizer: under gradient accumulation, not batches.",
            stacklevel=3,
        )
        return columns

    def _land(self, step: int) -> Columns:
        self.landed = step
        self.caps = self._caps(range(len(self.hidden.params)))
        self.levels = self._quantiles(self.cells)
        return (self._spread(),)

    def _next(self, c: int, lr: float) -> float:
        """d after a step: on its way to D, and no further, should the learning rate be higher than was foreseen."""
        d, final = self.levels[c] + self.penalties[c] * lr, self.finals[c]
        return min(d, final) if self.penalties[c] > 0 else max(d, final)

    def state(self) -> dict[str, float]:
        numbers = {"learned": self.learned, "solved at": self.solved_at}
        numbers |= {"foretold": float(self.future is not None), "skipped": self.skipped, "landed": self.landed}
        for name, values in self._lists().items():
            numbers |= {f"{name}.{i}": value for i, value in enumerate(values)}
        return numbers

    def refuse_state(self, state: dict[str, float]) -> None:
        if state.keys() != self.state().keys():
            raise ValueError(
                "Cannot load this state: it was saved with another kind of threshold than TargetSparsity, or with "
                "other parameters or another kind of budget. Build the Pruner with the threshold of that run."
            )

    def load_state(self, state: dict[str, float]) -> None:
        self.refuse_state(state)
        self.learned, self.solved_at = state["learned"], state["solved at"]
        self.skipped, self.landed = int(state["skipped"]), int(state["landed"])
        if self.landed + self.skipped < self.goal.steps:  # a run that had ended is prolonged
            self.landed = 0
        if not state["foretold"]:
            self.future = None
        for name, values in self._lists().items():
            values[:] = [state[f"{name}.{i}"] for i in range(len(values))]

    def _lists(self) -> dict[str, list[float]]:
        return {"penalty": self.penalties, "final": self.finals, "level": self.levels, "cap": self.caps}

    def _spread(self) -> list[float]:
        """d of each parameter: its cell's, up to its cap."""
        d = [0.0] * len(self.hidden.params)
        for cell, level in zip(self.cells, self.levels, strict=True):
            for i in cell.members:
                d[i] = min(level, self.caps[i])
        return d

    def _due(self, step: int, lr: float) -> bool:
        """Every ``refresh`` steps, at shorter and shorter intervals as the end comes near, and when the learning rate
        has grown as nobody foretold: what is to come was guessed from a lower one."""
        since, left = step - self.goal.start, self.goal.steps - step
        grown = self.future is None and lr > GROWN * self.solved_at
        return since == 1 or since % self.refresh == 0 or (left < self.refresh and left.bit_count() == 1) or grown

    def _solve(self, current: list[float], step: int, lr: float) -> None:
        to_come = self._to_come(step, lr)
        if to_come <= 0:
            return
        x = self.learned / (self.learned + to_come)
        growth = law.growth(x, self._annealing(step, lr))
        alive = survivors(self.hidden, current)
        self._warn_of_the_dead(alive)
        thin = [i for i, (n, keep) in enumerate(zip(alive, self.keep, strict=True)) if n < RISK * keep]
        self.caps = self._caps(thin)
        wanted = [law.odds(cell.target) for cell in self.cells]
        today = [law.share(law.odds_today(odds, x, growth)) for odds in wanted]
        quantiles = self._quantiles([replace(c, target=t) for c, t in zip(self.cells, today, strict=True)])
        zeros = 0.0
        for c, cell in enumerate(self.cells):
            left = math.fsum(w * alive[i] for i, w in zip(cell.members, cell.weights, strict=True))
            foreseen = max(law.odds(1 - left / self.masses[c]), 1e-9) * growth  # at the end, if d goes on to d / x
            d, final, lacking = self.levels[c], self.finals[c], wanted[c] / foreseen
            zeros += self.masses[c] * law.share(foreseen * final * x / d) if d > 0 else 0.0
            self.finals[c] = law.final(d, x, lacking, quantiles[c], old=final)
            self.penalties[c] = (self.finals[c] - d) / to_come
        self.forecast = zeros / math.fsum(self.masses) if x > law.EARLY else None

    def _quantiles(self, cells: list[Cell]) -> list[float]:
        """A cell with too many weights that are no numbers keeps its threshold."""
        found = thresholds(self.hidden, cells, self.caps)
        return [q if math.isfinite(q) else d for q, d in zip(found, self.levels, strict=True)]

    def _annealing(self, step: int, lr: float) -> float:
        """What the odds will gain when the learning rate falls to its last value; nothing, if that is not known."""
        future = self.future
        if future is None:
            return 1.0
        return law.annealing(lr, future.last, future.top, future.cooler(step + self.skipped, lr))

    def _caps(self, watched: Iterable[int]) -> list[float]:
        """For the watched parameters the threshold that leaves min_density of them."""
        caps = [math.inf] * len(self.hidden.params)
        sizes = [p.numel() for p in self.hidden.params]
        watched = [i for i in watched if self.keep[i] > 0]
        if watched:
            cells = [Cell((i,), (1.0,), (sizes[i] - self.keep[i] + 1) / sizes[i]) for i in watched]
            for i, least in zip(watched, thresholds(self.hidden, cells), strict=True):
                caps[i] = _below(least, self.hidden.params[i].dtype)
        return caps

    def _to_come(self, step: int, lr: float) -> float:
        if self.future is not None:
            most = math.ceil(SKIPPED * self.goal.steps)
            self.skipped = self.future.ahead(step, lr, self.skipped, most)
            if self.future.foretold(step + self.skipped, lr):
                return self.future.to_come(step + self.skipped)
            self.future = None
            warnings.warn(
                f"The learning rate of step {step} is not what `lr_scheduler` foretold, which TargetSparsity leaves "
                "aside from here on. Say with `interval` how many optimizer steps lie between two of its steps, and "
                "restore its state after the Pruner is built.",
                stacklevel=2,
            )
        return 0.5 * lr * (self.goal.steps - step)

    def _refuse_the_impossible(self) -> None:
        for cell, mass in zip(self.cells, self.masses, strict=True):
            kept = math.fsum(w * self.keep[i] for i, w in zip(cell.members, cell.weights, strict=True))
            most = 1 - kept / mass
            if cell.target > most + 1e-12:
                where = "" if len(self.cells) == 1 else f" of {self.hidden.names[cell.members[0]]}"
                raise ValueError(
                    f"`TargetSparsity` cannot reach {cell.target:.4%}{where} where min_density = "
                    f"{self.goal.min_density:g} leaves at most {most:.4%}. Lower the target or `min_density`; "
                    "0 lets whole layers go."
                )

    def _warn_of_the_dead(self, alive: list[int]) -> None:
        """Of layers that nothing guards: a guarded one comes back as soon as it is seen."""
        unguarded = [name for name, n, keep in zip(self.hidden.names, alive, self.keep, strict=True) if n == keep == 0]
        if dead := set(unguarded) - self._warned:
            self._warned |= dead
            warnings.warn(f"Nothing is left of {', '.join(sorted(dead))}.", stacklevel=2)


def _below(value: float, dtype: torch.dtype) -> float:
    """The next number below, as weights of this type have it, so that those of this very value stay."""
    counted = torch.float32 if dtype is torch.float64 else dtype  # quantiles are of single precision
    number = torch.tensor(value, dtype=counted, device="cpu")
    return float(torch.nextafter(number, torch.zeros_like(number)))
