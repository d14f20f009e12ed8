"""Learning rates to come: a scheduler, played forward on a copy, and what its rates add up to."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau


class Future:
    """The learning rates of a whole run, with their sums from each step on."""

    def __init__(self, lrs: Sequence[float]) -> None:
        self.lrs = lrs
        self.top, self.last = max(lrs), lrs[-1]
        self._sums = _from_each_on(lrs)
        self._squares = _from_each_on([lr * lr for lr in lrs])

    def to_come(self, step: int) -> float:
        """Σ η after ``step`` steps."""
        return self._sums[step]

    def cooler(self, step: int, lr: float) -> float:
        """Σ η·(1 − η / lr) after ``step`` steps, over all Σ η: the learning to come at lower rates than ``lr``."""
        return (self._sums[step] - self._squares[step] / lr) / self._sums[0] if lr > 0 else 0.0

    def ahead(self, step: int, lr: float, known: int, most: int) -> int:
        """How many steps the scheduler is ahead after ``step`` of the optimizer's, which uses ``lr``: as many as were
        ``known`` or more, as a GradScaler skips some; those known if ``lr`` is not among the next ``most`` rates."""
        for skipped in range(known, most + 1):
            if step + skipped < len(self.lrs) and math.isclose(self.lrs[step + skipped], lr, rel_tol=1e-9):
                return skipped
        return known

    def foretold(self, step: int, lr: float) -> bool:
        """Whether ``lr`` is what was to be expected about then."""
        near = self.lrs[max(0, step - 10) : step + 10]
        return 0.99 * min(near) <= lr <= 1.01 * max(near)


def _from_each_on(values: Sequence[float]) -> list[float]:
    return [*accumulate(reversed(values), initial=0.0)][::-1]


def innermost(lr_scheduler: Any) -> LRScheduler:
    """The torch scheduler inside a wrapper, such as Accelerate's."""
    while isinstance(inner := getattr(lr_scheduler, "scheduler", None), LRScheduler):
        lr_scheduler = inner
    if not isinstance(lr_scheduler, LRScheduler):
        raise TypeError(f"`lr_scheduler` must be one of torch.optim.lr_scheduler. Got {type(lr_scheduler).__name__}.")
    return lr_scheduler


def _pace(lr_scheduler: Any) -> int:
    """How often a wrapper steps the scheduler in it at each of its steps: Accelerate's does once for each process,
    unless batches are split among them."""
    if not getattr(lr_scheduler, "step_with_optimizer", False) or lr_scheduler.split_batches:
        return 1
    from accelerate.state import AcceleratorState

    return int(AcceleratorState().num_processes)


def future_lrs(
    lr_scheduler: LRScheduler, steps: int, interval: int = 1, numbers: Collection[int] = (0,)
) -> list[float]:
    """The highest learning rate among some param groups, for the next ``steps`` steps, from a copy of the scheduler."""
    pace, lr_scheduler = _pace(lr_scheduler), innermost(lr_scheduler)
    if isinstance(lr_scheduler, ReduceLROnPlateau):
        raise TypeError(
            "Cannot play a ReduceLROnPlateau forward. This is because its learning rates are not known in advance. Use "
            "LATS(penalty) or a TargetSparsity without `lr_scheduler`, which read them as they come."
        )
    optimizer = lr_scheduler.optimizer
    groups = [
        {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    stand_in = SimpleNamespace(param_groups=groups, defaults=optimizer.defaults, step=None)
    shared = {id(module): module for module in _modules(lr_scheduler)}
    played = copy.deepcopy(lr_scheduler, memo={id(optimizer): stand_in, **shared})
    lrs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "step the optimizer first": there is nothing to step
        for step in range(1, steps + 1):
            lrs.append(max(float(groups[number]["lr"]) for number in numbers))
            if step % interval == 0 and step < steps:
                _play(played, pace, step, steps)
    return lrs


def _play(lr_scheduler: LRScheduler, pace: int, step: int, steps: int) -> None:
    try:
        for _ in range(pace):
            if pace > 1 and lr_scheduler._step_count > getattr(lr_scheduler, "total_steps", math.inf):
                return  # as Accelerate does
            lr_scheduler.step()
    except ValueError as error:  # OneCycleLR's, which has a last step
        raise ValueError(
            f"`lr_scheduler` ends after {step} optimizer steps, and {steps} are asked for. Give both the same number; "
            "`interval` is how many optimizer steps lie between two of the scheduler's."
        ) from error


def _modules(lr_scheduler: LRScheduler) -> Iterator[nn.Module]:
    """Those whose methods are its lambdas: a copy would copy the network, which FSDP2 forbids."""
    for inner in getattr(lr_scheduler, "_schedulers", ()):
        yield from _modules(inner)
    for function in getattr(lr_scheduler, "lr_lambdas", ()):
        owner = getattr(getattr(function, "func", function), "__self__", None)  # a partial has a func
        if isinstance(owner, nn.Module):
            yield owner
