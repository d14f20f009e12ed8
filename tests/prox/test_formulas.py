"""The paper's other ways to write the maps: GPO's blend as a prox, the smooth surrogate of the soft threshold."""

import math

import pytest
import torch
from torch import nn

import softprune as sp


def test_gpos_blend_is_the_prox_of_a_huber_penalty():
    """min over y of ½(y − θ)² + (1 − k)·huber(y), huber being quadratic up to k·d and of slope d beyond: by 0 ∈ ∂."""
    theta, d, k = torch.linspace(-3, 3, 601, dtype=torch.float64), 0.8, 0.25
    w = sp.Blend()(theta, d, k).requires_grad_()
    delta = k * d
    huber = nn.functional.huber_loss(w, torch.zeros_like(w), delta=delta, reduction="sum")  # slope δ beyond δ
    ((w - theta) ** 2 / 2).sum().add((1 - k) / k * huber).backward()
    assert w.grad.abs().max() < 1e-14


@pytest.mark.parametrize("d", [0.0, 0.5, 2.0])
def test_the_smooth_surrogate_tends_to_the_soft_threshold(d):
    """[softplus(a(x − d)) − softplus(−a(x + d))] / a, with an error of at most log 2 / a, near the kinks."""
    x = torch.linspace(-4, 4, 4001, dtype=torch.float64)
    exact = sp.SoftThreshold()(x, d)
    for a in (1.0, 10.0, 100.0, 1e4):
        surrogate = (nn.functional.softplus(a * (x - d)) - nn.functional.softplus(-a * (x + d))) / a
        assert (surrogate - exact).abs().max() <= math.log(2) / a + 1e-12
    away = ((x.abs() - d).abs() > 0.1) & (x.abs() > 0.1)
    leaf = x.clone().requires_grad_()
    (((nn.functional.softplus(a * (leaf - d)) - nn.functional.softplus(-a * (leaf + d))) / a).sum()).backward()
    (slope,) = sp.SoftThreshold().vjp(x, torch.ones_like(x), d)
    if d > 0:
        torch.testing.assert_close(leaf.grad[away], slope[away], rtol=0, atol=1e-12)
