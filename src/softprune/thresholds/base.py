"""Where the threshold comes from: a schedule, the learning rate (LATS), or training itself (STR, GPO).

A threshold gives one value to each pruned parameter, as *columns*: ``(d,)``, or ``(d, k)`` for GPO.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from softprune.kernels.columns import Columns, take
from softprune.prox.base import Prox


class Threshold(ABC):
    """d(0), and d(t) from d(t−1): all that Algorithm 1 asks of a threshold."""

    reads_lr: ClassVar[bool] = False
    """Whether it follows the learning rates, which some optimizers do not have."""
    counts_zeros: ClassVar[bool] = False
    """Whether it takes the weights with |θ| <= d, and no others, to be zero."""

    @abstractmethod
    def initial(self, count: int) -> Columns:
        """The thresholds of ``count`` parameters before the first step."""

    @abstractmethod
    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        """The thresholds after step number ``step`` = 1, 2, ..., which used the learning rates ``lrs``."""

    def watch(self, hidden: Any) -> Threshold:
        """This threshold, or one that looks at the hidden weights of a pruner."""
        return self

    def conclude(self, columns: Columns, step: int) -> Columns:
        """The thresholds to end with, where pruning stops after ``step`` steps."""
        return columns

    def state(self) -> dict[str, float]:
        """What resuming needs besides d."""
        return {}

    def load_state(self, state: dict[str, float]) -> None:
        """Take back what ``state`` gave."""
        self.refuse_state(state)

    def refuse_state(self, state: dict[str, float]) -> None:
        """Object to the state of another kind of threshold."""
        if state:
            raise ValueError(
                f"Cannot load this state: its threshold adapts to the weights, and {type(self).__name__} does not. "
                "Build the Pruner with the kind of threshold that the state was saved with."
            )


class Trainable(Threshold, nn.Module):
    """A threshold with parameters of its own, which the user hands to the optimizer.

    ``forward()`` gives the columns; gradients reach the parameters through it.
    """

    def __init__(self, params: Mapping[str, nn.Parameter], shared: bool) -> None:
        nn.Module.__init__(self)
        if not params:
            raise ValueError(f"`{type(self).__name__}(params=...)` must hold at least one parameter.")
        self.names = tuple(params)
        self.shared = shared

    @abstractmethod
    def forward(self) -> tuple[Tensor, ...]: ...

    def mapping(self, prox: Prox) -> Prox:
        """The prox that this threshold drives."""
        return prox

    def initial(self, count: int) -> Columns:
        with torch.no_grad():
            return self.forward()

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        return self.initial(len(lrs))

    def pull_back(self, have: list[int], sums: Sequence[Tensor]) -> None:
        """Add dL/ds to the gradients of s, given dL/d(column) for the entries ``have`` of each column.

        Not by ``backward``, which would wake DDP where the threshold hangs on the model.
        """
        own = list(self.parameters())
        with torch.enable_grad():
            found = torch.autograd.grad([take(column, have) for column in self.forward()], own, sums)
        for p, grad in zip(own, found, strict=True):
            p.grad = grad if p.grad is None else p.grad + grad

    def _new_parameter(self, params: Mapping[str, nn.Parameter], value: float) -> nn.Parameter:
        """One number for each pruned parameter (or for all), in single precision or better."""
        like = next(iter(params.values()))
        dtype = torch.promote_types(like.dtype, torch.float32)
        size = 1 if self.shared else len(self.names)
        return nn.Parameter(torch.full((size,), float(value), dtype=dtype, device=like.device))
