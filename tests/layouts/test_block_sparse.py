"""A weight of which only some blocks are stored: the same outputs as the dense layer."""

import copy
import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import prune

import softprune as sp
from softprune.layouts import BlockSparseLinear, to_block_sparse
from softprune.layouts.block_sparse import blocks


def sparse(inputs: int, outputs: int, size: int, kept: float, bias: bool = True, seed: int = 0) -> nn.Linear:
    """A layer of which a share of blocks is not zero."""
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(inputs, outputs, bias=bias)
    grid = blocks(layer.weight.data, size)
    grid *= (torch.rand(grid.shape[:2], generator=generator) < kept)[:, :, None, None]
    return layer


@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from([16, 32]),
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from([(), (3,), (2, 5), (0,)]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_outputs_are_equal(rows, columns, size, kept, bias, batch, dtype):
    dense = sparse(columns * size, rows * size, size, kept, bias, seed=rows).to(dtype)
    layer = BlockSparseLinear.of(dense, size)
    assert torch.equal(layer.weight, dense.weight)
    x = torch.randn(*batch, columns * size, dtype=dtype)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-13
    torch.testing.assert_close(layer(x), dense(x), rtol=tolerance, atol=tolerance)


def test_only_blocks_that_are_not_zero_are_stored():
    dense = sparse(256, 320, 64, kept=0.3)
    layer = BlockSparseLinear.of(dense, 64)
    number = int((blocks(dense.weight, 64) != 0).any(3).any(2).sum())
    assert 0 < number < 20
    assert layer.values.shape == (number, 64, 64)
    assert layer.crow_indices[-1] == number
    assert not any(p.requires_grad for p in layer.parameters())


def test_a_state_dict_is_plain_tensors_and_comes_back():
    dense = sparse(64, 96, 16, kept=0.2)
    layer = BlockSparseLinear.of(dense, 16)
    state = layer.state_dict()
    assert sorted(state) == ["bias", "col_indices", "crow_indices", "values"]
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    other = BlockSparseLinear(64, 96, 16, number=len(layer.values))
    other.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(7, 64)
    assert torch.equal(other(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert layer.half().values.dtype is torch.float16
    assert layer.half().col_indices.dtype is torch.int64


def test_torch_takes_the_product_as_one_operation():
    layer = BlockSparseLinear.of(sparse(64, 96, 16, kept=0.2), 16)
    arguments = torch.randn(3, 64), layer.crow_indices, layer.col_indices, layer.values.detach(), 96
    torch.library.opcheck(torch.ops.softprune.block_sparse_linear.default, arguments)
    exported = torch.export.export(layer, (torch.randn(3, 64),)).module()
    x = torch.randn(3, 64)
    assert torch.equal(exported(x), layer(x))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((64, 64, 48, 1), r"`BlockSparseLinear\(size=...\)` must be one of 16, 32, 64, 128. Got 48."),
        ((64, 60, 16, 1), r"Blocks of 16 x 16 must fill a weight of 60 x 64."),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(sp.errors.ArgumentError, match=words):
        BlockSparseLinear(*arguments)


# -- a network -------------------------------------------------------------------------------------------------


class Shared(nn.Module):
    """A layer with two names, and one that is too dense."""

    def __init__(self) -> None:
        super().__init__()
        self.first = sparse(64, 64, 16, kept=0.1)
        self.again = nn.ModuleList([self.first])
        self.dense = sparse(64, 64, 16, kept=0.5)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, *self.again, self.dense):
            x = torch.relu(layer(x))
        return self.head(x)


def test_layers_that_are_worth_it_are_converted_in_a_copy_and_the_others_say_why():
    model = Shared()
    result = to_block_sparse(model, 16)
    assert result.converted == ("first",)
    assert isinstance(result.model.first, BlockSparseLinear)
    assert result.model.again[0] is result.model.first
    assert type(model.first) is nn.Linear
    x = torch.randn(5, 64)
    torch.testing.assert_close(result.model(x), model(x), rtol=1e-5, atol=1e-5)
    reasons = {layer.name: layer.reason for layer in result.layers}
    empty = float((blocks(model.dense.weight, 16) == 0).all(3).all(2).float().mean())
    assert reasons == {
        "first": "",
        "dense": f"{empty:.0%} of its blocks are empty, less than 80%",
        "head": "blocks of 16 do not fill it",
    }
    assert str(result).splitlines()[-1] == "1 of 3 Linear layers were converted."


def test_a_model_that_is_a_layer_is_replaced():
    result = to_block_sparse(sparse(64, 64, 16, kept=0.1), 16)
    assert isinstance(result.model, BlockSparseLinear)
    assert "(itself)" in str(result)


def test_a_layer_with_hooks_stays():
    model = nn.Sequential(sparse(64, 64, 16, kept=0.1))
    model[0].register_forward_hook(lambda *_: None)
    assert to_block_sparse(model, 16).layers[0].reason == "it has hooks, which would be lost"


def test_masks_of_torch_are_to_be_made_permanent_first():
    model = nn.Sequential(sparse(64, 64, 16, kept=0.1))
    prune.identity(model[0], "weight")
    with pytest.raises(sp.errors.UsageError, match=r"0\.weight is masked by torch. Write `torch.nn.utils.prune.remove"):
        to_block_sparse(model, 16)
    prune.remove(model[0], "weight")
    assert to_block_sparse(model, 16).converted == ("0",)


def test_attention_and_encoder_layers_of_torch_give_the_same_outputs():
    """They read weights without calling the layers."""
    model = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    for layer in (model.linear1, model.linear2, model.self_attn.out_proj):
        layer.weight.data[16:] = 0
        layer.weight.data[:, 16:] = 0
    result = to_block_sparse(model, 16)
    assert result.converted == ("linear1", "linear2")
    x = torch.randn(2, 5, 64)
    with torch.no_grad():
        torch.testing.assert_close(result.model(x), model(x), rtol=1e-5, atol=1e-5)


def test_blocks_are_trained_converted_and_equal():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    aim = sp.GradualSparsity(0.9, steps=30, budget=sp.uniform)
    with sp.Pruner(sp.select(model, include=["0.*"]), optimizer, threshold=aim, groups=sp.Blocks(16, 16)):
        for _ in range(30):
            optimizer.zero_grad()
            model(torch.randn(32, 64)).square().mean().backward()
            optimizer.step()
    result = to_block_sparse(model, 16)
    assert result.converted == ("0",)
    x = torch.randn(9, 64)
    torch.testing.assert_close(result.model(x), model(x), rtol=1e-5, atol=1e-5)


def test_a_model_is_asked_for():
    with pytest.raises(sp.errors.ArgumentTypeError, match=r"`to_block_sparse\(model=...\)` must be a module"):
        to_block_sparse({})
    with pytest.raises(sp.errors.ArgumentError, match=r"`to_block_sparse\(size=...\)` must be one of 16, 32"):
        to_block_sparse(nn.Linear(2, 2), 7)
