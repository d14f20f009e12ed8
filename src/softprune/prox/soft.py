"""The soft threshold, and its blend with the identity. A kernel maps all parameters in one launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softprune.kernels import shrink
from softprune.kernels.columns import Column, Level, placed
from softprune.kernels.pairs import Pairs
from softprune.prox.base import Prox


class _Shrinkage(Prox):
    """θ − (1 − k)·clamp(θ, −d, d): what the two have in common is their kernel."""

    separable = convex = bounded = True

    def write(self, weights: Pairs, *columns: Column) -> None:
        shrink.soft_threshold(weights, *columns)

    def pull_back(self, grads: Pairs, *columns: Column, overwrite: bool) -> list[Tensor]:
        return shrink.subgradient(grads, *columns, overwrite=overwrite)


@dataclass(frozen=True)
class SoftThreshold(_Shrinkage):
    """w = S_d(θ) = sign(θ) · max(|θ| − d, 0), the prox of d·|w|.

    Written as θ − clamp(θ, −d, d): the same number, and never 0/0.

    >>> SoftThreshold()(torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0]), 1.0)
    tensor([-1.,  0.,  0.,  0.,  1.])
    """

    thresholds = True

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return theta - _clip(theta, d)

    def regularizer(self, w: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return d * w.abs()

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return w + d * w.sign()


@dataclass(frozen=True)
class Blend(_Shrinkage):
    """w = (1 − k) · S_d(θ) + k · θ: between the identity (k = 1) and the soft threshold (k = 0).

    |w| <= k·d wherever |θ| <= d: small, but zero only when k is. ``exact`` lets go of k.

    >>> Blend()(torch.tensor([0.5, 2.0]), 1.0, 0.5)
    tensor([0.2500, 1.5000])
    """

    reads = ("d", "k")

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        d, k = levels
        return theta - shrink.complement(k, theta) * _clip(theta, d)

    def regularizer(self, w: Tensor, *levels: Level) -> Tensor:
        d, k = levels
        inside = torch.where(w == 0, w, w * w / (2 * k))  # never 0/0 as k -> 0
        return (1 - k) * torch.where(w.abs() <= k * d, inside, d * (w.abs() - k * d / 2))

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        d, k = levels
        inside = torch.where(w == 0, w, w / k)
        return torch.where(w.abs() <= k * d, inside, w + (1 - k) * d * w.sign())

    def exact(self, weights: Pairs, *columns: Column) -> Iterator[Tensor]:
        levels = placed(columns[0], weights.thetas)
        return (SoftThreshold()(theta, d) for theta, d in zip(weights.thetas, levels, strict=True))


def _clip(theta: Tensor, d: Any) -> Tensor:
    return theta.clamp(min=-d).clamp(max=d)  # clamp(-d, d) forgets the gradient of −d where d = 0
