"""Which weights of a parameter are alive, one bit for each, and what has changed since."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from softprune.kernels.sharding import sharding, total


class Mask:
    """The nonzero weights of one parameter; of a sharded one, this process's part, and counts are of the whole."""

    def __init__(self, alive: Tensor, p: Tensor) -> None:
        self._bits = _packed(alive)
        self._size = alive.numel()
        self._sharding: Any = sharding(p)

    def changes(self, earlier: Mask) -> tuple[int, int]:
        """How many weights were dropped (became zero) and regrown (stopped being zero) since."""
        now, then = self._unpacked(), earlier._unpacked().to(self._bits.device)
        return self._total(then & ~now), self._total(now & ~then)

    def _total(self, mask: Tensor) -> int:
        return int(total(mask.sum(), self._sharding))

    def _unpacked(self) -> Tensor:
        bits = self._bits.unsqueeze(1) >> torch.arange(8, dtype=torch.uint8, device=self._bits.device)
        return (bits & 1).bool().flatten()[: self._size]


def _packed(mask: Tensor) -> Tensor:
    """Eight booleans in a byte."""
    bits = nn.functional.pad(mask.flatten().to(torch.uint8), (0, -mask.numel() % 8)).view(-1, 8)
    return (bits << torch.arange(8, dtype=torch.uint8, device=mask.device)).sum(1, dtype=torch.uint8)
