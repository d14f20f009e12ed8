"""A threshold is a value; bound to weights and an optimizer it becomes a rule, which Algorithm 1 asks for d.

    threshold.bind(weights, optimizer) -> rule
    rule.levels                     d for each parameter (GPO: d and k)
    rule.advance(step, lrs)         d(t) from d(t−1) and η(t)
    rule.finish(step)               d to end with, where pruning stops
    rule.state(), rule.load(...)    what resuming needs

A threshold that the host computes from d and η alone is a ``Stepwise`` (scheduled.py): one class with one method,
``next``. One that looks at the weights, or has numbers of its own to save, brings its own ``Rule`` (target.py); one
that is trained is a ``Trainable`` (trained.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from softprune.attach.lookup import LearningRate
from softprune.attach.state import Entries
from softprune.errors import ArgumentError
from softprune.kernels.columns import Columns
from softprune.kernels.pairs import Pairs
from softprune.prox.base import Prox
from softprune.prox.gradient import Gradient, identity
from softprune.prox.soft import SoftThreshold


class Weights(Protocol):
    """What a rule may see of the pruned weights; it reads them and writes none."""

    names: Sequence[str]
    params: Sequence[nn.Parameter]

    @property
    def pairs(self) -> Pairs:
        """This process's part of w, each with its θ."""

    @property
    def prox(self) -> Prox:
        """What maps θ to w."""

    @property
    def sizes(self) -> Pairs:
        """What is compared with d, weight by weight and up to its sign: θ, or the sizes of groups."""


class Threshold(ABC):
    """Where d comes from: a value that can be printed, copied, pickled and used again.

    >>> import softprune as sp
    >>> from torch.optim import SGD
    >>> model = nn.Linear(2, 2)
    >>> pruner = sp.Pruner(sp.select(model), SGD(model.parameters(), lr=0.1), threshold=sp.LATS(penalty=0.5))
    >>> pruner.rule.threshold
    LATS(penalty=0.5, start=0)
    """

    prox: ClassVar[Prox] = SoftThreshold()
    """The mapping that it drives, unless ``Pruner(prox=...)`` says otherwise."""
    gradient: ClassVar[Gradient] = staticmethod(identity)
    """∂w/∂θ, unless ``Pruner(gradient=...)`` says otherwise."""

    @abstractmethod
    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        """This threshold at work on the weights of one pruner.

        Args:
            weights: names, parameters and θ of what is pruned; a rule reads them and writes none.
            optimizer: the optimizer that trains them, for those who follow its learning rates or its state.
        """


class Rule(ABC):
    """A threshold at work on the weights of one pruner."""

    levels: Columns
    """What the prox reads, one column for each of ``prox.reads``; replaced, never changed in place."""
    trained: Sequence[nn.Parameter] = ()
    """Parameters of its own, which the optimizer trains."""
    counts_zeros: ClassVar[bool] = False
    """Whether it takes the weights with |θ| <= d, and no others, to be zero."""
    forecast: float | None = None
    """The sparsity that it expects to arrive at, while it is on its way."""

    def __init__(self, threshold: Threshold, weights: Weights) -> None:
        self.threshold = threshold
        self.weights = weights

    @abstractmethod
    def advance(self, step: int, lrs: Sequence[LearningRate]) -> None:
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
            if mine.keys() != theirs.keys() or any(not _alike(mine[key], theirs[key]) for key in mine):
                raise ArgumentError(
                    f"Cannot load this state: it was saved with another threshold than {self.threshold}: another kind, "
                    "other parameters, or another budget. Build the Pruner with the threshold of that run."
                )

    def reread(self) -> None:
        """Levels anew, in the middle of a step: an optimizer that evaluates a closure may have moved ``trained``."""

    def pull_back(self, have: list[int], sums: Sequence[Tensor]) -> None:
        """Turn dL/d(column), of the parameters with indices ``have``, into gradients of ``trained``."""


def _alike(mine: Any, theirs: Any) -> bool:
    """Tensors of one shape, or numbers, which a checkpoint may have made tensors."""
    if not isinstance(theirs, Tensor | int | float):
        return False
    shapes = [tuple(value.shape) if isinstance(value, Tensor) else () for value in (mine, theirs)]
    return shapes[0] == shapes[1]
