"""The gradient of the mapping: dL/dw -> dL/dθ and dL/dd.

    identity       dL/dθ = dL/dw                     STDS, LATS, PGH: pruned weights keep learning
    subgradient    dL/dθ = dL/dw · ∂w/∂θ             STR, GPO: pruned weights stand still

dL/dd always follows the true mapping; only a trained threshold asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from softprune.kernels.columns import Column
from softprune.kernels.pairs import Pairs
from softprune.prox.base import Prox

Gradient = Callable[..., list[Tensor]]
"""``gradient(prox, grads, *columns)`` turns the gradients in place and returns dL/d(column)."""


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
