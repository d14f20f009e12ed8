"""Before, after and inside an optimizer's step: closures, skipped steps, rehearsals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from softprune.attach.frames import is_inner_step, is_rehearsal
from softprune.attach.lookup import on_host

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Closure = Callable[[], Any]


def attach(
    optimizer: Optimizer,
    *,
    before: Callable[[bool], None],
    evaluate: Callable[[Closure], Any],
    after: Callable[[bool], None],
) -> list[RemovableHandle]:
    """Call ``before(closure given?)`` and ``after(does it count?)`` around each of the optimizer's steps, and
    ``evaluate(closure)`` whenever the optimizer calls its closure."""
    before, after = map(torch.compiler.disable, (before, after))  # torch.compile would recompile for each d
    depth = 0  # of steps under way, or one that raised

    def pre(optimizer: Optimizer, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords] | None:
        nonlocal depth
        if depth and is_inner_step(optimizer):
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
    hooks.move_to_end(handles[1].id, last=False)  # run first, so that later hooks (EMA) see w
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
    torch.distributed.checkpoint rehearses a step with zero gradients and a learning rate of zero, set on the host.
    """
    found_inf = getattr(optimizer, "found_inf", None)
    if found_inf is not None and bool(found_inf):
        return True
    lrs = [group.get("lr", 1.0) for group in optimizer.param_groups]
    return all(on_host(lr) and lr == 0 for lr in lrs) and is_rehearsal()
