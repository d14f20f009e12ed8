"""Layers read tokens sample by sample, however a model orders them, and compute the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from engine_models import apart, kinds, settled
from softprune.engine.export import graph
from softprune.engine.fold import fold
from softprune.engine.graph import Attention, Graph

TOKENS, WIDTH = 5, 12


class Ordered(nn.Module):
    """Two layers, and some order of the tokens before, between and behind them."""

    def __init__(self, order: Callable[[Ordered, Tensor], Tensor]) -> None:
        super().__init__()
        self.order = order
        self.first, self.last = nn.Linear(WIDTH, 8), nn.Linear(8, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.order(self, x)


def tokens_first(m: Ordered, x: Tensor) -> Tensor:
    return m.last(m.first(x.transpose(0, 1)).relu()).transpose(0, 1)


def a_matrix_of_samples(m: Ordered, x: Tensor) -> Tensor:
    return m.last(m.first(x.reshape(-1, WIDTH)).view(-1, TOKENS, 8)).reshape(-1, WIDTH).view(x.shape)


def a_matrix_of_tokens(m: Ordered, x: Tensor) -> Tensor:
    y = m.first(x.transpose(0, 1).reshape(-1, WIDTH)).view(TOKENS, -1, 8)
    return m.last(y).transpose(0, 1)


def another_way_to_write_it(m: Ordered, x: Tensor) -> Tensor:
    y = torch.addmm(m.first.bias, x.view(-1, WIDTH), m.first.weight.t()).view(x.shape[0], TOKENS, 8)
    return torch.addmm(m.last.bias, y.view(-1, 8), m.last.weight.t()).view(x.shape)


def in_pairs(m: Ordered, x: Tensor) -> Tensor:
    y = m.first(x.view(x.shape[0], TOKENS, 2, 2, 3).permute(1, 2, 0, 3, 4).flatten(3).repeat(1, 1, 1, 2))
    return m.last(y).sum(1).transpose(0, 1)


def read_as_it_is(m: Ordered, x: Tensor) -> Tensor:
    """Rows of the matrix count for themselves."""
    y = m.first(x.reshape(-1, WIDTH))
    return m.last(y.softmax(0) + y).view(x.shape)


def scaled(m: Ordered, x: Tensor) -> Tensor:
    """Not what a layer does."""
    return torch.addmm(m.first.bias, x.view(-1, WIDTH), m.first.weight.t(), alpha=2).view(x.shape[0], TOKENS, 8)


def a_matrix_is_added(m: Ordered, x: Tensor) -> Tensor:
    bias = torch.arange(TOKENS * 8, dtype=x.dtype).view(TOKENS, 8)
    return torch.addmm(bias, x[0], m.first.weight.t()) + m.first(x)


IN_ORDER = (tokens_first, a_matrix_of_samples, a_matrix_of_tokens, another_way_to_write_it)
OTHERS = (in_pairs, read_as_it_is, scaled, a_matrix_is_added)


def found(model: nn.Module) -> Graph:
    """The folded graph in float64, equal to the model for several batches."""
    torch.manual_seed(0)
    model = settled(model).double()
    made = fold(graph(model, torch.randn(1, TOKENS, WIDTH, dtype=torch.float64)))
    for batch in (1, 3):
        assert apart(made, model, torch.randn(batch, TOKENS, WIDTH, dtype=torch.float64)) < 1e-10
    return made


@pytest.mark.parametrize("order", IN_ORDER, ids=lambda order: order.__name__)
def test_nothing_is_left_of_the_order(order: Callable[[Ordered, Tensor], Tensor]) -> None:
    assert kinds(found(Ordered(order))) == ["Linear", "Linear"]


@pytest.mark.parametrize("order", OTHERS, ids=lambda order: order.__name__)
def test_what_is_more_than_an_order_is_the_same(order: Callable[[Ordered, Tensor], Tensor]) -> None:
    assert "Opaque" in kinds(found(Ordered(order)))


class Looking(nn.Module):
    """torch's own attention."""

    def __init__(self, batch_first: bool, masked: bool) -> None:
        super().__init__()
        self.look = nn.MultiheadAttention(WIDTH, 3, batch_first=batch_first)
        self.masked = masked
        self.register_buffer("hidden", torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.look.batch_first else x.transpose(0, 1)
        y = self.look(y, y, y, need_weights=False, attn_mask=self.hidden if self.masked else None)[0]
        return y if self.look.batch_first else y.transpose(0, 1)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_attention_of_torch_is_found(batch_first: bool, masked: bool) -> None:
    made = found(Looking(batch_first, masked))
    assert kinds(made) == ["Linear", "Attention", "Linear"]
    attention = made.operations[1]
    assert isinstance(attention, Attention)
    assert (attention.seen is not None) == masked
    if masked:
        assert torch.equal(attention.seen, torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril())


def test_blocks_of_torch_with_norms_first_and_tokens_first() -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, 3, 16, norm_first=True)

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x.transpose(0, 1)).transpose(0, 1)

    counts = kinds(found(Turned()))
    assert counts.count("Attention") == 2
    assert counts.count("Linear") == 8
