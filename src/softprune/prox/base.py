"""Proximal maps: hidden weight θ and threshold d -> weight w.

    SoftThreshold    w = S_d(θ) = sign(θ) · max(|θ| − d, 0)       the prox of d·|w|: STR, STDS, LATS, PGH
    Blend            w = (1 − k) · S_d(θ) + k · θ                 the prox of a Huber penalty: GPO

A prox acts element by element or not, as it likes; what it depends on besides θ are its *levels*: d alone,
or d and k. ``tests/laws/test_prox.py`` holds every prox to the same laws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from softprune.kernels.columns import Column, levels
from softprune.kernels.pairs import Pairs

Level = float | Tensor
"""What one parameter's prox is given: a number known to the host, or a 0-dimensional tensor."""


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
