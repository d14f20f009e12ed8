"""A prox of groups: what a scalar prox does to a weight, done to the size of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from softprune.errors import ArgumentTypeError
from softprune.groups.base import Grouping, Partition
from softprune.kernels.columns import Column, Level
from softprune.kernels.factor import factor
from softprune.kernels.pairs import Pairs
from softprune.prox.base import Prox
from softprune.prox.power import PowerThreshold
from softprune.prox.soft import SoftThreshold


@dataclass(frozen=True)
class Grouped(Prox):
    """w_G = θ_G · s(r) / r with r = ‖θ_G‖ / √|G|, the prox of Σ |G|·ρ(‖w_G‖ / √|G|), where s is the prox of ρ.

    For s the soft threshold that is the group lasso, each norm weighted by √|G| as usual. ``Pruner(groups=...)`` makes
    one of the prox and the groups that it is given.

    Args:
        scalar: s, the soft or the power threshold.
        partition: the groups.
    """

    scalar: SoftThreshold | PowerThreshold
    partition: Partition

    thresholds: ClassVar[bool] = True  # |θ| being r, the size of a weight's group

    @property
    def convex(self) -> bool:  # type: ignore[override]
        return self.p == 1

    @property
    def bounded(self) -> bool:
        return self.scalar.bounded

    @property
    def spans(self) -> bool:
        return self.partition.spans

    @property
    def grain(self) -> int:
        return self.partition.grain

    @property
    def p(self) -> float:
        return self.scalar.p if isinstance(self.scalar, PowerThreshold) else 1.0

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        w: Tensor = _Map.apply(self, theta, d)  # type: ignore[no-untyped-call]
        return w

    def regularizer(self, w: Tensor, *levels: Level) -> Tensor:
        """ρ(r) for each weight, which makes |G|·ρ(r) for its group; times the square of r's unit."""
        (r,), (mean,) = self.partition.sizes([w]), self.partition.means([w], [w])
        unit = torch.where(r > 0, mean / (r * r), 0.0)
        return (unit * self.scalar.regularizer(r.nan_to_num(0.0), *levels)).to(w.dtype)

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        (theta,) = self._inverses([w], *([level] for level in levels))
        return theta

    @property
    def scales(self) -> Sequence[float]:
        return self.partition.scales

    def take(self, scales: Sequence[float]) -> None:
        self.partition.take(scales)

    def sizes(self, thetas: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.partition.sizes(thetas)

    def exact(self, weights: Pairs, *columns: Column) -> Iterable[Tensor]:
        return self.partition.freed(weights.xs)

    def recover(self, weights: Pairs, written: Sequence[Tensor], *columns: Column) -> list[Tensor]:
        """Where one weight was set from outside, all of its group have another θ. A weight in no group is its own θ."""
        others = [(w != was).to(w.dtype) for w, was in zip(weights.xs, written, strict=True)]
        inverses = self._inverses(weights.xs, *columns)
        mixed = zip(self.partition.means(others, others), weights.thetas, inverses, strict=True)
        return [torch.where(share == 0, theta, inverse) for share, theta, inverse in mixed]

    def vjp(self, theta: Tensor, grad: Tensor, *levels: Level) -> tuple[Tensor, ...]:
        (d,) = levels
        dtheta = grad.clone()
        sums = self.pull_back(Pairs([dtheta], [theta]), d[None] if isinstance(d, Tensor) else [d], overwrite=True)
        return (dtheta, *(x[0] for x in sums))

    def write(self, weights: Pairs, *columns: Column) -> None:
        (d,) = columns
        self.partition.write(weights, d, self.p)

    def pull_back(self, grads: Pairs, *columns: Column, overwrite: bool) -> list[Tensor]:
        """∂w/∂θ is s/r across θ_G and s′ = (r/s)^(p−1) along it; ∂w/∂d is −(d/s)^(p−1) in the direction of θ_G."""
        (column,) = columns
        xs, thetas, p = grads.xs, grads.thetas, self.p
        levels = self.partition.levels(column, thetas)
        sums = []
        sizes, squares = self.partition.sizes(thetas), self.partition.means(thetas, thetas)
        for grad, theta, r, square, along, d in zip(
            xs, thetas, sizes, squares, self.partition.means(xs, thetas), levels, strict=True
        ):
            f = factor(r.contiguous(), d, p)  # s/r
            dead = f == 0
            turned = f * grad + torch.where(dead, 0.0, (f ** (1 - p) - f) * along / square) * theta
            sums.append(torch.where(dead, 0.0, -((d / (f * r)) ** (p - 1)) * grad * theta / r).nansum())
            if overwrite:
                grad.copy_(torch.where(r.isnan(), grad, turned))
        return [torch.stack([x.to(column.device) for x in sums]).to(column)] if isinstance(column, Tensor) else []

    def _inverses(self, ws: Sequence[Tensor], *columns: Column) -> list[Tensor]:
        (column,) = columns
        levels = self.partition.levels(column, ws)
        thetas = []
        for w, s, d in zip(ws, self.partition.sizes(ws), levels, strict=True):
            scale = torch.where(s > 0, self.scalar.inverse(s, d) / s, 0.0)
            thetas.append(torch.where(s.isnan(), w, (w * scale).to(w.dtype)))
        return thetas


class _Map(torch.autograd.Function):
    """The map of one parameter, with the derivative that ``pull_back`` gives."""

    @staticmethod
    def forward(ctx: Any, prox: Grouped, theta: Tensor, d: Level) -> Tensor:
        ctx.prox, ctx.levels = prox, (theta, d)
        w = torch.empty_like(theta)
        prox.write(Pairs([w], [theta]), [d])
        return w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        theta, d = ctx.levels
        return (None, *ctx.prox.vjp(theta, grad, d), *([] if isinstance(d, Tensor) else [None]))


def grouped(prox: Prox, groups: Grouping | None, params: Mapping[str, nn.Parameter]) -> Prox:
    """The prox of these groups, if there are any."""
    if groups is None:
        return prox
    if not isinstance(prox, SoftThreshold | PowerThreshold):
        raise ArgumentTypeError(
            f"Groups need the soft or the power threshold, which map a size to a size. Got {prox}: leave out `prox` or "
            "`groups`."
        )
    return Grouped(prox, groups.bind(params))
