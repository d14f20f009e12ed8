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
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from torch.optim.lr_scheduler import LRScheduler

from softprune import allocation
from softprune.hidden import Hidden
from softprune.quantile import Cell, survivors, thresholds
from softprune.schedule import require_steps
from softprune.threshold import Columns, Threshold, future_lrs

GROWTH = 1.3  # b: how the odds grow with the learning done
EARLY = 0.03  # of the learning: before it, the odds tell nothing, and D is guessed
GUESS = 2.0  # times the quantile of the first |θ|
LATE = 0.003  # of the learning: after 1 − LATE, D tends to the quantile
GAIN = 0.5  # how far log μ moves towards each new solution
RISK = 20.0  # times min_density: a layer this thin is watched closely


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
    come; else it is taken to end as cosine annealing does. Neither changes where the run ends, only how constant the
    penalty is on the way.
    """

    target: float
    steps: int
    budget: allocation.Budget | None = field(default=None, kw_only=True)
    flops: Mapping[str, float] | None = field(default=None, kw_only=True)
    min_density: float = field(default=1e-3, kw_only=True)
    lr_scheduler: LRScheduler | None = field(default=None, kw_only=True, repr=False, compare=False)
    start: int = field(default=0, kw_only=True)
    refresh: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise ValueError(f"`TargetSparsity(target=...)` must be > 0 and < 1. Got {self.target}.")
        require_steps("TargetSparsity", self.steps)
        if not 0 <= self.start < self.steps:
            raise ValueError(
                f"`TargetSparsity` needs steps > start >= 0. Got steps = {self.steps}, start = {self.start}."
            )
        if self.refresh is not None and self.refresh < 1:
            raise ValueError(f"`TargetSparsity(refresh=...)` must be >= 1. Got {self.refresh}.")
        if not 0 <= self.min_density < 1:
            raise ValueError(f"`TargetSparsity(min_density=...)` must be >= 0 and < 1. Got {self.min_density}.")
        if self.budget is not None and self.flops is not None:
            raise ValueError("`TargetSparsity` takes `budget` or `flops`, not both.")

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
        self.cells = _cells(goal, hidden)
        self.keep = [math.ceil(goal.min_density * p.numel()) for p in hidden.params]
        self._refuse_the_impossible()
        self.penalties = [0.0] * len(self.cells)  # μ
        self.learned = 0.0  # Σ η so far
        self.levels = [0.0] * len(self.cells)  # d, before caps
        self.caps = [math.inf] * len(hidden.params)  # thresholds that leave min_density
        self.forecast: float | None = None  # the final sparsity that the penalties of the last solution lead to
        self._warned: set[str] = set()

    def __repr__(self) -> str:
        return repr(self.goal)

    def initial(self, count: int) -> Columns:
        return self.goal.initial(count)

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        goal, lr = self.goal, lrs[0]
        if step <= goal.start or step > goal.steps:
            return columns
        if step == goal.steps:
            self.caps = self._caps(range(len(self.hidden.params)))
            self.levels = thresholds(self.hidden, self.cells, self.caps)
        else:
            if step == goal.start + 1 or (step - goal.start) % self.refresh == 0:
                self._solve(list(columns[0]), step - 1, lr)
            self.learned += lr
            self.levels = [d + mu * lr for d, mu in zip(self.levels, self.penalties, strict=True)]
        return (self._spread(),)

    def state(self) -> dict[str, float]:
        numbers = {"learned": self.learned}
        for name, values in self._lists().items():
            numbers |= {f"{name}.{i}": value for i, value in enumerate(values)}
        return numbers

    def load_state(self, state: dict[str, float]) -> None:
        if state.keys() != self.state().keys():
            raise ValueError("Cannot load this state: it was saved with another kind of threshold than TargetSparsity.")
        self.learned = state["learned"]
        for name, values in self._lists().items():
            values[:] = [state[f"{name}.{i}"] for i in range(len(values))]

    def _lists(self) -> dict[str, list[float]]:
        return {"penalty": self.penalties, "level": self.levels, "cap": self.caps}

    def _spread(self) -> list[float]:
        """d of each parameter: its cell's, up to its cap."""
        d = [0.0] * len(self.hidden.params)
        for cell, level in zip(self.cells, self.levels, strict=True):
            for i in cell.members:
                d[i] = min(level, self.caps[i])
        return d

    def _solve(self, d: list[float], step: int, lr: float) -> None:
        to_come = self._to_come(step, lr)
        if to_come <= 0:
            return
        x = self.learned / (self.learned + to_come)
        alive = survivors(self.hidden, d)
        self._warn_of_the_dead(alive)
        thin = [i for i, (n, keep) in enumerate(zip(alive, self.keep, strict=True)) if n < RISK * keep]
        self.caps = self._caps(thin)
        quantiles = thresholds(self.hidden, self.cells, self.caps)
        forecast = 0.0
        for c, cell in enumerate(self.cells):
            self.penalties[c], odds = self._solve_cell(c, quantiles[c], alive, x, to_come)
            forecast += cell.mass(self.hidden) * odds / (1 + odds)
        self.forecast = forecast / math.fsum(cell.mass(self.hidden) for cell in self.cells) if x > EARLY else None

    def _solve_cell(self, c: int, quantile: float, alive: list[int], x: float, to_come: float) -> tuple[float, float]:
        """The new penalty of a cell, and its final odds under the old one."""
        cell, d, old = self.cells[c], self.levels[c], self.penalties[c]
        final, ahead = GUESS * quantile, 0.0
        if x > EARLY and d > 0:
            mass = cell.mass(self.hidden)
            left = math.fsum(w * alive[i] for i, w in zip(cell.members, cell.weights, strict=True))
            left = min(max(left, mass * 1e-9), mass * (1 - 1e-9))
            odds, wanted = (mass - left) / left, cell.target / max(1 - cell.target, 1e-9)
            ahead = odds / x**GROWTH * (d + old * to_come) * x / d
            final = d / x * wanted * x**GROWTH / odds
        late = min(1.0, (1 - x) / LATE)
        if quantile > 0 and final > 0:
            final = math.exp(late * math.log(final) + (1 - late) * math.log(quantile))
        solved = max((final - d) / to_come, 0.2 * old)
        return (old ** (1 - GAIN) * solved**GAIN if old > 0 else solved), ahead

    def _caps(self, watched: Iterable[int]) -> list[float]:
        """For the watched parameters the threshold that leaves min_density of them."""
        caps = [math.inf] * len(self.hidden.params)
        sizes = [p.numel() for p in self.hidden.params]
        watched = [i for i in watched if self.keep[i] > 0]
        if watched:
            cells = [Cell((i,), (1.0,), (sizes[i] - self.keep[i]) / sizes[i]) for i in watched]
            for i, cap in zip(watched, thresholds(self.hidden, cells), strict=True):
                caps[i] = cap if sizes[i] > self.keep[i] else 0.0
        return caps

    def _to_come(self, step: int, lr: float) -> float:
        if self.lrs is not None:
            return math.fsum(self.lrs[step:])
        return 0.5 * lr * (self.goal.steps - step)

    def _refuse_the_impossible(self) -> None:
        for cell in self.cells:
            kept = math.fsum(w * self.keep[i] for i, w in zip(cell.members, cell.weights, strict=True))
            most = 1 - kept / cell.mass(self.hidden)
            if cell.target > most + 1e-12:
                raise ValueError(
                    f"`TargetSparsity` cannot reach {cell.target:.4%} where min_density = {self.goal.min_density:g} "
                    f"leaves at most {most:.4%}. Lower the target or `min_density`; 0 lets whole layers go."
                )

    def _warn_of_the_dead(self, alive: list[int]) -> None:
        """Of layers that nothing guards: a guarded one comes back as soon as it is seen."""
        unguarded = [name for name, n, keep in zip(self.hidden.names, alive, self.keep, strict=True) if n == keep == 0]
        if dead := set(unguarded) - self._warned:
            self._warned |= dead
            warnings.warn(f"Nothing is left of {', '.join(sorted(dead))}.", stacklevel=2)


def _cells(goal: TargetSparsity, hidden: Hidden) -> list[Cell]:
    """All parameters together, or each by itself."""
    params = dict(zip(hidden.names, hidden.params, strict=True))
    everyone = tuple(range(len(params)))
    if goal.budget is not None:
        shares = allocation.resolve(goal.budget, params, goal.target)
        return [Cell((i,), (1.0,), shares[name]) for i, name in enumerate(params)]
    if goal.flops is None:
        return [Cell(everyone, (1.0,) * len(params), goal.target)]
    if missing := [name for name in params if name not in goal.flops]:
        raise ValueError(f"`TargetSparsity(flops=...)` says nothing about {', '.join(missing[:5])}.")
    return [Cell(everyone, tuple(float(goal.flops[name]) for name in params), goal.target)]
