"""What thresholds with a target share: who shares a d, when the target is reached, and how it is held from then on.

A target is reached with the step ``Aim.arrival``, and held until pruning stops.

    Aim        the value: what is asked for, and when
    AimRule    d of each cell (parameters that share a threshold): approach the target, arrive, hold
    Hold       when to look at the weights again, once the target is reached, and d in between
    Census     what is counted, with a Guard: no parameter loses more than all but ``min_density``
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from softprune.attach.lookup import LearningRate, read
from softprune.attach.state import Entries
from softprune.errors import ArgumentError, require, require_range, require_whole
from softprune.prox.gradient import calm
from softprune.prox.power import PowerThreshold
from softprune.thresholds.base import Rule, Threshold, Weights
from softprune.thresholds.budgets import Budget, cells
from softprune.thresholds.census import Census, WeightCensus
from softprune.thresholds.hold import PROMISE, Hold
from softprune.thresholds.units import UnitCensus

CONTROL = "control."  # keys of what the rule saves besides d, once, with the first parameter
SKIPPED = 0.02  # the share of steps that a GradScaler may skip, and the run still ends at the target; a safeguard


@dataclass(frozen=True)
class Aim(Threshold):
    """A target for a run of ``steps`` steps. ``TargetSparsity`` and ``GradualSparsity`` say what each field means.

    The prox and the moment of arrival were chosen by experiment (docs/results.md).
    """

    prox = PowerThreshold(4.0)
    gradient = staticmethod(calm)

    target: float
    steps: int
    arrive: float = field(default=0.75, kw_only=True)
    budget: Budget | None = field(default=None, kw_only=True)
    flops: Mapping[str, float] | None = field(default=None, kw_only=True)
    min_density: float = field(default=1e-3, kw_only=True)
    start: int = field(default=0, kw_only=True)
    refresh: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        require(kind, "target", self.target, "> 0 and < 1", lambda x: 0 < x < 1)
        require_range(kind, self.steps, self.start)
        require(kind, "arrive", self.arrive, "> 0 and <= 1", lambda x: 0 < x <= 1)
        if self.refresh is not None:
            require_whole(kind, "refresh", self.refresh, least=1)
        require(kind, "min_density", self.min_density, ">= 0 and < 1", lambda x: 0 <= x < 1)
        if self.budget is not None and self.flops is not None:
            raise ArgumentError(f"`{kind}` takes `budget` or `flops`, not both. Leave one out.")

    @property
    def arrival(self) -> int:
        """The step that reaches the target."""
        return self.start + max(1, round(self.arrive * (self.steps - self.start)))

    def way(self, step: int) -> float:
        """The share of the way to the target that lies behind after ``step`` steps."""
        return min(1.0, max(0.0, (step - self.start) / (self.arrival - self.start)))

    @property
    def pause(self) -> int:
        """Steps from one look at the weights to the next, each of which is a host sync."""
        return self.refresh or min(100, max(1, self.steps // 100))


class AimRule(Rule):
    """d of each cell on its way to the target, and then held there."""

    threshold: Aim
    counts_zeros = True

    def __init__(self, aim: Aim, weights: Weights) -> None:
        super().__init__(aim, weights)
        self.census = census(aim, weights)
        self.d = [0.0] * len(self.census.targets)  # of each cell, before caps
        self.landed = 0  # the step that reached the target, once it is made
        self.hold = Hold(len(self.d), aim.pause)
        self.levels = ([0.0] * len(weights.params),)

    @property
    def skipped(self) -> int:
        """Steps that a GradScaler skipped, where a learning-rate scheduler tells."""
        return 0

    @abstractmethod
    def approach(self, step: int, lrs: Sequence[LearningRate]) -> None:
        """d of each cell after a step on the way to the target."""

    def advance(self, step: int, lrs: Sequence[LearningRate]) -> None:
        aim, at = self.threshold, step + self.skipped
        if step <= aim.start:
            return
        if not self.landed and at < aim.arrival:
            self.approach(step, lrs)
        elif not self.landed:
            self._land(step, lrs)
        else:
            self._hold(step, max(read(lrs)), last=at == aim.steps)
        self._spread()

    def _land(self, step: int, lrs: Sequence[LearningRate]) -> None:
        self.landed, self.forecast = step, None
        self._look(step, max(read(lrs)))

    def _hold(self, step: int, lr: float, last: bool) -> None:
        self.d = self.hold.d(step)
        if last or self.hold.due(step, lr):
            self._spread()
            before = self._sparsity()
            self._look(step, lr)
            self._spread()
            self.hold.adapt(abs(before - self._sparsity()) - self._one_weight())

    def _look(self, step: int, lr: float) -> None:
        """d of each cell is the quantile of its target."""
        self.census.watch_all()
        self.d = self.quantiles(self.census.targets)
        self.hold.look(step, lr, self.d)

    def finish(self, step: int) -> None:
        """Land, if only steps that a GradScaler skipped are missing; to stop well before is the user's choice. Look
        once more, if the target was lost since the last look; else weights that were just measured stay as they are."""
        aim = self.threshold
        if not self.landed and step > aim.start and aim.arrival - step <= max(1, SKIPPED * aim.steps):
            self._land(step, [0.0])
            self._spread()
        elif self.landed and self._missed(self._sparsity()):
            self._look(step, self.hold.rate)
            self._spread()
        missed = self._missed(reached := self._sparsity())  # counted by all processes, before each looks at its part
        if not self.landed:
            warnings.warn(
                f"Pruning ends after {step} of {aim.steps} steps, before its target {aim.target:.4g}. "
                f"`{type(aim).__name__}(steps=...)` counts steps of the optimizer: under gradient accumulation, not "
                "batches.",
                stacklevel=6,
            )
        elif any(theta.isnan().any() for theta in self.weights.pairs.thetas):
            warnings.warn("Pruning ends with weights that are NaN, which no target counts.", stacklevel=6)
        elif missed:
            warnings.warn(
                f"Pruning ends at {reached:.2%}, not at its target {self._wanted():.2%}: many weights have the same "
                "size, as in half precision.",
                stacklevel=6,
            )

    def _missed(self, sparsity: float) -> bool:
        return abs(sparsity - self._wanted()) > PROMISE + self._one_weight()

    def _wanted(self) -> float:
        """The sparsity of all cells together; a budget may differ from the target a little."""
        counted = zip(self.census.targets, self.census.masses, strict=True)
        return math.fsum(target * mass for target, mass in counted) / self.census.total

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """The thresholds that zero these shares of the cells now. A cell with too many NaNs keeps its threshold."""
        found = self.census.quantiles(shares)
        return [q if math.isfinite(q) else d for q, d in zip(found, self.d, strict=True)]

    def _spread(self) -> None:
        self.levels = (self.census.spread(self.d),)

    def _sparsity(self) -> float:
        return self.census.sparsity(self.levels[0])  # type: ignore[arg-type]

    def _one_weight(self) -> float:
        return self.census.grain / self.census.total

    # -- state: numbers by name, and lists of them, one for each cell or parameter -------------------------------

    def numbers(self) -> dict[str, float]:
        """What resuming needs besides the lists."""
        return {"landed": self.landed, **self.hold.numbers()}

    def lists(self) -> dict[str, list[float]]:
        return {"level": self.d, "cap": self.census.caps, **self.hold.lists()}

    def take(self, numbers: Mapping[str, float]) -> None:
        """Take back what ``numbers`` gave."""
        self.landed = int(numbers["landed"])
        self.hold.take(numbers)

    def state(self) -> Entries:
        entries: dict[Tensor, dict[str, Any]] = {
            p: {"threshold": d} for p, d in zip(self.weights.params, self.levels[0], strict=True)
        }
        entries[self.weights.params[0]].update({CONTROL + name: value for name, value in self._control().items()})
        return entries

    def check(self, entries: Entries) -> None:
        super().check(self._completed(entries))

    def load(self, entries: Entries) -> None:
        params, entries = self.weights.params, self._completed(entries)
        control = {key.removeprefix(CONTROL): float(value) for key, value in entries[params[0]].items()}
        self.take(control)
        for name, values in self.lists().items():
            values[:] = [control[key] for key, _ in _numbered(name, values)]
        self.levels = ([float(entries[p]["threshold"]) for p in params],)
        if self.landed and self.landed + self.skipped < self.threshold.arrival and self._missed(self._sparsity()):
            self.landed = self.hold.looked = 0  # the run is prolonged, to another target

    def _control(self) -> dict[str, float]:
        return {**self.numbers(), **{k: v for name, xs in self.lists().items() for k, v in _numbered(name, xs)}}

    def _completed(self, entries: Entries) -> Entries:
        """A state of a version that held nothing, with what it lacks: it looked when it landed, if it did."""
        first = self.weights.params[0]
        saved = dict(entries.get(first, {}))
        if CONTROL + "landed" in saved and CONTROL + "looked" not in saved:
            lacking = {"looked": saved[CONTROL + "landed"], "every": 1, "rate": 0.0}
            for i in range(len(self.d)):
                lacking |= {f"found.{i}": saved.get(f"{CONTROL}level.{i}", 0.0), f"pace.{i}": 0.0}
            saved |= {CONTROL + key: value for key, value in lacking.items()}
        return {**entries, first: saved}


def census(aim: Aim, weights: Weights) -> Census:
    """What the target counts: weights, or units where groups lie in several parameters."""
    owner = type(aim).__name__
    if weights.prox.spans:
        return UnitCensus(weights, aim.target, aim.budget, aim.flops, aim.min_density, owner)
    return WeightCensus(weights, cells(weights, aim.target, aim.budget, aim.flops, owner), aim.min_density, owner)


def _numbered(name: str, values: Sequence[float]) -> list[tuple[str, float]]:
    return [(f"{name}.{i}", value) for i, value in enumerate(values)]
