"""Where the threshold comes from: a schedule, the learning rate (LATS), or training itself (STR, GPO).

A threshold gives one value to each pruned parameter, as *columns*: ``(d,)``, or ``(d, k)`` for GPO.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from softprune.columns import Columns, take
from softprune.future import future_lrs
from softprune.prox import Blend, Prox, SoftThreshold
from softprune.schedule import CosineLATS, require_nonnegative, require_range, require_whole


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


@dataclass(frozen=True)
class Scheduled(Threshold):
    """d(t) = schedule(t), the same for every parameter."""

    schedule: Callable[[int], float]

    def initial(self, count: int) -> Columns:
        return self.advance((), [0.0] * count, 0)

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        d = float(self.schedule(step))
        if not 0 <= d < math.inf:
            raise ValueError(f"A threshold must be >= 0 and finite. {self.schedule!r} gives {d} at step {step}.")
        return ([d] * len(lrs),)


@dataclass(frozen=True)
class LATS(Threshold):
    """Learning rate adapted: d(t+1) = d(t) + μ · η(t), with μ = ``penalty`` and η the optimizer's own lr.

    The penalty is constant whatever the learning rate does: warm-up, step decay, one-cycle. A parameter
    follows the lr of its param group. Pruning begins after ``start`` steps.

    >>> LATS(penalty=0.5).advance(([0.0, 0.0],), lrs=[0.1, 0.2], step=1)
    ([0.05, 0.1],)
    """

    penalty: float
    start: int = field(default=0, kw_only=True)
    reads_lr: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_nonnegative("LATS", "penalty", self.penalty)
        require_whole("LATS", "start", self.start)

    def initial(self, count: int) -> Columns:
        return ([0.0] * count,)

    def advance(self, columns: Columns, lrs: list[float], step: int) -> Columns:
        mu = self.penalty if step > self.start else 0.0
        return ([d + mu * lr for d, lr in zip(columns[0], lrs, strict=True)],)

    @classmethod
    def from_final(
        cls, final: float, lr_scheduler: LRScheduler, steps: int, *, interval: int = 1, start: int = 0
    ) -> LATS:
        """The penalty whose threshold ends at ``final`` after ``steps``, under this learning-rate scheduler.

        The scheduler is played forward on a copy of the learning rates; it, the optimizer and the model are
        left alone. It is played from where it is: build this before a scheduler's state is restored. It is taken
        to be stepped after every ``interval`` optimizer steps (1, or the batches of an epoch). With several param
        groups, the first one ends at ``final``.

        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        >>> scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
        >>> round(LATS.from_final(0.5, scheduler, steps=100).penalty, 6)
        0.05
        """
        require_nonnegative("LATS.from_final", "final", final)
        require_range("LATS.from_final", steps, start)
        require_whole("LATS.from_final", "interval", interval, least=1)
        total = math.fsum(future_lrs(lr_scheduler, steps, interval)[start:])
        if not total > 0:
            raise ValueError(
                f"`LATS.from_final` needs learning rates that sum to more than 0. Got {total} over {steps} steps."
            )
        return cls(final / total, start=start)

    @staticmethod
    def cosine(final: float, epochs: int, batches: int) -> CosineLATS:
        """Eq. 9: the closed form for cosine annealing by epochs, a pure schedule."""
        return CosineLATS(final, epochs, batches)


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


_TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "exp": torch.exp}


class STR(Trainable):
    """d = σ(s) or eˢ with trainable s: one for each parameter, or one ``shared`` by all (STR-GS).

    What moves s is mostly weight decay, so give s a param group with the decay you mean:

        threshold = sp.STR(params, init=-200.0)
        optimizer = SGD([{"params": model.parameters()},
                         {"params": threshold.parameters(), "weight_decay": 1e-4}], lr=0.1)

    >>> STR({"weight": nn.Parameter(torch.ones(2, 2))}, init=0.0)()[0].item()
    0.5
    """

    def __init__(
        self,
        params: Mapping[str, nn.Parameter],
        init: float,
        transform: str = "sigmoid",
        shared: bool = False,
    ) -> None:
        super().__init__(params, shared)
        if transform not in _TRANSFORMS:
            raise ValueError(f"`STR(transform=...)` must be one of {list(_TRANSFORMS)}. Got {transform!r}.")
        self.transform = transform
        self.s = self._new_parameter(params, init)

    def forward(self) -> tuple[Tensor, ...]:
        return (_TRANSFORMS[self.transform](self.s).expand(len(self.names)),)

    def extra_repr(self) -> str:
        return f"parameters={len(self.names)}, transform={self.transform!r}, shared={self.shared}"


class GPO(Trainable):
    """w = (1 − k)·S_d(θ) + k·θ with d = σ(s) and k = 10⁻⁶·|b|, both trainable, one for each parameter.

    b starts at 10⁶, where the mapping is the identity; weight decay takes it to zero, where it is STR's.
    """

    SCALE = 1e-6

    def __init__(self, params: Mapping[str, nn.Parameter], init: float) -> None:
        super().__init__(params, shared=False)
        self.s = self._new_parameter(params, init)
        self.b = self._new_parameter(params, 1 / self.SCALE)

    def forward(self) -> tuple[Tensor, ...]:
        return torch.sigmoid(self.s), self.SCALE * self.b.abs()

    def mapping(self, prox: Prox) -> Prox:
        if prox != SoftThreshold():
            raise TypeError(
                f"Cannot use GPO with {prox}. This is because GPO blends the soft threshold with the "
                "identity. Leave `prox` out."
            )
        return Blend()
