"""Channels of unlike size are made alike, and the network computes the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import softprune as sp
from engine_models import C2f, Gated, settled
from softprune import models
from softprune.engine.equalize import equalize
from softprune.engine.export import graph
from softprune.engine.fold import fold
from softprune.engine.run_torch import before, run


def unlike() -> nn.Sequential:
    """Its channels differ a thousandfold, depthwise ones too."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16), nn.ReLU(),
        nn.Conv2d(16, 32, 1, groups=4), nn.ReLU(), nn.Conv2d(32, 8, 1),
    )  # fmt: skip
    sizes = torch.logspace(-2, 1, 16)
    with torch.no_grad():
        model[0].weight *= sizes.view(-1, 1, 1, 1)
        model[0].bias *= sizes
        model[2].weight *= sizes.flip(0).view(-1, 1, 1, 1)
    return model


@pytest.mark.parametrize("make", [unlike, C2f, Gated, lambda: models.mobilenet_v1_cifar(10)])
def test_the_network_computes_the_same(make):
    model = settled(make()).double().eval()
    x = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    network = fold(graph(model, x[:1]))
    for found, want in zip(run(equalize(network, x), *(x,)), run(network, x), strict=True):
        torch.testing.assert_close(found, want, rtol=1e-9, atol=1e-9 * float(want.abs().max()))


def test_channels_reach_equally_far():
    x = torch.randn(8, 3, 16, 16)
    network = fold(graph(unlike(), x[:1]))
    spread = []
    for one in (network, equalize(network, x)):
        seen: dict[str, torch.Tensor] = {}
        run(one, x, see=lambda name, value, seen=seen: seen.update({name: value}))
        reach = seen[before("0")].abs().amax((0, 2, 3))
        spread.append(float(reach.max() / reach.min()))
    assert spread[0] > 500
    assert spread[1] < 5  # where sums are small for their weights, weights decide


def test_int16_is_near_where_channels_are_unlike():
    model, x = unlike(), torch.randn(64, 3, 16, 16)
    engine = sp.engine.compile(model, x[:1], x, "int16", threads=1)
    assert engine.error(x[:8]).output < 2e-3
