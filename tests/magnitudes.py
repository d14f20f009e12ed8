"""Distributions that are hard on histograms, and tensors as the quantile takes them."""

import torch
from torch import nn

from softprune.pruner.hidden import Hidden
from softprune.thresholds.quantile import Cell

G = torch.Generator().manual_seed(0)


N = 4001


DISTRIBUTIONS = {
    "normal": torch.randn(N, generator=G),
    "all equal": torch.full((N,), -0.25),
    "all zero": torch.zeros(N),
    "half zero": torch.cat([torch.zeros(N // 2), torch.randn(N - N // 2, generator=G)]),
    "heavy tails": torch.randn(N, generator=G).pow(15),
    "tiny and huge": torch.cat([torch.full((N // 2,), 1e-38), torch.full((N - N // 2,), 3e38)]),
    "subnormal": torch.randn(N, generator=G) * 1e-40,
    "neighbours": 1 + torch.randint(0, 3, (N,), generator=G) * 2**-23,
    "bf16": torch.randn(N, generator=G).bfloat16(),
}


def hidden(*tensors: torch.Tensor) -> Hidden:
    return Hidden({str(i): nn.Parameter(t.clone()) for i, t in enumerate(tensors)})


def all_of(parts: Hidden, target: float) -> Cell:
    count = len(parts.params)
    return Cell(tuple(range(count)), (1.0,) * count, target)
