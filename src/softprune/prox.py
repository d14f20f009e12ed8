"""Proximal maps: hidden weight θ and threshold d -> weight w.

    SoftThreshold    w = S_d(θ) = sign(θ) · max(|θ| − d, 0)       the prox of d·|w|: STR, STDS, LATS, PGH
    Blend            w = (1 − k) · S_d(θ) + k · θ                 the prox of a Huber penalty: GPO

A prox acts element by element or not, as it likes; what it depends on besides θ are its *levels*: d alone,
or d and k. ``tests/laws/test_prox.py`` holds every prox to the same laws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from softprune import multi_tensor
from softprune.columns import Column, levels, rest
from softprune.multi_tensor import Pairs

Level = float | Tensor
"""What one parameter's prox is given: a number known to the host, or a 0-dimensional tensor."""


def _clip(theta: Tensor, d: Any) -> Tensor:
    return theta.clamp(min=-d).clamp(max=d)  # clamp(-d, d) forgets the gradient of −d where d = 0


class Prox(ABC):
    """The map w(θ, d), its certificate, its derivative and its inverse."""

    reads: ClassVar[tuple[str, ...]] = ("d",)
    """Its levels, by name; a threshold gives as many columns."""

    @abstractmethod
    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        """w for θ; differentiable torch operations, so that ``vjp`` works."""

    @abstractmethod
    def penalty(self, w: Tensor, *levels: Level) -> Tensor:
        """The certificate, element by element: w(θ, d) minimises ½ (w − θ)² + penalty(w, d)."""

    @abstractmethod
    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        """A hidden weight θ that maps to w, so that weights may be set from outside."""

    def final(self, theta: Tensor, w: Tensor, *levels: Level) -> Tensor:
        """The exactly sparse weights that training leaves behind: w itself, unless w is only nearly sparse."""
        return w

    def vjp(self, theta: Tensor, grad: Tensor, *levels: Level) -> tuple[Tensor, ...]:
        """dL/dw -> dL/dθ, followed by dL/d(level) for the levels that are tensors."""
        with torch.enable_grad():
            theta = theta.detach().requires_grad_()
            levels = tuple(x.detach().requires_grad_() if isinstance(x, Tensor) else x for x in levels)
            inputs = [theta, *(x for x in levels if isinstance(x, Tensor))]
            return torch.autograd.grad(self(theta, *levels), inputs, grad)

    def write(self, weights: Pairs, *columns: Column) -> None:
        """w ← w(θ, d) for many parameters, in place."""
        placed = [levels(column, weights.thetas) for column in columns]
        for w, theta, *level in zip(weights.xs, weights.thetas, *placed, strict=True):
            w.copy_(self(theta, *level))

    def pull_back(self, grads: Pairs, *columns: Column, overwrite: bool) -> list[Tensor]:
        """dL/dw -> dL/d(column) for the columns that are tensors; with ``overwrite``, dL/dw ← dL/dθ in place."""
        sums = []
        placed = [levels(column, grads.thetas) for column in columns]
        for grad, theta, *level in zip(grads.xs, grads.thetas, *placed, strict=True):
            dtheta, *dlevels = self.vjp(theta, grad, *level)
            if overwrite:
                grad.copy_(dtheta)
            sums.append(dlevels)
        trained = [column for column in columns if isinstance(column, Tensor)]
        return [
            torch.stack([x.to(column.device) for x in parts])
            for parts, column in zip(zip(*sums, strict=True), trained, strict=True)
        ]


class _InOneLaunch(Prox):
    """Soft thresholds, blended or not, which a kernel maps for all parameters at once."""

    def write(self, weights: Pairs, *columns: Column) -> None:
        multi_tensor.soft_threshold(weights, *columns)

    def pull_back(self, grads: Pairs, *columns: Column, overwrite: bool) -> list[Tensor]:
        return multi_tensor.subgradient(grads, *columns, overwrite=overwrite)


@dataclass(frozen=True)
class SoftThreshold(_InOneLaunch):
    """w = S_d(θ) = sign(θ) · max(|θ| − d, 0).

    Written as θ − clamp(θ, −d, d): the same number, and never 0/0.

    >>> SoftThreshold()(torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0]), 1.0)
    tensor([-1.,  0.,  0.,  0.,  1.])
    """

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return theta - _clip(theta, d)

    def penalty(self, w: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return d * w.abs()

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return w + d * w.sign()


@dataclass(frozen=True)
class Blend(_InOneLaunch):
    """w = (1 − k) · S_d(θ) + k · θ: between the identity (k = 1) and the soft threshold (k = 0).

    |w| <= k·d wherever |θ| <= d: small, but zero only when k is. ``final`` lets go of k.

    >>> Blend()(torch.tensor([0.5, 2.0]), 1.0, 0.5)
    tensor([0.2500, 1.5000])
    """

    reads = ("d", "k")

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        d, k = levels
        return theta - rest(k, theta) * _clip(theta, d)

    def penalty(self, w: Tensor, *levels: Level) -> Tensor:
        d, k = levels
        inside = torch.where(w == 0, w, w * w / (2 * k))  # never 0/0 as k -> 0
        return (1 - k) * torch.where(w.abs() <= k * d, inside, d * (w.abs() - k * d / 2))

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        d, k = levels
        inside = torch.where(w == 0, w, w / k)
        return torch.where(w.abs() <= k * d, inside, w + (1 - k) * d * w.sign())

    def final(self, theta: Tensor, w: Tensor, *levels: Level) -> Tensor:
        d, _ = levels
        return SoftThreshold()(theta, d)
