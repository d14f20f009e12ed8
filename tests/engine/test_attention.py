"""Attention is found however its numbers are moved, and nothing else is taken for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from engine_models import apart, kinds, settled
from softprune import engine
from softprune.engine.export import graph
from softprune.engine.fold import fold
from softprune.engine.graph import Attention, Graph, Linear
from softprune.models.transformer import Block

TOKENS, WIDTH, HEADS = 5, 24, 4


class Way(nn.Module):
    """A layer for q, k and v, or one for each, and some way to look."""

    def __init__(self, way: Callable[[Way, Tensor], Tensor], outputs: int = 3 * WIDTH) -> None:
        super().__init__()
        self.way = way
        self.qkv = nn.Linear(WIDTH, outputs)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=i != 1) for i in range(3))
        self.project = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("few", torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.project(self.way(self, x))  # type: ignore[no-any-return]


def look(parts: Iterable[Tensor], mask: Tensor | None = None, **options: Any) -> Tensor:
    q, k, v = parts
    return scaled_dot_product_attention(q, k, v, mask, **options)


def heads(x: Tensor, count: int = HEADS) -> Tensor:
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], TOKENS, WIDTH)


def packed(m: Way, x: Tensor) -> Tensor:
    return joined(look(m.qkv(x).view(x.shape[0], TOKENS, 3, HEADS, -1).permute(2, 0, 3, 1, 4)))


def packed_by_heads(m: Way, x: Tensor) -> Tensor:
    parts = m.qkv(x).view(x.shape[0], TOKENS, HEADS, 3, -1).unbind(3)
    return joined(look((part.transpose(1, 2) for part in parts), scale=0.5))


def in_chunks(m: Way, x: Tensor) -> Tensor:
    return joined(look(map(heads, m.qkv(x).chunk(3, dim=-1)), is_causal=True))


def three_layers(m: Way, x: Tensor) -> Tensor:
    return joined(look(map(heads, (m.q(x), m.k(x), m.v(x)))))


def with_a_mask(m: Way, x: Tensor) -> Tensor:
    return joined(look(map(heads, (m.q(x), m.k(x), m.v(x))), mask=m.few))


def with_a_mask_of_floats(m: Way, x: Tensor) -> Tensor:
    mask = torch.zeros(TOKENS, TOKENS, dtype=x.dtype).masked_fill(~m.few, torch.finfo(torch.float32).min)
    return joined(look(map(heads, (m.q(x), m.k(x), m.v(x))), mask=mask.expand(x.shape[0], 1, TOKENS, TOKENS)))


def with_shared_keys(m: Way, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).split([WIDTH, WIDTH // 2, WIDTH // 2], dim=-1)
    return joined(look((heads(q), heads(k, HEADS // 2), heads(v, HEADS // 2)), enable_gqa=True))


def turned(m: Way, x: Tensor) -> Tensor:
    """Rotary positions: q and k are more than moved."""
    angle = torch.arange(TOKENS, dtype=x.dtype).view(TOKENS, 1)
    q, k, v = map(heads, m.qkv(x).chunk(3, dim=-1))
    return joined(look((q * angle.cos(), k * angle.cos(), v)))


def across(m: Way, x: Tensor) -> Tensor:
    return joined(look(map(heads, (m.q(x), m.k(x + 1), m.v(x)))))


def with_a_bias(m: Way, x: Tensor) -> Tensor:
    bias = torch.arange(TOKENS * TOKENS, dtype=x.dtype).view(TOKENS, TOKENS)
    return joined(look(map(heads, m.qkv(x).chunk(3, dim=-1)), mask=bias))


def of_the_data(m: Way, x: Tensor) -> Tensor:
    mask = x.sum(-1, keepdim=True) > x.sum(-1).unsqueeze(1) - 100
    return joined(look(map(heads, m.qkv(x).chunk(3, dim=-1)), mask=mask.unsqueeze(1)))


def backwards(m: Way, x: Tensor) -> Tensor:
    """Tokens are not where they were."""
    return joined(look(map(heads, m.qkv(x).flip(1).chunk(3, dim=-1))))


def heads_the_other_way(m: Way, x: Tensor) -> Tensor:
    return look(map(heads, m.qkv(x).chunk(3, dim=-1))).permute(0, 2, 3, 1).reshape(x.shape[0], TOKENS, WIDTH)


def of_all_samples(m: Way, x: Tensor) -> Tensor:
    """Samples look at each other."""
    q, k, v = m.qkv(x).view(x.shape[0], TOKENS, 3, HEADS, -1).permute(2, 1, 3, 0, 4)
    return look((q, k, v)).permute(2, 0, 1, 3).reshape(x.shape[0], TOKENS, WIDTH)


KNOWN = (packed, packed_by_heads, in_chunks, three_layers, with_a_mask, with_a_mask_of_floats, with_shared_keys)
OTHERS = (turned, across, with_a_bias, of_the_data, backwards, heads_the_other_way, of_all_samples)


def found(model: nn.Module) -> Graph:
    """The folded graph in float64, equal to the model for several batches."""
    model = settled(model).double()
    made = fold(graph(model, torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)))
    for batch in (1, 3):
        assert apart(made, model, torch.randn(batch, TOKENS, WIDTH, dtype=torch.float64)) < 1e-10
    return made


@pytest.mark.parametrize("way", KNOWN, ids=lambda way: way.__name__)
def test_attention_is_found(way: Callable[[Way, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    made = found(Way(way, 2 * WIDTH if way is with_shared_keys else 3 * WIDTH))
    assert kinds(made) == ["Linear", "Attention", "Linear"]
    first, attention, _ = made.operations
    assert isinstance(first, Linear)
    assert isinstance(attention, Attention)
    assert attention.channels.shape == (3, HEADS, WIDTH // HEADS)
    assert (attention.seen is not None) == (way in (in_chunks, with_a_mask, with_a_mask_of_floats))


def test_layers_that_become_one_keep_their_names() -> None:
    first, *_ = found(Way(three_layers)).operations
    assert isinstance(first, Linear)
    assert first.name == "q, k, v"
    assert first.weight.shape == (3 * WIDTH, WIDTH)


@pytest.mark.parametrize("way", OTHERS, ids=lambda way: way.__name__)
def test_what_is_more_than_that_is_torchs(way: Callable[[Way, Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    assert "Attention" not in kinds(found(Way(way)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("precision", "where", "tolerance"),
    [("int8", {"int8"}, 0.01), ("int16", {"int16", "fp32"}, 0.001), ("fp32", {"fp32"}, 1e-5)],
)
def test_a_transformer_compiled(precision: str, where: set[str], tolerance: float, causal: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(WIDTH, HEADS, causal), Block(WIDTH, HEADS, causal)).eval()
    x = torch.randn(64, TOKENS, WIDTH)
    made = engine.compile(model, x[:1], x, precision, threads=2)
    explained = made.explain(x[:3])
    names = [name for layer in explained.layers for name in layer.names]
    assert len(names) == len(set(names)) == len(made.graph.operations)
    assert {layer.where for layer in explained.layers} == where
    with torch.no_grad():
        for batch in (1, 3, 20):
            right = model(x[:batch])
            assert float((made(x[:batch]) - right).norm() / right.norm()) < tolerance
