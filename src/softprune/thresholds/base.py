"""A threshold is a value; bound to weights and an optimizer it becomes a rule, which Algorithm 1 asks for d.

    threshold.bind(weights, optimizer) -> rule
    rule.levels                     d for each parameter (GPO: d and k)
    rule.advance(step, lrs)         d(t) from d(t−1) and η(t)
    rule.finish(step)               d to end with, where pruning stops
    rule.state(), rule.load(...)    what resuming needs

A threshold that the host computes from d and η alone is a ``Stepwise``: one class with one method, ``next``. One that
looks at the weights, or has numbers of its own to save, brings its own ``Rule`` (target.py); one that is trained is a
``Trainable``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from softprune.attach.lookup import Rate
from softprune.attach.state import Entries
from softprune.errors import ArgumentError
from softprune.kernels.columns import Columns, take
from softprune.kernels.pairs import Pairs
from softprune.kernels.sharding import sharding
from softprune.prox.base import Prox
from softprune.prox.gradient import Gradient, identity, subgradient


class Weights(Protocol):
    """What a rule may see of the pruned weights; it reads them and writes none."""

    names: Sequence[str]
    params: Sequence[nn.Parameter]

    @property
    def pairs(self) -> Pairs:
        """This process's part of w, each with its θ."""


class Threshold(ABC):
    """Where d comes from: a value that can be printed, copied, pickled and used again."""

    gradient: ClassVar[Gradient] = staticmethod(identity)
    """∂w/∂θ, unless ``Pruner(gradient=...)`` says otherwise."""

    @abstractmethod
    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        """This threshold at work on the weights of one pruner."""

    def mapping(self, prox: Prox) -> Prox:
        """The prox that this threshold drives, given the one asked for."""
        return prox


class Rule(ABC):
    """A threshold at work on the weights of one pruner."""

    levels: Columns
    """What the prox reads, one column for each of ``prox.reads``; replaced, never changed in place."""
    trained: Sequence[nn.Parameter] = ()
    """Parameters of its own, which the optimizer trains."""
    counts_zeros: ClassVar[bool] = False
    """Whether it takes the weights with |θ| <= d, and no others, to be zero."""
    forecast: float | None = None
    """The sparsity at the end that it expects, if it does."""

    def __init__(self, threshold: Threshold, weights: Weights) -> None:
        self.threshold = threshold
        self.weights = weights

    @abstractmethod
    def advance(self, step: int, lrs: Sequence[Rate]) -> None:
        """d after step number ``step`` = 1, 2, ..., which used the learning rates ``lrs``, one for each parameter."""

    def finish(self, step: int) -> None:
        """d to end with, where pruning stops after ``step`` steps; a warning, if that is not where it should end."""

    @abstractmethod
    def state(self) -> Entries:
        """What resuming needs: {parameter: {key: tensor or number}}, of pruned parameters or of ``trained`` ones."""

    @abstractmethod
    def load(self, entries: Entries) -> None:
        """Take back what ``state`` gave."""

    def check(self, entries: Entries) -> None:
        """Refuse the state of another kind of threshold: other keys, or tensors of other shapes."""
        for p, mine in self.state().items():
            theirs = entries.get(p, {})
            if mine.keys() != theirs.keys() or any(_shape(mine[key]) != _shape(theirs[key]) for key in mine):
                raise ArgumentError(
                    f"Cannot load this state: it was saved with another threshold than {self.threshold}: another kind, "
                    "other parameters, or another budget. Build the Pruner with the threshold of that run."
                )

    def reread(self) -> None:
        """Levels anew, in the middle of a step: an optimizer that evaluates a closure may have moved ``trained``."""

    def pull_back(self, have: list[int], sums: Sequence[Tensor]) -> None:
        """Turn dL/d(column), of the parameters with indices ``have``, into gradients of ``trained``."""


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


class Stepwise(Threshold):
    """A threshold that the host computes, step by step: d(t) from d(t−1) and the learning rates η(t)."""

    def first(self, count: int) -> list[float]:
        """d(0) for ``count`` parameters."""
        return [0.0] * count

    @abstractmethod
    def next(self, d: list[float], lrs: Sequence[Rate], step: int) -> list[float]:
        """d(t) for each parameter after step ``step`` = 1, 2, ..."""

    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        return StepwiseRule(self, weights)

    def finish(self, d: list[float], step: int) -> None:
        """Warn, if d is not where it should end."""


class StepwiseRule(Rule):
    """d, and nothing else to remember."""

    threshold: Stepwise

    def __init__(self, threshold: Stepwise, weights: Weights) -> None:
        super().__init__(threshold, weights)
        self._take(threshold.first(len(weights.params)))

    def _take(self, d: list[float]) -> None:
        self.d, self.levels = d, (d,)

    def advance(self, step: int, lrs: Sequence[Rate]) -> None:
        self._take(self.threshold.next(self.d, lrs, step))

    def finish(self, step: int) -> None:
        self.threshold.finish(self.d, step)

    def state(self) -> Entries:
        return {p: {"threshold": d} for p, d in zip(self.weights.params, self.d, strict=True)}

    def load(self, entries: Entries) -> None:
        self._take([float(entries[p]["threshold"]) for p in self.weights.params])


class Trainable(Threshold, nn.Module):
    """A threshold with parameters of its own, which the user hands to the optimizer.

    ``forward()`` gives the columns; gradients reach the parameters through it.
    """

    gradient = staticmethod(subgradient)

    def __init__(self, params: Mapping[str, nn.Parameter], shared: bool) -> None:
        nn.Module.__init__(self)
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
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if any(id(p) not in held for p in self.parameters()):
            raise ArgumentError(
                f"The optimizer does not hold the parameters of `{kind}`, so the threshold would not be trained. "
                "Write `optimizer.add_param_group({'params': threshold.parameters()})` before making an lr "
                "scheduler, or hand them to the optimizer with the others."
            )
        return TrainedRule(self, weights)

    def _new_parameter(self, params: Mapping[str, nn.Parameter], value: float) -> nn.Parameter:
        """One number for each pruned parameter (or for all), in single precision or better."""
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

    def advance(self, step: int, lrs: Sequence[Rate]) -> None:
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
