"""The torch optimizer or scheduler inside a library's wrapper.

Hooks must sit on the optimizer that moves the weights. Accelerate and Lightning pass every step on and move no weights
themselves; other optimizers that hold an optimizer (Lookahead, SAM) may move weights beside its steps.
"""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from softprune.errors import ArgumentTypeError

PASS_ON = ("accelerate", "lightning", "pytorch_lightning", "torch")  # whose wrappers only pass steps on


def unwrap_optimizer(optimizer: Any) -> Optimizer:
    """The optimizer whose hooks are run. One that may move weights outside of its own steps is refused."""
    kind = type(optimizer).__name__
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        _refuse_others_inside(optimizer)
        optimizer = inner
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"`Pruner(optimizer=...)` must be a torch.optim.Optimizer. Got {kind}.")
    _refuse_others_inside(optimizer)
    if callable(getattr(optimizer, "eval", None)) and callable(getattr(optimizer, "train", None)):
        raise ArgumentTypeError(
            f"Cannot prune under {kind}. This is because a schedule-free optimizer trades the weights for their "
            "average outside of its steps, which would be neither sparse nor θ. Use an optimizer that moves weights in "
            "its steps only."
        )
    return optimizer


def _refuse_others_inside(optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer) or type(optimizer).__module__.split(".")[0] in PASS_ON:
        return
    for name, value in vars(optimizer).items():
        if isinstance(value, Optimizer) and value is not optimizer:
            raise ArgumentTypeError(
                f"Cannot prune under {type(optimizer).__name__}. This is because it may move weights outside of the "
                f"steps of the optimizer in it, as Lookahead does, or step that one alone, as SAM does. Give the inner "
                f"one: `Pruner(params, optimizer.{name}, ...)`."
            )


def unwrap_scheduler(lr_scheduler: Any) -> LRScheduler:
    """The torch scheduler inside a wrapper."""
    while isinstance(inner := getattr(lr_scheduler, "scheduler", None), LRScheduler):
        lr_scheduler = inner
    if not isinstance(lr_scheduler, LRScheduler):
        raise ArgumentTypeError(
            f"`lr_scheduler` must be one of torch.optim.lr_scheduler. Got {type(lr_scheduler).__name__}."
        )
    return lr_scheduler


def accelerate_pace(lr_scheduler: Any) -> int:
    """How often the scheduler inside steps at each step of the wrapper: Accelerate's does once for each process, unless
    batches are split among them; every other scheduler once."""
    if not getattr(lr_scheduler, "step_with_optimizer", False) or lr_scheduler.split_batches:
        return 1
    from accelerate.state import AcceleratorState

    return int(AcceleratorState().num_processes)
