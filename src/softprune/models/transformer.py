"""The block that transformers are made of: attention and a perceptron, each added to its input."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class Attention(nn.Module):
    """Every token looks at all tokens, or, if ``causal``, at those up to itself.

    Args:
        width: numbers that stand for a token.
        heads: how many looks at once, each with ``width`` / ``heads`` of them.
        causal: whether a token sees only itself and those before it.
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, _ = x.shape
        q, k, v = self.qkv(x).view(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.project(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); the perceptron is four times as wide."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def residual(self) -> Iterable[nn.Linear]:
        """The layers whose outputs are added to the input."""
        last = self.mlp[2]
        assert isinstance(last, nn.Linear)
        return self.attention.project, last

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


def initialize(network: nn.Module, std: float) -> None:
    """GPT-2's initial values: weights and embeddings normal with deviation ``std``, biases zero.

    In each of L blocks two layers add to what comes in. Their deviation is ``std`` / √(2L), so that the sum of all of
    them does not depend on L.

    Args:
        network: with blocks in it.
        std: GPT-2's is 0.02. A network that is narrow and trained for a short time needs about 1 / √width.
    """
    for m in network.modules():
        if isinstance(m, nn.Linear | nn.Embedding):
            nn.init.normal_(m.weight, std=std)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)
    blocks = [m for m in network.modules() if isinstance(m, Block)]
    for block in blocks:
        for layer in block.residual():
            nn.init.normal_(layer.weight, std=std / math.sqrt(2 * len(blocks)))
