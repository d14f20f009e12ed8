"""What a trainer's callback is asked for: a pruner, once there is an optimizer and the number of steps is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from softprune.errors import ArgumentTypeError
from softprune.groups.base import Grouping
from softprune.prox.base import Prox
from softprune.prox.gradient import Gradient
from softprune.pruner.pruner import Pruner
from softprune.selection import select
from softprune.thresholds.base import Threshold
from softprune.thresholds.target import TargetSparsity

Thresholds = Threshold | Callable[[int], float]
"""What ``Pruner(threshold=...)`` takes."""

Build = Callable[[Mapping[str, nn.Parameter], int], Thresholds]
"""``build(params, steps) -> threshold``."""

Groups = Grouping | Callable[[Any], Grouping]
"""What ``Pruner(groups=...)`` takes, or a function of the model that gives it."""


class Plan:
    """The part of a ``PruningCallback`` that no trainer knows about: at most one of threshold, target and build."""

    def __init__(
        self,
        threshold: Thresholds | None,
        target: float | None,
        build: Build | None,
        prox: Prox | None,
        groups: Groups | None,
        gradient: Gradient | None,
        include: Sequence[str] | None,
        exclude: Sequence[str],
    ) -> None:
        if isinstance(threshold, int | float):
            raise ArgumentTypeError(
                f"`PruningCallback(threshold=...)` must be a schedule or a threshold. Got {threshold}: write "
                f"`PruningCallback(target={threshold})` for a sparsity."
            )
        if target is not None:
            TargetSparsity(target, steps=1)  # refuses what is no target
        self.threshold, self.target, self.build = threshold, target, build
        self.prox, self.groups, self.gradient = prox, groups, gradient
        self.include, self.exclude = include, exclude

    @property
    def given(self) -> int:
        """How many of threshold, target and build there are."""
        return sum(one is not None for one in (self.threshold, self.target, self.build))

    def choose(self, model: nn.Module) -> tuple[Mapping[str, nn.Parameter], Grouping | None]:
        """What of the model is pruned, and its groups."""
        params = select(model, self.include, self.exclude)
        if self.groups is None:
            return params, None
        groups = self.groups if isinstance(self.groups, Grouping) else self.groups(model)
        if not isinstance(groups, Grouping):
            raise ArgumentTypeError(
                "`PruningCallback(groups=...)` must be a grouping, such as `softprune.Blocks(1, 4)`, or a function of "
                f"the model that gives one. Got {groups!r}."
            )
        return groups.complete(params), groups

    def begin(
        self,
        params: Mapping[str, nn.Parameter],
        groups: Grouping | None,
        optimizer: Optimizer,
        steps: Callable[[], int],
        lr_scheduler: LRScheduler | None,
    ) -> Pruner:
        """The pruner of a training that begins; it asks for ``steps`` only where the threshold depends on them."""
        threshold = self._threshold(params, steps, lr_scheduler)
        return Pruner(params, optimizer, threshold=threshold, prox=self.prox, groups=groups, gradient=self.gradient)

    def _threshold(
        self, params: Mapping[str, nn.Parameter], steps: Callable[[], int], lr_scheduler: LRScheduler | None
    ) -> Thresholds:
        if self.target is not None:
            return TargetSparsity(self.target, steps(), lr_scheduler=lr_scheduler)
        if self.build is not None:
            return self.build(params, steps())
        assert self.threshold is not None
        return self.threshold
