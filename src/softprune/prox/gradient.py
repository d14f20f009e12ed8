"""The gradient of the mapping: dL/dw -> dL/dθ and dL/dd.

    identity       dL/dθ = dL/dw                     STDS, LATS, PGH: pruned weights keep learning
    calm           the same, but no row of zeros     targets: a dead filter before a batch norm does not explode
                   learns faster than the others
    subgradient    dL/dθ = dL/dw · ∂w/∂θ             STR, GPO: pruned weights stand still

dL/dd always follows the true mapping; only a trained threshold asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from softprune.kernels import rows
from softprune.kernels.columns import Column
from softprune.kernels.pairs import Pairs
from softprune.prox.base import Prox

Gradient = Callable[..., list[Tensor]]
"""``gradient(prox, grads, *columns)`` turns the gradients in place and returns dL/d(column)."""


class Gradients(Pairs):
    """dL/dw of many parameters, each with its θ and its w; ``total`` adds up over processes, where they are sharded."""

    def __init__(
        self,
        xs: Sequence[Tensor],
        thetas: Sequence[Tensor],
        ws: Sequence[Tensor],
        total: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(xs, thetas)
        self.ws = ws
        self.total = total


def identity(prox: Prox, grads: Pairs, *columns: Column) -> list[Tensor]:
    """∂w/∂θ taken as 1 everywhere, at θ = 0 too: ``Pruner(..., gradient=sp.identity)``.

    Args:
        prox: the mapping.
        grads: dL/dw of many parameters, each with its θ; left as they are.
        columns: the levels of the mapping, d or d and k.

    >>> import torch; from softprune.prox.soft import SoftThreshold
    >>> theta, grad = torch.tensor([-2.0, 0.5, 3.0]), torch.tensor([1.0, 2.0, 4.0])
    >>> identity(SoftThreshold(), Pairs([grad], [theta]), torch.tensor([1.0]))
    [tensor([-3.])]
    >>> grad
    tensor([1., 2., 4.])
    """
    return prox.pull_back(grads, *columns, overwrite=False)


def calm(prox: Prox, grads: Gradients, *columns: Column) -> list[Tensor]:
    """The identity, but a row of zeros learns no faster than the other rows of its weight do on average:
    ``Pruner(..., gradient=sp.calm)``.

    A filter of which nothing is left gives a batch norm outputs of variance 0, which it divides by √(0 + ε): the
    gradient of its weights grows by 1/√ε, about 300 times, and with the identity they leap far beyond all others.

    Args:
        prox: the mapping.
        grads: dL/dw of many parameters, each with its θ and its w; rows of zeros are cut in length.
        columns: the levels of the mapping, d or d and k.

    >>> import torch; from softprune.prox.soft import SoftThreshold
    >>> w, grad = torch.tensor([[3.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [300.0, 400.0]])
    >>> calm(SoftThreshold(), Gradients([grad], [w], [w]), [1.0])
    []
    >>> grad
    tensor([[1.0000, 0.0000],
            [0.6000, 0.8000]])
    """
    trained = any(isinstance(column, Tensor) for column in columns)
    sums = identity(prox, grads, *columns) if trained else []
    rows.calm(Pairs(grads.xs, grads.ws), grads.total)
    return sums


def subgradient(prox: Prox, grads: Pairs, *columns: Column) -> list[Tensor]:
    """∂w/∂θ as it is; where it jumps, at |θ| = d, it is 0: ``Pruner(..., gradient=sp.subgradient)``.

    Args:
        prox: the mapping.
        grads: dL/dw of many parameters, each with its θ; replaced by dL/dθ.
        columns: the levels of the mapping, d or d and k.

    >>> import torch; from softprune.prox.soft import SoftThreshold
    >>> theta, grad = torch.tensor([-2.0, 0.5, 3.0]), torch.tensor([1.0, 2.0, 4.0])
    >>> subgradient(SoftThreshold(), Pairs([grad], [theta]), torch.tensor([1.0]))
    [tensor([-3.])]
    >>> grad
    tensor([1., 0., 4.])
    """
    return prox.pull_back(grads, *columns, overwrite=True)
