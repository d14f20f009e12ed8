"""Random zeros, in a pattern: the time of a sparse network, before anybody trained it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class RandomBlocks:
    """Blocks as the trainer makes them: ``rows`` outputs and ``cols`` inputs, at each position of a kernel by itself.
    They are smaller at the edges, so that a first layer with three channels loses whole pixels. 1 × 1 is unstructured.
    """

    rows: int = 1
    cols: int = 1

    def mask(self, shape: torch.Size, sparsity: float, generator: torch.Generator) -> Tensor:
        """True where a weight stays. The share of blocks that go is ``sparsity``, as near as a whole number comes.

        >>> RandomBlocks(1, 4).mask(torch.Size([2, 8]), 0.5, torch.Generator().manual_seed(0)).sum().item()
        8
        """
        outputs, inputs, *taps = shape
        grid = (-(-outputs // self.rows), -(-inputs // self.cols), *taps)
        kept = torch.ones(grid).flatten()
        kept[torch.randperm(kept.numel(), generator=generator)[: round(sparsity * kept.numel())]] = 0
        whole = kept.view(grid).repeat_interleave(self.rows, 0).repeat_interleave(self.cols, 1)
        return whole[:outputs, :inputs] > 0


@torch.no_grad()
def sparsify(model: nn.Module, budgets: Mapping[str, float], blocks: RandomBlocks, seed: int = 0) -> None:
    """Set random blocks to zero, in place.

    Args:
        model: the network.
        budgets: the share of zeros of each weight, by its name.
        blocks: the pattern.
        seed: of the choice.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, sparsity in budgets.items():
        weight = model.get_parameter(name)
        weight.mul_(blocks.mask(weight.shape, sparsity, generator))


@torch.no_grad()
def settle(model: nn.Module, samples: Tensor) -> nn.Module:
    """Give batch normalisation the moments of these samples, so that random weights make numbers of ordinary size, and
    put the network in evaluation mode."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean
    if norms:
        model.train()(samples)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
    return model.eval()
