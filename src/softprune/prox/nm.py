"""N:M sparsity: of every m neighbouring weights at most n are left, which GPUs can use (2:4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from softprune.errors import ArgumentError, require, require_whole
from softprune.kernels.columns import Column, Level, placed, typed
from softprune.kernels.pairs import Pairs
from softprune.kernels.sharding import cuts
from softprune.prox.base import Prox
from softprune.prox.power import PowerThreshold


@dataclass(frozen=True)
class NM(Prox):
    """The power threshold with t = min(d, the (n+1)-th largest |θ| of a group) in place of d: from dense to n:m.

        pruner = sp.Pruner(params, optimizer, threshold=sp.GradualSparsity(0.5, steps=T), prox=sp.NM(2, 4))

    A group is m neighbours along the second dimension of a weight, its inputs; in a convolution, at each position of
    the kernel. While d grows weights die one by one, as without groups, until n of a group are left. They never die,
    and their threshold grows no more: a target of 1 − n/m ends with n:m in every group, and larger ones are refused.
    Where the inputs are no multiple of m the last of them are in no group and stay dense.

    w depends continuously on θ and d, but for p = ∞. So where the n-th largest and the next are equally large both are
    zero, and fewer than n are left; a target still counts n of them as alive.

    For p < ∞ it is the prox of no function: an arrived group has ∂w₁/∂θ₍ₙ₊₁₎ ≠ 0 = ∂w₍ₙ₊₁₎/∂θ₁, and a prox has a
    symmetric derivative. It is that of the power threshold's ρ for the thresholds t as they are, which ``regularizer``
    takes. For p = ∞, but for ties, it is the prox of Σ ρ(w, d) over all but the n largest |w| of each group.

    Args:
        n: how many of a group are left.
        m: how many neighbours are a group.
        p: of ``PowerThreshold``; 1 is the soft threshold, ``math.inf`` the hard one.

    >>> theta = torch.tensor([[3.0, -1.0, 2.0, 0.5]])
    >>> NM(2, 4, p=1)(theta, 0.75)
    tensor([[ 2.2500, -0.2500,  1.2500,  0.0000]])
    >>> NM(2, 4, p=1)(theta, 100.0)
    tensor([[2., 0., 1., 0.]])
    """

    n: int
    m: int
    p: float = 4.0

    thresholds = True  # but for weights that are as large as the (n+1)-th

    def __post_init__(self) -> None:
        require_whole("NM", "n", self.n, least=1)
        require_whole("NM", "m", self.m, least=2)
        require("NM", "p", self.p, ">= 1", lambda x: x >= 1)
        if self.n >= self.m:
            raise ArgumentError(f"`NM(n=...)` must be < m = {self.m}. Got {self.n}.")

    @property
    def bounded(self) -> bool:
        return self.scalar.bounded

    @property
    def scalar(self) -> PowerThreshold:
        return PowerThreshold(self.p)

    def cuts(self, parameter: Tensor) -> bool:
        return cuts(parameter, _inputs(parameter), self.m)

    def level(self, theta: Tensor, d: Level) -> Tensor:
        """t of each weight: min(d, the (n+1)-th largest |θ| of its group), and 0 for those in no group."""
        t = self._spread(self._next(self._groups(theta).abs()), theta)
        return torch.minimum(t, typed(d, t)) if isinstance(d, Tensor) else t.clamp(max=float(typed(d, t)))

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        return self.scalar(theta, self.level(theta, *levels))

    def regularizer(self, w: Tensor, *levels: Level) -> Tensor:
        """ρ of the power threshold: w minimises Σ ½ (w − θ)² + Σ ρ(w, t) with t = ``level(θ, d)`` held fixed."""
        return self.scalar.regularizer(w, *levels)

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        """Where more than n of a group are left its threshold is d; else 0 will do, with w itself for θ."""
        (d,) = levels
        many = self._spread((self._groups(w) != 0).sum(_inputs(w) + 1) > self.n, w)
        return torch.where(many, self.scalar.inverse(w, d), w)

    def recover(self, weights: Pairs, written: Sequence[Tensor], *columns: Column) -> list[Tensor]:
        """Where a group has the zeros that were written it keeps its threshold; else all of it has another θ."""
        (column,) = columns
        thetas = []
        for w, theta, was, d in zip(weights.xs, weights.thetas, written, placed(column, weights.thetas), strict=True):
            alike = self._spread((self._groups(w == 0) == self._groups(was == 0)).all(_inputs(w) + 1), w)
            kept = torch.where(w == was, theta, self.scalar.inverse(w, self.level(theta, d)))
            thetas.append(torch.where(alike, kept, self.inverse(w, d)))
        return thetas

    def sizes(self, thetas: Sequence[Tensor]) -> Sequence[Tensor]:
        """|θ|, and infinite for those that never die: n of each group, of equal ones the first, and those in none."""
        return [self._sizes(theta) for theta in thetas]

    def write(self, weights: Pairs, *columns: Column) -> None:
        (column,) = columns
        levels = zip(weights.thetas, placed(column, weights.thetas), strict=True)
        self.scalar.write(weights, [self.level(theta, d) for theta, d in levels])

    def _sizes(self, theta: Tensor) -> Tensor:
        dim = _inputs(theta) + 1
        magnitudes = self._groups(theta).abs()
        last = self._next(magnitudes).unsqueeze(dim)
        above, ties = magnitudes > last, magnitudes == last
        stays = above | (ties & (ties.cumsum(dim) <= self.n - above.sum(dim, keepdim=True)))
        sizes = torch.full_like(theta, math.inf)
        self._groups(sizes).copy_(magnitudes.masked_fill_(stays, math.inf))
        return sizes

    def _groups(self, x: Tensor) -> Tensor:
        """A view of what is in groups: their members have a dimension of their own, after the inputs'."""
        dim = _inputs(x)
        number = x.shape[dim] // self.m
        return torch.unflatten(x.narrow(dim, 0, number * self.m), dim, (number, self.m))

    def _spread(self, values: Tensor, like: Tensor) -> Tensor:
        """The value of each weight's group, weight by weight; zero for those in none."""
        spread = torch.zeros_like(like, dtype=values.dtype)
        self._groups(spread).copy_(values.unsqueeze(_inputs(like) + 1))
        return spread

    def _next(self, magnitudes: Tensor) -> Tensor:
        """The (n+1)-th largest of each group, sorted by insertion: a few passes, where ``topk`` takes many."""
        largest: list[Tensor] = []
        dim = 1 if magnitudes.ndim == 2 else 2
        for x in magnitudes.unbind(dim):
            for i, y in enumerate(largest):
                largest[i], x = torch.maximum(x, y), torch.minimum(x, y)
            if len(largest) <= self.n:
                largest.append(x)
        return largest[-1]


def _inputs(x: Tensor) -> int:
    """The dimension of the inputs: the second. A vector is one row."""
    return min(1, x.ndim - 1)
