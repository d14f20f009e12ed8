"""How far a run is on the way to its target: the learning done and to come, and when to solve for the penalty again."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

from softprune.attach.future import Future
from softprune.thresholds import odds
from softprune.thresholds.aim import SKIPPED, Aim
from softprune.thresholds.hold import SURGE
from softprune.thresholds.odds import Fit


class Clock:
    """Counts the steps of a run up to ``arrival``, where its target is reached; ``future`` is its learning rates, if a
    scheduler tells. The run itself has ``steps`` steps, and is pruned after ``start``.

    A scheduler steps even where a GradScaler skips the optimizer's step; ``skipped`` is how far it is ahead.
    """

    def __init__(self, aim: Aim, future: Future | None, fit: Fit) -> None:
        self.steps, self.start, self.arrival, self.pause = aim.steps, aim.start, aim.arrival, aim.pause
        self.future = future
        self.fit = fit
        self.learned = 0.0  # Σ η so far
        self.solved_at = 0.0  # η of the last solution
        self.skipped = 0

    def due(self, step: int, lr: float) -> bool:
        """Whether to solve again: every ``refresh`` steps, 64, 32, ... 2, 1 steps before arrival, and when the learning
        rate has risen although no scheduler said so: what is to come was guessed from a lower one."""
        step += self.skipped
        since, left = step - self.start, self.arrival - step
        surged = self.future is None and lr > SURGE * self.solved_at
        return since == 1 or since % self.pause == 0 or (left < self.pause and left.bit_count() == 1) or surged

    def to_come(self, step: int, lr: float) -> float:
        """Σ η from ``step`` steps to arrival, the first of which uses ``lr``. Without a scheduler, or where it
        predicted another rate, the learning rate is taken to fall linearly to zero at the end of the run."""
        if self.future is not None:
            self.skipped = self.future.ahead(step, lr, self.skipped, most=math.ceil(SKIPPED * self.steps))
            if self.future.predicts(step + self.skipped, lr):
                return self.future.to_come(step + self.skipped)
            self.future = None
            warnings.warn(
                f"The learning rate of step {step} is not what `lr_scheduler` predicted, so TargetSparsity ignores it "
                "from here on. Say with `interval` how many optimizer steps lie between two of its steps, and restore "
                "its state after the Pruner is built.",
                stacklevel=2,
            )
        left = self.arrival - step
        return lr * left * (1 - left / (2 * (self.steps - step)))

    def annealed(self, step: int, lr: float) -> float:
        """What the odds will gain when the learning rate falls to its last value; nothing, if that is not known."""
        future = self.future
        if future is None:
            return 1.0
        return odds.annealing(lr, future.last, future.top, future.cooler(step + self.skipped, lr), self.fit)

    def numbers(self) -> dict[str, float]:
        # keys of saved states, which stay as they are: "foretold" is whether a scheduler still predicts the rates
        numbers = {"learned": self.learned, "solved at": self.solved_at, "foretold": float(self.future is not None)}
        return {**numbers, "skipped": self.skipped}

    def take(self, numbers: Mapping[str, float]) -> None:
        self.learned, self.solved_at = float(numbers["learned"]), float(numbers["solved at"])
        self.skipped = int(numbers["skipped"])
        if not numbers["foretold"]:
            self.future = None
