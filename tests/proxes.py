"""Two more proximal maps, which claim less than the soft threshold does."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

import softprune as sp
from softprune.prox.base import Level

CLAIMS = {sp.Prox: (False, False, False), sp.SoftThreshold: (True, True, True), sp.Blend: (True, True, False)}
for kind, claims in CLAIMS.items():  # until they make them themselves
    kind.separable, kind.convex, kind.thresholds = claims


@dataclass(frozen=True)
class Firm(sp.Prox):
    """0 up to d, θ from c·d on, and a straight line between: the prox of the minimax concave penalty (MCP)."""

    c: float = 3.0

    separable = True
    thresholds = True

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        between = (theta - d * theta.sign()) * (self.c / (self.c - 1))
        kept = torch.where(theta.abs() >= self.c * d, theta, between)
        return torch.where(theta.abs() <= d, torch.zeros_like(theta), kept)

    def penalty(self, w: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        a = w.abs().clamp(max=self.c * d)
        return d * a - a * a / (2 * self.c)

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return torch.where(w.abs() >= self.c * d, w, d * w.sign() + w * ((self.c - 1) / self.c))


@dataclass(frozen=True)
class Rows(sp.Prox):
    """θ_G · max(1 − d·√|G| / ‖θ_G‖, 0) for each row G: the prox of d·√|G|·‖w_G‖, the group lasso."""

    convex = True

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return theta * (1 - d * _root(theta) / _norms(theta)).clamp(min=0)

    def penalty(self, w: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return d * _root(w) * _rows(w).norm(dim=1)

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return w * (1 + d * _root(w) / _norms(w))


def _rows(x: Tensor) -> Tensor:
    return x.flatten(1) if x.ndim > 1 else x.unsqueeze(1)


def _root(x: Tensor) -> float:
    return math.sqrt(_rows(x).shape[1])


def _norms(x: Tensor) -> Tensor:
    """Of rows, never 0, and of a shape that multiplies x."""
    norms = _rows(x).norm(dim=1).clamp(min=1e-30)
    return norms.view(-1, *(1 for _ in x.shape[1:]))


# -- the same maps, written in another way, for autograd to differentiate ---------------------------------------


def firm(theta: Tensor, d: float | Tensor) -> Tensor:
    return theta.sign() * torch.minimum(theta.abs(), 1.5 * torch.relu(theta.abs() - d))  # 3 / (3 − 1)


def rows(theta: Tensor, d: float | Tensor) -> Tensor:
    """S on the length of each row, and the row's direction kept."""
    matrix = theta.reshape(len(theta), -1) if theta.numel() else theta.reshape(len(theta), 0)
    length = (matrix * matrix).sum(1, keepdim=True).clamp(min=1e-300).sqrt()
    return (torch.relu(length - d * matrix.shape[1] ** 0.5) * (matrix / length)).view(theta.shape)
