"""The power threshold: from the soft threshold (p = 1) to the hard one (p = ∞), with the same dead zone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from softprune.errors import require
from softprune.kernels import power, shrink
from softprune.kernels.columns import Column, Level, typed
from softprune.kernels.pairs import Pairs
from softprune.prox.base import Prox
from softprune.prox.soft import SoftThreshold


@dataclass(frozen=True)
class PowerThreshold(Prox):
    """w = sign(θ) · (|θ|^p − d^p)₊^(1/p): zero where the soft threshold is, and nearly θ for large weights.

    The soft threshold makes every weight smaller by d. Here a weight that survives is smaller by about
    d^p / (p·|θ|^(p−1)), which fades as the weight grows, faster for a larger p.

        p = 1      the soft threshold, number by number
        p = ∞      the hard threshold, θ where |θ| > d: with ``gradient=sp.subgradient``, magnitude pruning

    ∂w/∂θ grows without bound near the threshold unless p is 1 or ∞, so in between it takes the identity gradient.
    A weight set from outside that is much smaller than d has a θ that rounds to d, so it becomes zero.

    Args:
        p: >= 1; ``math.inf`` is the hard threshold.

    >>> PowerThreshold(2)(torch.tensor([-5.0, -3.0, 2.0, 3.5]), 3.0)
    tensor([-4.0000,  0.0000,  0.0000,  1.8028])
    """

    p: float

    separable = thresholds = True

    def __post_init__(self) -> None:
        require("PowerThreshold", "p", self.p, ">= 1", lambda x: x >= 1)

    @property
    def bounded(self) -> bool:
        return self.p in (1, math.inf)

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        if self.p == 1:
            return SoftThreshold()(theta, *levels)
        (d,) = levels
        w: Tensor = _Power.apply(theta, d, self.p)  # type: ignore[no-untyped-call]
        return w

    def regularizer(self, w: Tensor, *levels: Level) -> Tensor:
        """∫₀^|w| ((u^p + d^p)^(1/p) − u) du, concave in |w| with the slope d at 0: that of L1."""
        if self.p == 1:
            return SoftThreshold().regularizer(w, *levels)
        size, d = _magnitudes(w, *levels)
        if self.p == math.inf:
            size = torch.minimum(size, d)
            return (d * size - size * size / 2).to(w.dtype)
        large, log = self._hidden(size, d)
        bias = (d - size).clamp(min=0) + large * torch.expm1(log)  # |θ| − |w|, which for large weights would cancel
        area = (size * bias + d * d * _sector(self.p * (size.log() - d.log()), self.p)) / 2
        return torch.where((size == 0) | (d == 0), 0.0, area).to(w.dtype)

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        """sign(w) · (|w|^p + d^p)^(1/p), and 0 where w is, or where d is infinite, which lets nothing through."""
        if self.p == 1:
            return SoftThreshold().inverse(w, *levels)
        size, d = _magnitudes(w, *levels)
        large, log = self._hidden(size, d)
        return torch.where((w == 0) | d.isinf(), 0.0, (large * log.exp()).to(w.dtype).copysign(w))

    def _hidden(self, size: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        """|θ| over the larger of |w| and d, so that no power overflows: the larger, and the quotient's logarithm."""
        large, small = torch.maximum(size, d), torch.minimum(size, d)
        return large, torch.log1p((small / large) ** self.p) / self.p

    def write(self, weights: Pairs, *columns: Column) -> None:
        (d,) = columns
        if self.p == 1:
            shrink.soft_threshold(weights, d)
        else:
            power.power_threshold(weights, d, self.p)

    def pull_back(self, grads: Pairs, *columns: Column, overwrite: bool) -> list[Tensor]:
        if not self.bounded:
            return super().pull_back(grads, *columns, overwrite=overwrite)
        sums = shrink.subgradient(grads, *columns, overwrite=overwrite)  # ∂w/∂θ is the same for p = 1 and p = ∞
        return sums if self.p == 1 else [torch.zeros_like(x) for x in sums]


def _magnitudes(w: Tensor, d: Level) -> tuple[Tensor, Tensor]:
    """|w| and d, which is first rounded to a number of w's type, in single precision or better."""
    wide = torch.promote_types(w.dtype, torch.float32)
    return w.abs().to(wide), typed(d, w).to(wide)


class _Power(torch.autograd.Function):
    """∂w/∂θ = (θ/w)^(p−1) and ∂w/∂d = −sign(θ)·(d/|w|)^(p−1) where w is not zero: 1 and 0 for p = ∞."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, d: Level, p: float) -> Tensor:
        w = power.plain(theta, d, p, out=torch.empty_like(theta))
        ctx.save_for_backward(theta, d if isinstance(d, Tensor) else typed(d, theta), w)
        ctx.p = p
        return w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        theta, d, w = ctx.saved_tensors
        dtheta, dd = (torch.where(w == 0, 0.0, grad * (x / w).abs() ** (ctx.p - 1)) for x in (theta, d))
        return dtheta, -(dd * theta.sign()).sum_to_size(d.shape) if ctx.needs_input_grad[1] else None, None


def _sector(z: Tensor, p: float) -> Tensor:
    """∫₀^τ (1 − t^p)^(−2/p) dt with τ^p = sigmoid(z): for d = 1, twice the area that a ray from 0 to (w, θ) sweeps.

    Up to τ^p = 1/2 by powers of t^p, beyond by powers of 1 − t^p: a term of either series is about half the last.
    """
    binomials, others = [1.0], [1.0]  # the coefficients of (1 − x)^(−2/p) and of (1 − x)^(1/p − 1)
    for k in range(1, 60):
        binomials.append(binomials[-1] * (k - 1 + 2 / p) / k)
        others.append(others[-1] * (k - 1 / p) / k)

    below = z.clamp(max=0)
    tau = torch.exp(logsigmoid(below) / p)
    inner = tau * _polynomial([c / (k * p + 1) for k, c in enumerate(binomials)], below.sigmoid())

    e = 1 - 2 / p
    log = -logsigmoid(-z.clamp(min=0)) - math.log(2)  # of 1/2 over 1 − τ^p
    first = log if e == 0 else -torch.expm1(-e * log) / e
    rest = [c * 0.5**k / (k + e) for k, c in enumerate(others) if k > 0]
    outer = first + math.fsum(rest) - torch.exp(-(1 + e) * log) * _polynomial(rest, torch.exp(-log))
    return torch.where(z > 0, inner + 0.5**e / p * outer, inner)


def _polynomial(coefficients: list[float], x: Tensor) -> Tensor:
    value = torch.zeros_like(x)
    for c in reversed(coefficients):
        value = value * x + c
    return value
