"""What a proximal map is: hidden weight θ and threshold d -> weight w.

    SoftThreshold    w = S_d(θ) = sign(θ) · max(|θ| − d, 0)       the prox of d·|w|: STR, STDS, LATS, PGH
    Blend            w = (1 − k) · S_d(θ) + k · θ                 the prox of a Huber penalty: GPO
    PowerThreshold   w = sign(θ) · (|θ|^p − d^p)₊^(1/p)           between the soft threshold and the hard one
    NM               the power threshold, until n of m are left   patterns that GPUs can use

What a map depends on besides θ are its *levels*: d alone, or d and k. A prox claims what holds for it, and gets what
needs the claim; ``tests/laws/test_prox.py`` holds every prox to the laws that it claims.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from softprune.kernels.columns import Column, Level, placed
from softprune.kernels.pairs import Pairs
from softprune.kernels.sharding import is_sharded


class Prox(ABC):
    """The map w(θ, d), its certificate, its derivative and its inverse.

    A subclass gives ``__call__``, ``regularizer`` and ``inverse``; the others follow from them, and are overridden for
    speed alone. Every method takes the levels after its tensors: d, or d and k, as numbers or tensors.

    >>> from softprune.prox.soft import SoftThreshold
    >>> prox = SoftThreshold()
    >>> w = prox(torch.tensor([-2.0, 0.5, 3.0]), 1.0)
    >>> w, prox.inverse(w, 1.0)
    (tensor([-1.,  0.,  2.]), tensor([-2.,  0.,  3.]))
    """

    reads: ClassVar[tuple[str, ...]] = ("d",)
    """Its levels, by name; a threshold gives as many columns."""

    separable: ClassVar[bool] = False
    """Claims that it maps each weight by itself. Then parameters may be sharded in any way (``cuts``)."""
    convex: ClassVar[bool] = False
    """Claims that its regularizer is convex: then the map is nonexpansive."""
    thresholds: ClassVar[bool] = False
    """Claims that w = 0 exactly where |θ| <= d (or ``sizes``, in its place): what ``TargetSparsity`` counts."""

    @property
    def bounded(self) -> bool:
        """Claims that ∂w/∂θ is bounded, which the subgradient and trained thresholds need."""
        return False

    def cuts(self, parameter: Tensor) -> bool:
        """Whether a parameter is sharded (FSDP2) so that ``write`` goes wrong: it sees one part alone."""
        return not self.separable and is_sharded(parameter)

    @property
    def spans(self) -> bool:
        """Whether weights of several parameters are mapped together."""
        return False

    @property
    def grain(self) -> int:
        """The most weights that become zero together."""
        return 1

    @abstractmethod
    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        """w for θ; differentiable torch operations, so that ``vjp`` works."""

    @abstractmethod
    def regularizer(self, w: Tensor, *levels: Level) -> Tensor:
        """The certificate ρ: w(θ, d) minimises Σ ½ (w − θ)² + Σ ρ(w, d). Element by element if separable."""

    @abstractmethod
    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        """A hidden weight θ that maps to w, so that weights may be set from outside."""

    @property
    def scales(self) -> Sequence[float]:
        """Numbers of its own that a saved state carries, one for each parameter; none for most."""
        return ()

    def take(self, scales: Sequence[float]) -> None:
        """Take back what ``scales`` gave."""

    def sizes(self, thetas: Sequence[Tensor]) -> Sequence[Tensor]:
        """What is compared with d, weight by weight and up to its sign: θ itself, if nothing else is."""
        return thetas

    def exact(self, weights: Pairs, *columns: Column) -> Iterable[Tensor]:
        """The exactly sparse weights that training leaves behind: w itself, unless w is only nearly sparse."""
        return weights.xs

    def recover(self, weights: Pairs, written: Sequence[Tensor], *columns: Column) -> list[Tensor]:
        """θ for the weights w that were set from outside, and θ as it is where w is what was ``written``."""
        levels = [placed(column, weights.thetas) for column in columns]
        return [
            torch.where(w == was, theta, self.inverse(w, *level))
            for w, theta, was, *level in zip(weights.xs, weights.thetas, written, *levels, strict=True)
        ]

    def vjp(self, theta: Tensor, grad: Tensor, *levels: Level) -> tuple[Tensor, ...]:
        """dL/dw -> dL/dθ, followed by dL/d(level) for the levels that are 0-dimensional tensors."""
        with torch.enable_grad():
            theta = theta.detach().requires_grad_()
            levels = tuple(x.detach().requires_grad_() if _trained(x) else x for x in levels)  # type: ignore[union-attr]
            inputs = [theta, *(x for x in levels if isinstance(x, Tensor) and x.requires_grad)]
            return torch.autograd.grad(self(theta, *levels), inputs, grad)

    def write(self, weights: Pairs, *columns: Column) -> None:
        """w ← w(θ, d) for many parameters, in place."""
        levels = [placed(column, weights.thetas) for column in columns]
        for w, theta, *level in zip(weights.xs, weights.thetas, *levels, strict=True):
            w.copy_(self(theta, *level))

    def pull_back(self, grads: Pairs, *columns: Column, overwrite: bool) -> list[Tensor]:
        """dL/dw -> dL/d(column) for the columns that are trained; with ``overwrite``, dL/dw ← dL/dθ in place."""
        sums = []
        levels = [placed(column, grads.thetas) for column in columns]
        for grad, theta, *level in zip(grads.xs, grads.thetas, *levels, strict=True):
            dtheta, *dlevels = self.vjp(theta, grad, *level)
            if overwrite:
                grad.copy_(dtheta)
            sums.append(dlevels)
        trained = [column for column in columns if isinstance(column, Tensor)]
        return [
            torch.stack([x.to(column.device) for x in parts])
            for parts, column in zip(zip(*sums, strict=True), trained, strict=True)
        ]


def _trained(level: Level) -> bool:
    return isinstance(level, Tensor) and level.dim() == 0
