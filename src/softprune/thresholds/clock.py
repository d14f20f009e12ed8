"""How far a run with a target is: the learning done and to come, when to solve for the penalty again, when it ends."""

from __future__ import annotations

import math
import warnings

from softprune.attach.future import Future
from softprune.thresholds import odds
from softprune.thresholds.odds import Fit


class Clock:
    """Counts a run of ``steps`` steps, pruned after ``start``; ``future`` is its learning rates, if a scheduler tells.

    A scheduler steps even where a GradScaler skips the optimizer's step; ``skipped`` is how far it is ahead.
    """

    def __init__(self, steps: int, start: int, refresh: int | None, future: Future | None, fit: Fit) -> None:
        self.steps, self.start = steps, start
        self.refresh = refresh or min(100, max(1, steps // 100))
        self.future = future
        self.fit = fit
        self.learned = 0.0  # Σ η so far
        self.solved_at = 0.0  # η of the last solution
        self.skipped = 0
        self.landed = 0  # the last step, once it is made

    def ends(self, step: int) -> bool:
        """Whether the run ends with ``step``. One resumed with fewer steps than it has made ends at its next."""
        return step + self.skipped >= self.steps

    def nearly_ended(self, step: int) -> bool:
        """Whether no more steps are missing than a GradScaler may have skipped."""
        return self.steps - step <= max(1, self.fit.skipped * self.steps)

    def due(self, step: int, lr: float) -> bool:
        """Whether to solve again: every ``refresh`` steps, 64, 32, ... 2, 1 steps before the end, and when the learning
        rate has risen although no scheduler said so: what is to come was guessed from a lower one."""
        step += self.skipped
        since, left = step - self.start, self.steps - step
        surged = self.future is None and lr > self.fit.surge * self.solved_at
        return since == 1 or since % self.refresh == 0 or (left < self.refresh and left.bit_count() == 1) or surged

    def to_come(self, step: int, lr: float) -> float:
        """Σ η after ``step`` steps, the next of which uses ``lr``. Without a scheduler, or where it predicted another
        rate, the learning rate is taken to fall linearly to zero."""
        if self.future is not None:
            self.skipped = self.future.ahead(step, lr, self.skipped, most=math.ceil(self.fit.skipped * self.steps))
            if self.future.predicts(step + self.skipped, lr):
                return self.future.to_come(step + self.skipped)
            self.future = None
            warnings.warn(
                f"The learning rate of step {step} is not what `lr_scheduler` predicted, so TargetSparsity ignores it "
                "from here on. Say with `interval` how many optimizer steps lie between two of its steps, and restore "
                "its state after the Pruner is built.",
                stacklevel=2,
            )
        return 0.5 * lr * (self.steps - step)

    def annealed(self, step: int, lr: float) -> float:
        """What the odds will gain when the learning rate falls to its last value; nothing, if that is not known."""
        future = self.future
        if future is None:
            return 1.0
        return odds.annealing(lr, future.last, future.top, future.cooler(step + self.skipped, lr), self.fit)

    def state(self) -> dict[str, float]:
        # keys of saved states, which stay as they are: "foretold" is whether a scheduler still predicts the rates
        numbers = {"learned": self.learned, "solved at": self.solved_at, "foretold": float(self.future is not None)}
        return {**numbers, "skipped": self.skipped, "landed": self.landed}

    def load(self, state: dict[str, float]) -> None:
        self.learned, self.solved_at = float(state["learned"]), float(state["solved at"])
        self.skipped, self.landed = int(state["skipped"]), int(state["landed"])
        if self.landed + self.skipped < self.steps:  # a run that had ended is prolonged
            self.landed = 0
        if not state["foretold"]:
            self.future = None
