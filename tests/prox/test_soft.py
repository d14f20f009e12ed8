"""What a blend leaves behind."""

import torch

import softprune as sp
from softprune.kernels.pairs import Pairs


def test_a_blend_is_nearly_sparse_and_leaves_the_soft_threshold_behind():
    """Where |θ| <= d its weights are small, and zero only when training is over."""
    theta = torch.randn(1000, dtype=torch.float64)
    w = sp.Blend()(theta, 0.7, 0.1)
    assert not (w == 0).any()
    assert (w[theta.abs() <= 0.7].abs() <= 0.1 * 0.7).all()
    (final,) = sp.Blend().exact(Pairs([w], [theta]), [0.7], [0.1])
    assert torch.equal(final == 0, theta.abs() <= 0.7)
    assert torch.equal(final, sp.SoftThreshold()(theta, 0.7))
