"""GPT: a transformer that reads text and says, after every token, how likely each token is to come next."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from softprune.models.transformer import Block, initialize


class GPT(nn.Module):
    """tokens, positions, blocks.0 ... blocks.N, norm.

    The output layer is the embedding of the tokens, used a second time (GPT-2's tied weights). So it is an embedding to
    ``sp.select``, which leaves embeddings alone, and a state dict holds it once.

    Args:
        num_tokens: the size of the vocabulary.
        context: the longest text that it takes, in tokens.
        layers: how many blocks.
        width: numbers that stand for a token.
        heads: of the attention; they divide the width.
        std: deviation of the initial weights.
    """

    def __init__(
        self, num_tokens: int, context: int, *, layers: int, width: int, heads: int, std: float = 0.02
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(num_tokens, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        initialize(self, std)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token, N × T × ``num_tokens``, for N × T ``tokens``."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return linear(self.norm(x), self.tokens.weight)


def gpt(num_tokens: int = 256, context: int = 256) -> GPT:
    """Six blocks of width 384: 10,844,160 parameters for 256 tokens, 10,616,832 of them weights of the blocks."""
    return GPT(num_tokens, context, layers=6, width=384, heads=6)


def gpt_small(num_tokens: int = 256, context: int = 64) -> GPT:
    """Four blocks of width 128, for a CPU: 834,304 parameters for 256 tokens, 786,432 of them weights of the blocks."""
    return GPT(num_tokens, context, layers=4, width=128, heads=4, std=0.08)
