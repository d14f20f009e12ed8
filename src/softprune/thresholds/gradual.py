"""The plain way to a target: d is the quantile of |θ| on a sparsity curve.

No law and no learning rate: what gradual magnitude pruning, ST-3 and Feather do, each with a prox of its own. Every few
steps the quantile is found at which the curve will be when it is found next, and d goes there in equal steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real

from torch.optim import Optimizer

from softprune.attach.lookup import LearningRate
from softprune.errors import ArgumentTypeError
from softprune.schedules.curves import Curve, Polynomial
from softprune.thresholds.aim import Aim, AimRule
from softprune.thresholds.base import Rule, Weights

CURVE = Polynomial(3.0)


@dataclass(frozen=True)
class GradualSparsity(Aim):
    """Zeroes the smallest hidden weights, more and more of them, up to ``target``, which it then holds.

        pruner = sp.Pruner(params, optimizer, threshold=sp.GradualSparsity(0.9, steps=T))

    With ``prox=sp.PowerThreshold(math.inf), gradient=sp.subgradient`` it is gradual magnitude pruning.

    Args:
        target: the share of the pruned weights that is zero at the end, between 0 and 1.
        steps: T, the length of training in optimizer steps. Whoever trains on keeps the target.
        arrive: the share of the run after which the target is reached. It is held from then on, while weights still
            come and go; 1 arrives with the last step.
        curve: how what is yet to be pruned falls, from 1 to 0; by default as (1 − x)³ with x the share of the way.
        budget: as in ``TargetSparsity``.
        flops: as in ``TargetSparsity``.
        min_density: the share of every parameter that stays, so that no layer collapses by accident; 0 lets them.
        start: optimizer steps before pruning begins.
        refresh: optimizer steps between two looks at the weights, each of which is a host sync; a hundredth of the run,
            but at most 100, when None.

    >>> [round(GradualSparsity(0.9, steps=100, arrive=0.5).share(step), 4) for step in (0, 10, 50)]
    [0.0, 0.4392, 0.9]
    """

    curve: Curve = field(default=CURVE, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.curve) or not _falls(self.curve):
            raise ArgumentTypeError(
                "`GradualSparsity(curve=...)` must be a function that falls from 1 to 0 as its argument goes from 0 to "
                f"1, such as `softprune.curves.Polynomial(3)`. Got {self.curve!r}."
            )

    def share(self, step: int) -> float:
        """The sparsity to be reached after ``step`` steps."""
        return self.target * (1 - self.curve(self.way(step)))

    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        return GradualRule(self, weights, self.curve)


class GradualRule(AimRule):
    """d of each cell on its way to the quantile at the end of this stretch of ``refresh`` steps."""

    def __init__(self, aim: Aim, weights: Weights, curve: Curve) -> None:
        super().__init__(aim, weights)
        self.curve = curve
        self.goals = [0.0] * len(self.d)

    def approach(self, step: int, lrs: Sequence[LearningRate]) -> None:
        aim = self.threshold
        since = (step - aim.start - 1) % aim.pause
        end = min(step - since + aim.pause, aim.arrival)  # where this stretch ends
        if since == 0:
            part = 1 - self.curve(aim.way(end - 1))
            self.census.watch_all()
            self.goals = self.quantiles([part * target for target in self.census.targets])
        self.d = [d + (goal - d) / (end - step) for d, goal in zip(self.d, self.goals, strict=True)]

    def lists(self) -> dict[str, list[float]]:
        return {"goal": self.goals, **super().lists()}


def _falls(curve: Curve) -> bool:
    ends: list[object] = [curve(0.0), curve(1.0)]
    return all(isinstance(x, Real) and math.isclose(x, end, abs_tol=1e-9) for x, end in zip(ends, (1, 0), strict=True))
