"""What torch's optimizers do around a step: wrappers, closures, skipped steps, rehearsals."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Closure = Callable[[], Any]


WRAPPERS = ("accelerate", "lightning", "pytorch_lightning")  # that pass on every step, and move no weights


def innermost(optimizer: Any) -> Optimizer:
    """The torch optimizer inside Accelerate's, Lightning's and similar wrappers: its hooks are the ones run."""
    kind = type(optimizer).__name__
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        if isinstance(optimizer, Optimizer) and type(optimizer).__module__.split(".")[0] not in WRAPPERS:
            raise TypeError(
                f"Cannot prune under {kind}: it may move weights outside of the steps of the optimizer in it, as "
                "Lookahead does. If it only passes steps on, give that one: `Pruner(params, optimizer.optimizer, ...)`."
            )
        optimizer = inner
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"`Pruner(optimizer=...)` must be a torch.optim.Optimizer. Got {kind}.")
    if callable(getattr(optimizer, "eval", None)) and callable(getattr(optimizer, "train", None)):
        raise TypeError(
            f"Cannot prune under {kind}: as a schedule-free optimizer it trades the weights for their average outside "
            "of its steps, which would be neither sparse nor θ. Use an optimizer that moves weights in its steps only."
        )
    return optimizer


def group_indices(optimizer: Optimizer, params: Iterable[Tensor]) -> list[int]:
    """For each parameter the number of its param group, whose learning rate it follows."""
    return _of_each(params, optimizer, {id(p): i for i, g in enumerate(optimizer.param_groups) for p in g["params"]})


def numbers(optimizer: Optimizer, params: Iterable[Tensor]) -> list[int]:
    """For each parameter its number in the optimizer's state dicts."""
    held = (p for group in optimizer.param_groups for p in group["params"])
    return _of_each(params, optimizer, {id(p): n for n, p in enumerate(held)})


def _of_each(params: Iterable[Tensor], optimizer: Optimizer, table: Mapping[int, int]) -> list[int]:
    try:
        return [table[id(p)] for p in params]
    except KeyError:
        raise ValueError(
            f"The {type(optimizer).__name__} does not hold all of the parameters that are pruned. Call `detach()` "
            "before taking some away; and an `lr_scheduler` must be that of the same optimizer."
        ) from None


def rates(optimizer: Optimizer, params: Sequence[Tensor], *, read: bool) -> list[Any]:
    """The learning rate of each parameter: that of its param group, wherever it is by now; nan if there is none.

    One on a device stays a tensor there unless it is to be ``read``, for which the host waits.
    """
    lrs = [_rate(group.get("lr"), read) for group in optimizer.param_groups]
    if len(set(lrs)) == 1:
        return lrs[:1] * len(params)
    return [lrs[number] for number in group_indices(optimizer, params)]


def _rate(lr: float | Tensor | None, read: bool) -> float | Tensor:
    if lr is None:
        return math.nan
    return float(lr) if read or _on_host(lr) else lr.detach().clone()  # type: ignore[union-attr]


def _on_host(lr: float | Tensor) -> bool:
    return not isinstance(lr, Tensor) or lr.device.type == "cpu"


def attach(
    optimizer: Optimizer,
    *,
    before: Callable[[bool], None],
    evaluate: Callable[[Closure], Any],
    after: Callable[[bool], None],
) -> list[RemovableHandle]:
    """Call ``before(closure given?)`` and ``after(does it count?)`` around each of the optimizer's steps, and
    ``evaluate(closure)`` whenever the optimizer calls its closure."""
    before, after = map(torch.compiler.disable, (before, after))  # to a compiler each d would be another constant
    depth = 0  # of steps under way, or one that raised

    def pre(optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords] | None:
        nonlocal depth
        if depth and _is_inner_step(optimizer):
            depth += 1
            return None
        depth = 1
        replaced = _replace_closure(args, kwargs, lambda closure: lambda: evaluate(closure))
        before(replaced is not None)
        return replaced

    def post(optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            after(not _skipped(optimizer))

    handles = [optimizer.register_step_pre_hook(pre), optimizer.register_step_post_hook(post)]
    hooks: Any = optimizer._optimizer_step_post_hooks
    hooks.move_to_end(handles[1].id, last=False)  # others, such as averages, are to see w
    return handles


def _replace_closure(
    args: Arguments, kwargs: Keywords, wrap: Callable[[Closure], Closure]
) -> tuple[Arguments, Keywords] | None:
    """The arguments of ``step(self, closure)`` with the closure wrapped, or None if there is no closure."""
    if len(args) > 1 and callable(args[1]):
        return (args[0], wrap(args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": wrap(kwargs["closure"])}
    return None


def _skipped(optimizer: Optimizer) -> bool:
    """Whether the step that just ended moved nothing and must not count.

    GradScaler lets a fused optimizer skip steps by itself: ``found_inf`` says so, and only there is a value
    read from the device (any other optimizer makes GradScaler read it, and is not called at all).
    torch.distributed.checkpoint rehearses a step with zero gradients to learn the layout of the state.
    """
    found_inf = getattr(optimizer, "found_inf", None)
    if found_inf is not None and bool(found_inf):
        return True
    lrs = [group.get("lr", 1.0) for group in optimizer.param_groups]
    return all(_on_host(lr) and lr == 0 for lr in lrs) and _is_rehearsal()  # which sets numbers of the host


def _is_inner_step(optimizer: Optimizer) -> bool:
    """Whether this step is part of one under way: of a subclass that calls ``super().step()``, where torch runs the
    hooks of both."""
    steps = (f for f in _callers() if f.f_code.co_qualname == "Optimizer.profile_hook_step.<locals>.wrapper")
    return sum(f.f_locals["args"][0] is optimizer for f in steps) > 1


def _is_rehearsal() -> bool:
    return any(f.f_code.co_name == "_init_optim_state" for f in _callers())


def _callers() -> Iterator[FrameType]:
    frame = sys._getframe().f_back
    while frame:
        yield frame
        frame = frame.f_back
