"""Transformers: counts, initial values, what sees what, and which weights are pruned."""

import math

import pytest
import torch
from torch import nn

from softprune import select
from softprune.errors import ArgumentError
from softprune.models import gpt, gpt_small, vit, vit_digits
from softprune.models.gpt import GPT
from softprune.models.vit import VisionTransformer


@pytest.mark.parametrize(
    ("make", "parameters", "blocks"),
    [
        (gpt, 10_844_160, 6 * 12 * 384**2),
        (gpt_small, 834_304, 4 * 12 * 128**2),
        (vit, 4_770_570, 6 * 12 * 256**2),
        (vit_digits, 202_058, 4 * 12 * 64**2),
    ],
)
def test_parameter_counts(make, parameters, blocks):
    with torch.device("meta"):
        network = make()
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert sum(p.numel() for p in select(network, include=["blocks.*"]).values()) == blocks


def test_only_the_blocks_of_a_gpt_are_selected():
    """Neither embeddings, one of which is the output layer, nor normalisation."""
    with torch.device("meta"):
        network = gpt_small()
    layers = ("attention.qkv", "attention.project", "mlp.0", "mlp.2")
    assert list(select(network)) == [f"blocks.{n}.{layer}.weight" for n in range(4) for layer in layers]
    with torch.device("meta"):
        others = select(vit_digits(), exclude=["blocks.*"])
    assert list(others) == ["patches.weight", "head.weight"]


def test_shapes_gradients_and_the_round_trip():
    text = torch.randint(7, (3, 5))
    images = torch.randn(3, 2, 8, 4)
    for network, again, x, shape in (
        (GPT(7, 6, layers=2, width=8, heads=2), GPT(7, 6, layers=2, width=8, heads=2), text, (3, 5, 7)),
        (vit_digits(7, 2, 8, 4), vit_digits(7, 2, 8, 4), images, (3, 7)),
    ):
        out = network(x)
        assert out.shape == shape
        out.square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
        again.load_state_dict(network.state_dict())
        assert torch.equal(again(x), out)


def test_a_token_sees_itself_and_those_before_it():
    network = GPT(11, 9, layers=2, width=16, heads=4).double()
    text = torch.randint(11, (1, 9))
    before = network(text)
    for place in range(9):
        changed = text.clone()
        changed[0, place] = (changed[0, place] + 1) % 11
        differs = (network(changed) != before).any(-1).squeeze(0)
        assert differs.tolist() == [at >= place for at in range(9)]


def test_what_a_gpt_says_of_a_beginning_does_not_depend_on_the_rest():
    network = GPT(11, 9, layers=2, width=16, heads=4).double()
    text = torch.randint(11, (2, 9))
    torch.testing.assert_close(network(text[:, :4]), network(text)[:, :4])
    with pytest.raises(IndexError):
        network(torch.zeros(1, 10, dtype=torch.int64))


def test_patches_are_told_apart_by_their_places():
    network = vit_digits().double()
    image = torch.rand(1, 1, 8, 8, dtype=torch.double)
    assert (network(image.flip(2)) - network(image)).abs().max() > 1e-6
    with torch.no_grad():
        network.positions.weight.zero_()
    swapped = image.roll(2, dims=2)  # by a patch
    torch.testing.assert_close(network(swapped), network(image))


def test_an_image_that_patches_do_not_fill_is_refused():
    with pytest.raises(
        ArgumentError, match=r"^An image must have sides that a patch of 4 pixels divides\. Got 30 × 32 "
    ):
        vit(rows=30)
    with pytest.raises(RuntimeError, match="must match"):
        vit_digits()(torch.zeros(1, 1, 16, 16))


@pytest.mark.parametrize("kind", [GPT, VisionTransformer])
def test_initial_values_are_those_of_gpt_2(kind):
    size = {"layers": 3, "width": 96, "heads": 2}
    network = GPT(64, 64, **size) if kind is GPT else VisionTransformer(9, 1, 8, 8, patch=1, **size)
    residual = {f"blocks.{n}.{layer}" for n in range(3) for layer in ("attention.project", "mlp.2")}
    for name, m in network.named_modules():
        if isinstance(m, nn.Linear | nn.Embedding):
            deviation = 0.02 / math.sqrt(6) if name in residual else 0.02
            tolerance = 5 * deviation / math.sqrt(m.weight.numel())
            assert m.weight.std().item() == pytest.approx(deviation, abs=tolerance), name
        if isinstance(m, nn.Linear):
            assert not m.bias.any()
        if isinstance(m, nn.LayerNorm):
            assert (m.weight == 1).all()
