"""A target that is reached is held: d follows the quantile of |θ|, while weights come and go.

The quantile is found again as often as it takes to stay within about 0.1 points of the target: after every step at
first, every ``refresh`` steps at most. In between d goes on as fast as the quantile did last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

PROMISE = 1e-3  # a target is met within 0.1 points
SURGE = 1.5  # times an earlier learning rate: what was seen then no longer holds; a safeguard


class Hold:
    """d of each cell from the arrival on; ``most`` is the most steps from one look at the weights to the next."""

    def __init__(self, cells: int, most: int) -> None:
        self.most = most
        self.every = 1  # steps from one look to the next
        self.looked = 0  # the step of the last look
        self.rate = 0.0  # its learning rate
        self.found = [0.0] * cells  # its quantiles
        self.pace = [0.0] * cells  # how fast they change, by step

    def d(self, step: int) -> list[float]:
        """d of each cell after ``step``, as far as the last look tells."""
        since = step - self.looked
        return [max(0.0, found + pace * since) for found, pace in zip(self.found, self.pace, strict=True)]

    def due(self, step: int, lr: float) -> bool:
        """Whether to look again: it is time, or the learning rate has surged, as in a warm restart."""
        return step - self.looked >= self.every or lr > SURGE * self.rate

    def look(self, step: int, lr: float, quantiles: Sequence[float]) -> None:
        """Take what a look has found."""
        if self.looked and step > self.looked:
            since = step - self.looked
            self.pace = [(now - then) / since for now, then in zip(quantiles, self.found, strict=True)]
        self.looked, self.rate, self.found = step, lr, list(quantiles)

    def adapt(self, drift: float) -> None:
        """Look at every step again, or more rarely, given how much a look has changed the sparsity."""
        if drift > PROMISE / 3:
            self.every = 1
        elif drift < PROMISE / 10:
            self.every = min(self.most, 2 * self.every)

    def numbers(self) -> dict[str, float]:
        return {"looked": self.looked, "every": self.every, "rate": self.rate}

    def lists(self) -> dict[str, list[float]]:
        return {"found": self.found, "pace": self.pace}

    def take(self, numbers: Mapping[str, float]) -> None:
        self.looked, self.every, self.rate = int(numbers["looked"]), int(numbers["every"]), float(numbers["rate"])
