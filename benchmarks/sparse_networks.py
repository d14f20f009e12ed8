"""The networks of inference.py: which, how sparse, in which patterns, on what inputs. Weights and zeros are random.

ResNet-50 and MobileNet-V1 have the layer-wise sparsities of the paper at the nearest overall sparsity; where the paper
has none within a point, the log-odds of all layers are moved by the same number. Everything else is uniform.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import softprune as sp
from softprune import models
from softprune.bench.masks import RandomBlocks, settle, sparsify
from softprune.models.transformer import Block
from softprune.recipes import paper
from softprune.thresholds.odds import odds, share

PATTERNS = {"unstructured": RandomBlocks(), "1x4": RandomBlocks(1, 4), "2x4": RandomBlocks(2, 4)}
NEAR = 0.01  # of an overall sparsity of the paper
SAMPLES = 64  # all but the timed batch are for ranges of values


@dataclass(frozen=True)
class Case:
    """A network, and the sparsities at which it is timed.

    Args:
        build: makes it, dense.
        shape: of one input.
        levels: overall sparsities.
        table: the paper's name of the network; None if every layer is as sparse as the next.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    levels: tuple[float, ...]
    table: str | None = None

    def samples(self) -> Tensor:
        return torch.randn(SAMPLES, *self.shape, generator=torch.Generator().manual_seed(1))

    def network(self, level: float = 0.0, pattern: str = "unstructured") -> nn.Module:
        """With random weights, in evaluation mode; dense at level 0."""
        torch.manual_seed(0)
        model = self.build()
        if level:
            sparsify(model, self.budgets(model, level), PATTERNS[pattern])
        return settle(model, self.samples()[:16])

    def budgets(self, model: nn.Module, level: float) -> dict[str, float]:
        """The share of zeros of each weight."""
        weights = sp.select(model)
        if self.table is None:
            return dict.fromkeys(weights, level)
        columns = [sp.budgets(self.table, final) for final in paper.finals(self.table)]
        column = min(columns, key=lambda column: abs(column.overall - level))
        found = {f"{layer}.weight": sparsity for layer, sparsity in column.items()}
        if abs(column.overall - level) <= NEAR:
            return found
        return moved(found, {name: weights[name].numel() for name in found}, level)


def moved(budgets: dict[str, float], sizes: dict[str, int], level: float) -> dict[str, float]:
    """The same budgets with all log-odds moved by one number, so that ``level`` of all weights are zero.

    >>> moved({"a": 0.5, "b": 0.8}, {"a": 1, "b": 1}, 0.65) == {"a": 0.5, "b": 0.8}
    True
    """

    def at(shift: float) -> dict[str, float]:
        return {name: share(odds(sparsity) * math.exp(shift)) for name, sparsity in budgets.items()}

    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        zeros = sum(sparsity * sizes[name] for name, sparsity in at(middle).items())
        low, high = (middle, high) if zeros < level * sum(sizes.values()) else (low, middle)
    return {name: round(sparsity, 6) for name, sparsity in at(high).items()}


def perceptron() -> nn.Module:
    """Three layers, 8.3 million weights."""
    return nn.Sequential(
        *(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1000)),
    )


def encoder() -> nn.Module:
    """BERT's size: 12 blocks, 768 numbers for a token, 12 heads, 85 million weights."""
    return nn.Sequential(*(Block(768, 12) for _ in range(12)))


CASES = {
    "resnet50": Case(models.resnet50, (3, 224, 224), (0.8, 0.9, 0.95, 0.98), "resnet50"),
    "mobilenet_v1": Case(models.mobilenet_v1, (3, 224, 224), (0.75, 0.9), "mobilenet_v1"),
    "resnet18_cifar": Case(models.resnet18_cifar, (3, 32, 32), (0.8, 0.9, 0.95)),
    "mlp": Case(perceptron, (1024,), (0.9,)),
    "encoder, 128 tokens": Case(encoder, (128, 768), (0.9,)),
    "encoder, 1 token": Case(encoder, (1, 768), (0.9,)),
}
