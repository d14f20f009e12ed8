"""Budgets sum to what they promise."""

import pytest
import torch

import softprune as sp
from softprune.models import resnet18_cifar

PARAMS = sp.select(resnet18_cifar())


SIZE = sum(p.numel() for p in PARAMS.values())


@pytest.mark.parametrize("budget", [sp.uniform, sp.erdos_renyi, sp.erk])
@pytest.mark.parametrize("target", [0.0, 0.5, 0.9, 0.98, 0.995])
def test_the_sum_is_the_target(budget, target):
    shares = budget(PARAMS, target)
    assert list(shares) == list(PARAMS)
    assert all(0 <= share <= 1 for share in shares.values())
    assert sum(shares[name] * p.numel() for name, p in PARAMS.items()) == pytest.approx(target * SIZE, rel=1e-12)


def test_erk_by_hand():
    """Two layers: densities in the ratio of (4 + 2 + 3 + 3) / 72 to (10 + 10) / 100."""
    shares = sp.erk({"conv": torch.empty(4, 2, 3, 3), "linear": torch.empty(10, 10)}, 0.9)
    conv, linear = 1 - shares["conv"], 1 - shares["linear"]
    assert conv / linear == pytest.approx((12 / 72) / (20 / 100))
    assert 72 * conv + 100 * linear == pytest.approx(17.2)


def test_a_layer_that_would_be_more_than_dense_is_dense_and_the_rest_makes_up_for_it():
    shares = sp.erdos_renyi({"tiny": torch.empty(2, 2), "large": torch.empty(100, 100)}, 0.5)
    assert shares["tiny"] == 0.0
    assert 10_000 * shares["large"] == pytest.approx(0.5 * 10_004)
