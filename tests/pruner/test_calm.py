"""A filter that dies before a batch norm: its weights must not explode."""

import pytest
import torch
from torch import nn

import softprune as sp


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def leap(gradient) -> float:
    """How far the weights of a dead filter move in a step, over how far the others do on average."""
    model = network()
    with torch.no_grad():
        model[3].weight[2] *= 1e-3
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.01), gradient=gradient)
    assert not model[3].weight[2].any()
    before = pruner.theta["3.weight"].clone()
    x = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    nn.functional.cross_entropy(model(x), torch.arange(16) % 4).backward()
    optimizer.step()
    moves = (pruner.theta["3.weight"] - before).flatten(1).norm(dim=1)
    return float(moves[2] / moves[[0, 1, 3, 4, 5, 6, 7]].mean())


def test_with_the_identity_a_dead_filter_leaps_and_with_calm_it_does_not():
    assert leap(sp.identity) > 20
    assert leap(sp.calm) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [sp.TargetSparsity, sp.GradualSparsity])
def test_targets_are_calm_and_the_papers_methods_are_not(kind):
    assert kind(0.9, steps=10).gradient is sp.calm
    assert sp.LATS(penalty=0.1).gradient is sp.identity


def test_a_sparse_convolutional_network_is_not_lost():
    """As it was with the identity: filters died, leapt back, and took the threshold with them."""
    generator = torch.Generator().manual_seed(2)
    patterns = torch.randn(4, 1, 8, 8, generator=generator)
    finals = {}
    for gradient in (sp.identity, sp.calm):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        threshold = sp.TargetSparsity(0.9, steps=150)
        pruner = sp.Pruner(sp.select(model), optimizer, threshold=threshold, gradient=gradient)
        for _ in range(150):
            labels = torch.randint(4, (32,), generator=generator)
            x = patterns[labels] + 0.3 * torch.randn(32, 1, 8, 8, generator=generator)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()
        finals[gradient] = max(pruner.threshold.values())
    assert finals[sp.calm] < 1.0
    assert finals[sp.identity] > 2 * finals[sp.calm]
