"""A proximal map that claims less than the soft threshold does, and references for those that the laws test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

import softprune as sp
from softprune.prox.base import Level


@dataclass(frozen=True)
class Rows(sp.Prox):
    """θ_G · max(1 − d·√|G| / ‖θ_G‖, 0) for each row G: the prox of d·√|G|·‖w_G‖, the group lasso."""

    convex = bounded = True

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return theta * (1 - d * _root(theta) / _norms(theta)).clamp(min=0)

    def regularizer(self, w: Tensor, *levels: Level) -> Tensor:
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


def power(theta: Tensor, d: float | Tensor, p: float) -> Tensor:
    """For 2p = n whole and r = d/|θ|, 1 − r^p = (1 − r^n) / (1 + r^p) and 1 − r^n = (1 − r) Σ r^k do not cancel.

    What is pruned is put in as 1 and taken out again: the root has no derivative at 0.
    """
    a, d = theta.abs(), torch.as_tensor(d, dtype=theta.dtype, device=theta.device)
    alive = a > d
    if p == math.inf:
        return theta * alive + 0 * d
    a, d = torch.where(alive, a, 1.0), torch.where(alive, d, 0.0)
    r = d / a
    rest = (a - d) / a * sum(r**k for k in range(round(2 * p))) / (1 + r**p)
    return torch.where(alive, theta * rest ** (1 / p), 0.0)


def rows(theta: Tensor, d: float | Tensor) -> Tensor:
    """S on the length of each row, and the row's direction kept."""
    matrix = theta.reshape(len(theta), -1) if theta.numel() else theta.reshape(len(theta), 0)
    length = (matrix * matrix).sum(1, keepdim=True).clamp(min=1e-300).sqrt()
    return (torch.relu(length - d * matrix.shape[1] ** 0.5) * (matrix / length)).view(theta.shape)


def nm(theta: Tensor, d: float | Tensor, n: int, m: int, p: float) -> Tensor:
    """Group by group, with all magnitudes sorted; what is left of the inputs stays."""
    dim = min(1, theta.ndim - 1)
    parts = []
    for part in theta.split(m, dim):
        if part.shape[dim] == m:
            last = part.abs().sort(dim, descending=True).values.narrow(dim, n, 1)
            d_of_group = torch.minimum(last, torch.as_tensor(d, dtype=last.dtype))
            part = power(part, d_of_group, p)
        parts.append(part)
    return torch.cat(parts, dim)


def blocks(theta: Tensor, d: float | Tensor, cols: int, p: float) -> Tensor:
    """The power threshold of the root mean square of ``cols`` inputs of an output, and their direction kept."""
    dim = min(1, theta.ndim - 1)
    parts = []
    for part in theta.split(cols, dim):
        r = part.square().mean(dim, keepdim=True).clamp(min=1e-300).sqrt()
        parts.append(part * (power(r, d, p) / r))
    return torch.cat(parts, dim)
