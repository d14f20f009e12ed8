"""Fine-tuning a sparse network: its zeros stay. A threshold for each weight: infinite where w = 0, else none."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from softprune.attach.lookup import LearningRate
from softprune.attach.state import Entries
from softprune.kernels.sharding import local
from softprune.prox.gradient import subgradient
from softprune.prox.power import PowerThreshold
from softprune.thresholds.base import Rule, Threshold, Weights


@dataclass(frozen=True)
class KeepZeros(Threshold):
    """Keeps the zeros that the weights have now, and lets all others learn freely.

    For a network after ``detach()``, or one loaded from a file, under any optimizer:

        pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.KeepZeros())

    >>> import softprune as sp
    >>> model = torch.nn.Linear(4, 1, bias=False)
    >>> model.weight.data = torch.tensor([[0.0, 1.0, 0.0, 2.0]])
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    >>> pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.KeepZeros())
    >>> model(torch.ones(1, 4)).sum().backward(); optimizer.step()
    >>> model.weight
    Parameter containing:
    tensor([[0.0000, 0.8990, 0.0000, 1.8980]], requires_grad=True)
    """

    prox = PowerThreshold(math.inf)
    gradient = staticmethod(subgradient)  # θ stays where w is zero: LBFGS and others look at all weights together

    def bind(self, weights: Weights, optimizer: Optimizer) -> Rule:
        return KeepRule(self, weights)


class KeepRule(Rule):
    """Levels that never change."""

    def __init__(self, threshold: KeepZeros, weights: Weights) -> None:
        super().__init__(threshold, weights)
        self._take([_levels(p) for p in weights.params])
        if not any(local(level).any() for level in self._whole):
            warnings.warn(
                "`KeepZeros` finds no zeros to keep. Load or prune the weights first, and build the Pruner then.",
                stacklevel=4,
            )

    def _take(self, levels: list[Tensor]) -> None:
        self._whole = levels  # sharded as the parameters are
        self.levels = ([local(level) for level in levels],)

    def advance(self, step: int, lrs: Sequence[LearningRate]) -> None:
        pass

    def state(self) -> Entries:
        return {p: {"threshold": level} for p, level in zip(self.weights.params, self._whole, strict=True)}

    def load(self, entries: Entries) -> None:
        saved = (entries[p]["threshold"] for p in self.weights.params)
        self._take([torch.empty_like(level).copy_(new) for level, new in zip(self._whole, saved, strict=True)])


def _levels(p: Tensor) -> Tensor:
    level = torch.zeros_like(p, requires_grad=False)
    local(level).masked_fill_(local(p) == 0, math.inf)
    return level
