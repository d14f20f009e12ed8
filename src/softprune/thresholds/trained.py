"""Trained thresholds: STR, one d for each layer or for all, and GPO, which trains its blend with the identity too."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from softprune.attach.lookup import LearningRate, held_ids
from softprune.attach.state import Entries
from softprune.errors import ArgumentError, ArgumentTypeError, require
from softprune.kernels.columns import take
from softprune.kernels.sharding import sharding
from softprune.prox.gradient import subgradient
from softprune.prox.soft import Blend
from softprune.thresholds.base import Rule, Threshold, Weights


class Trainable(Threshold, nn.Module):
    """A threshold with parameters of its own, which the user hands to the optimizer.

    ``forward()`` gives the columns; gradients reach the parameters through it. ``STR`` and ``GPO`` are the examples.

    Args:
        params: what is pruned, from ``sp.select``.
        shared: whether one number serves all parameters, or each has its own.
    """

    gradient = staticmethod(subgradient)

    def __init__(self, params: Mapping[str, nn.Parameter], shared: bool) -> None:
        nn.Module.__init__(self)
        if not isinstance(params, Mapping):
            raise ArgumentTypeError(
                f"`{type(self).__name__}(params=...)` must be a mapping {{name: Parameter}}. Got "
                f"{type(params).__name__}: write `softprune.select(model)`."
            )
        if not params:
            raise ArgumentError(f"`{type(self).__name__}(params=...)` must hold at least one parameter.")
        self.names = tuple(params)
        self.shared = shared

    @abstractmethod
    def forward(self) -> tuple[Tensor, ...]: ...

    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        kind = type(self).__name__
        if self.names != tuple(weights.names):
            raise ArgumentError(
                f"`{kind}` was built for other parameters than `Pruner` is given. Pass the same mapping to both."
            )
        if any(sharding(p) is not None for p in self.parameters()):
            raise ArgumentError(
                f"The parameters of `{kind}` are sharded, one number here and one there. Make it part of the model "
                "after `fully_shard`."
            )
        held = held_ids(optimizer)
        if any(id(p) not in held for p in self.parameters()):
            raise ArgumentError(
                f"The optimizer does not hold the parameters of `{kind}`, so the threshold would not be trained. "
                "Write `optimizer.add_param_group({'params': threshold.parameters()})` before making an lr "
                "scheduler, or hand them to the optimizer with the others."
            )
        return TrainedRule(self, weights)

    def _new_parameter(self, params: Mapping[str, nn.Parameter], value: float) -> nn.Parameter:
        """One number for each pruned parameter (or for all), in single precision or better."""
        require(type(self).__name__, "init", value, "finite", math.isfinite)
        like = next(iter(params.values()))
        dtype = torch.promote_types(like.dtype, torch.float32)
        size = 1 if self.shared else len(self.names)
        return nn.Parameter(torch.full((size,), float(value), dtype=dtype, device=like.device))


class TrainedRule(Rule):
    """Levels on the device, from parameters that the optimizer moves."""

    threshold: Trainable

    def __init__(self, threshold: Trainable, weights: Weights) -> None:
        super().__init__(threshold, weights)
        self.trained = list(threshold.parameters())
        self.reread()

    def reread(self) -> None:
        with torch.no_grad():
            self.levels = self.threshold.forward()

    def advance(self, step: int, lrs: Sequence[LearningRate]) -> None:
        self.reread()

    def pull_back(self, have: list[int], sums: Sequence[Tensor]) -> None:
        """By ``autograd.grad``: ``backward`` would fire DDP's hooks if the threshold is part of the model."""
        with torch.enable_grad():
            columns = [take(column, have) for column in self.threshold.forward()]
            found = torch.autograd.grad(columns, self.trained, sums)
        for p, grad in zip(self.trained, found, strict=True):
            p.grad = grad if p.grad is None else p.grad + grad

    def state(self) -> Entries:
        return {p: {"value": p.detach()} for p in self.trained}

    def load(self, entries: Entries) -> None:
        for p in self.trained:
            p.detach().copy_(entries[p]["value"])
        self.reread()


_TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "exp": torch.exp}


class STR(Trainable):
    """d = σ(s) or eˢ with trained s: one for each parameter, or one ``shared`` by all (STR-GS).

    What moves s is mostly weight decay, so give s a param group with the decay you mean:

        threshold = sp.STR(params, init=-200.0)
        optimizer = SGD([{"params": model.parameters()},
                         {"params": threshold.parameters(), "weight_decay": 1e-4}], lr=0.1)

    Args:
        params: what is pruned, from ``sp.select``; the pruner is given the same.
        init: s at the start.
        transform: "sigmoid" or "exp".
        shared: one s for all parameters.

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
            raise ArgumentError(f"`STR(transform=...)` must be one of {list(_TRANSFORMS)}. Got {transform!r}.")
        self.transform = transform
        self.s = self._new_parameter(params, init)

    def forward(self) -> tuple[Tensor, ...]:
        return (_TRANSFORMS[self.transform](self.s).expand(len(self.names)),)

    def extra_repr(self) -> str:
        return f"parameters={len(self.names)}, transform={self.transform!r}, shared={self.shared}"


class GPO(Trainable):
    """w = (1 − k)·S_d(θ) + k·θ with d = σ(s) and k = 10⁻⁶·|b|, both trained, one for each parameter.

    b starts at 10⁶, where the mapping is the identity; weight decay takes it to zero, where it is STR's.

    Args:
        params: what is pruned, from ``sp.select``; the pruner is given the same.
        init: s at the start.

    >>> [level.item() for level in GPO({"weight": nn.Parameter(torch.ones(2, 2))}, init=0.0)()]
    [0.5, 1.0]
    """

    prox = Blend()
    SCALE = 1e-6

    def __init__(self, params: Mapping[str, nn.Parameter], init: float) -> None:
        super().__init__(params, shared=False)
        self.s = self._new_parameter(params, init)
        self.b = self._new_parameter(params, 1 / self.SCALE)

    def forward(self) -> tuple[Tensor, ...]:
        return torch.sigmoid(self.s), self.SCALE * self.b.abs()
