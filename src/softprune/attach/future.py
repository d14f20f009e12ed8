"""Learning rates to come: a scheduler, played forward on a copy, from where it is or from its beginning, and what its
rates add up to."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import accumulate
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, ReduceLROnPlateau, SequentialLR

from softprune.attach.wrappers import accelerate_pace, unwrap_scheduler
from softprune.errors import ArgumentError, ArgumentTypeError


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
        """How far the scheduler is ahead of the optimizer after ``step`` steps, as a GradScaler skips some: as far as
        was ``known``, or up to ``most`` steps if the rate ``lr`` is found there."""
        for skipped in range(known, most + 1):
            if step + skipped < len(self.lrs) and math.isclose(self.lrs[step + skipped], lr, rel_tol=1e-9):
                return skipped
        return known

    def predicts(self, step: int, lr: float) -> bool:
        """Whether ``lr`` is what was expected about then."""
        near = self.lrs[max(0, step - 10) : step + 10]
        return 0.99 * min(near) <= lr <= 1.01 * max(near)


def _from_each_on(values: Sequence[float]) -> list[float]:
    return [*accumulate(reversed(values), initial=0.0)][::-1]


def future_lrs(lr_scheduler: LRScheduler, steps: int, interval: int = 1, groups: Collection[int] = (0,)) -> list[float]:
    """The highest learning rate among some param groups, for the next ``steps`` steps, from a copy of the scheduler."""
    pace, lr_scheduler = accelerate_pace(lr_scheduler), unwrap_scheduler(lr_scheduler)
    if isinstance(lr_scheduler, ReduceLROnPlateau):
        raise ArgumentTypeError(
            "Cannot play a ReduceLROnPlateau forward. This is because its learning rates are not known in advance. Use "
            "LATS(penalty) or a TargetSparsity without `lr_scheduler`, which read them as they come."
        )
    played, param_groups = _copied(lr_scheduler)
    lrs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "step the optimizer first": there is nothing to step
        for step in range(1, steps + 1):
            lrs.append(max(float(param_groups[index]["lr"]) for index in groups))
            if step % interval == 0 and step < steps:
                _play(played, pace, step, steps)
    return lrs


def _copied(lr_scheduler: LRScheduler) -> tuple[LRScheduler, list[dict[str, Any]]]:
    """A scheduler of the same state, and the param groups that it moves, which are a copy too."""
    optimizer = lr_scheduler.optimizer
    groups = [
        {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    stand_in = SimpleNamespace(param_groups=groups, defaults=optimizer.defaults, step=None)
    shared = {id(function): function for function in _functions(lr_scheduler)}
    try:
        return copy.deepcopy(lr_scheduler, memo={id(optimizer): stand_in, **shared}), groups
    except (TypeError, RuntimeError) as error:
        raise ArgumentError(
            f"Cannot play `lr_scheduler` forward. This is because it cannot be copied: {error}. Give it a function, or "
            "an object that can be copied; or leave `lr_scheduler` out."
        ) from error


def foreseen(lr_scheduler: Any) -> LRScheduler | None:
    """A trainer's scheduler, if its learning rates are known in advance."""
    known = isinstance(lr_scheduler, LRScheduler) and not isinstance(lr_scheduler, ReduceLROnPlateau)
    return lr_scheduler if known else None


def rewound(lr_scheduler: LRScheduler) -> LRScheduler:
    """A copy of a scheduler as it was before its first step, which moves a copy of the optimizer's param groups: for
    those who meet a scheduler after its state was restored."""
    played, groups = _copied(lr_scheduler)
    for copied, group in zip(groups, lr_scheduler.optimizer.param_groups, strict=True):
        copied.update(params=group["params"], lr=copied.get("initial_lr", copied["lr"]))
    _begin(played)
    return played


def _begin(lr_scheduler: Any) -> None:
    """What a scheduler does when it is built."""
    if isinstance(lr_scheduler, ChainedScheduler):
        for part in lr_scheduler._schedulers:
            _begin(part)
    elif isinstance(lr_scheduler, SequentialLR):
        for part in lr_scheduler._schedulers:
            part.last_epoch = -1
        lr_scheduler.last_epoch = 0
        _begin(lr_scheduler._schedulers[0])
    else:
        lr_scheduler.last_epoch = -1
        lr_scheduler._initial_step()


def _play(lr_scheduler: LRScheduler, pace: int, step: int, steps: int) -> None:
    try:
        for _ in range(pace):
            if pace > 1 and lr_scheduler._step_count > getattr(lr_scheduler, "total_steps", math.inf):
                return  # as Accelerate does
            lr_scheduler.step()
    except ValueError as error:  # OneCycleLR's, which has a last step
        raise ArgumentError(
            f"`lr_scheduler` ends after {step} optimizer steps, and {steps} are asked for. Give both the same number; "
            "`interval` is how many optimizer steps lie between two of the scheduler's."
        ) from error


def _functions(lr_scheduler: LRScheduler) -> Iterator[Any]:
    """Its lambdas that are functions or methods. They are shared with the copy: a method may belong to a network, which
    must not be copied."""
    for inner in getattr(lr_scheduler, "_schedulers", ()):
        yield from _functions(inner)
    for function in getattr(lr_scheduler, "lr_lambdas", ()):
        if isinstance(function, FunctionType | MethodType | partial):
            yield function
