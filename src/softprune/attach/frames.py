"""Two questions that only the interpreter's frames answer, by names that torch does not promise.

They hold for torch 2.6 to 2.13: ``Optimizer.profile_hook_step.<locals>.wrapper`` runs the hooks around ``step``, and
``torch.distributed.checkpoint.state_dict._init_optim_state`` rehearses a step. ``tests/attach`` and
``tests/pruner/test_distributed.py`` fail where a release renames them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType

from torch.optim import Optimizer


def is_inner_step(optimizer: Optimizer) -> bool:
    """Whether this step is part of one under way: a subclass calls ``super().step()``, and torch runs the hooks of
    both."""
    steps = (f for f in _callers() if f.f_code.co_qualname == "Optimizer.profile_hook_step.<locals>.wrapper")
    return sum(f.f_locals["args"][0] is optimizer for f in steps) > 1


def is_rehearsal() -> bool:
    """Whether torch.distributed.checkpoint steps the optimizer to learn the layout of its state."""
    return any(f.f_code.co_name == "_init_optim_state" for f in _callers())


def _callers() -> Iterator[FrameType]:
    frame = sys._getframe().f_back
    while frame:
        yield frame
        frame = frame.f_back
