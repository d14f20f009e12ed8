"""Random zeros lie in the blocks of the trainer."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import softprune as sp
from softprune.bench.masks import RandomBlocks, settle, sparsify

sizes = st.integers(1, 9)


@given(sizes, sizes, st.sampled_from([(), (3, 3)]), st.integers(1, 4), st.integers(1, 4), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_blocks_are_kept_or_gone_as_a_whole(outputs, inputs, taps, rows, cols, sparsity):
    shape = torch.Size([outputs, inputs, *taps])
    mask = RandomBlocks(rows, cols).mask(shape, sparsity, torch.Generator().manual_seed(0))
    assert mask.shape == shape
    dead = sp.Blocks(rows, cols).dead(mask.float())
    whole = sp.Blocks(rows, cols).dead((~mask).float())
    assert torch.equal(dead, ~whole)
    assert dead.sum() == round(sparsity * dead.numel())


def test_a_first_layer_loses_whole_pixels():
    mask = RandomBlocks(1, 4).mask(torch.Size([64, 3, 7, 7]), 0.5, torch.Generator().manual_seed(0))
    assert torch.equal(mask.any(1), mask.all(1))


def test_each_weight_has_its_own_share_of_zeros_and_others_are_left_alone():
    model = nn.Sequential(nn.Linear(8, 10), nn.Linear(10, 20), nn.Linear(20, 2))
    before = model[2].weight.clone()
    sparsify(model, {"0.weight": 0.5, "1.weight": 0.9}, RandomBlocks())
    assert [(layer.weight == 0).float().mean().item() for layer in model[:2]] == [0.5, torch.tensor(0.9).item()]
    assert torch.equal(model[2].weight, before)
    again = nn.Sequential(nn.Linear(8, 10), nn.Linear(10, 20), nn.Linear(20, 2))
    sparsify(again, {"0.weight": 0.5, "1.weight": 0.9}, RandomBlocks())
    assert torch.equal(again[0].weight == 0, model[0].weight == 0)


def test_batch_normalisation_is_given_the_moments_of_the_samples():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    x = 5 + 3 * torch.randn(32, 3, 12, 12)
    settle(model, x)
    assert not model.training
    assert model[1].momentum == 0.1
    y = model(x)
    torch.testing.assert_close(y.mean((0, 2, 3)), torch.zeros(8), atol=1e-3, rtol=0)
    torch.testing.assert_close(y.std((0, 2, 3)), torch.ones(8), atol=1e-2, rtol=0)
