"""Whether weights outrun the threshold. Where none does, what survives was decided before training began."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from softprune.prox.group import Grouped
from softprune.thresholds.base import Weights

SAMPLE = 65_536  # weights, of all together
FEW = 0.1  # of those that survive; below it networks that began at random lost 1 to 80 points (docs/target_sparsity.md)


class Race:
    """Watches how far a sample of weights moves while the threshold grows from zero.

    A weight that began at random and survives should have learned to: should have moved further than d. The sample is
    not part of a saved state, so a resumed run is not watched.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._started: list[Tensor] = []

    def start(self) -> None:
        self._started = [x.clone() for x in self._sample(self.weights.pairs.thetas)]

    def check(self, levels: Sequence[float], step: int) -> None:
        """Warn, if hardly any weight that survives has moved as far as the threshold. One host sync."""
        if not self._started:
            return
        device = self._started[0].device
        counts = torch.zeros(2, device=device)
        thetas, sizes = self._sample(self.weights.pairs.thetas), self._sample(self.weights.sizes.thetas)
        for now, then, size, unit, d in zip(thetas, self._started, sizes, self._units(), levels, strict=True):
            alive = size.abs() > d
            ahead = alive & ((now - then.to(now.device)).abs() > d * unit)
            counts += torch.stack([alive.sum(), ahead.sum()]).to(device)
        self._started = []
        survivors, ahead = counts.tolist()
        if ahead < FEW * survivors:
            warnings.warn(
                f"After {step} steps only {ahead / survivors:.1%} of the weights that survive have moved as far as the "
                "threshold has: which ones survive is decided by how they began, not by what they learned. If they "
                "began at random, train for longer, raise the learning rate, lower the target, or take nothing from "
                "those that survive (`prox=softprune.PowerThreshold(math.inf)`, in the command `power=inf`). For a "
                "network that was trained before, this is as it should be.",
                stacklevel=2,
            )

    def _units(self) -> Sequence[Tensor | float]:
        """Of each weight the number that d is in units of: 1, unless groups are compared with a typical one."""
        prox, thetas = self.weights.prox, self.weights.pairs.thetas
        if not isinstance(prox, Grouped) or not prox.scales:
            return [1.0] * len(thetas)
        pairs = zip(prox.partition.means(thetas, thetas), prox.sizes(thetas), strict=True)
        return self._sample([mean.sqrt() / size for mean, size in pairs])

    def _sample(self, thetas: Sequence[Tensor]) -> list[Tensor]:
        """Every n-th weight of each parameter."""
        every = max(1, sum(theta.numel() for theta in thetas) // SAMPLE)
        return [theta.flatten()[::every] for theta in thetas]
