"""identity and subgradient: which gradient reaches θ."""

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import (
    Oracle,
    Run,
    assert_follows,
    shrink,
)

SCHEDULED = ["slats", "delayed", "short", "constant", "lats"]


@pytest.mark.parametrize("method", SCHEDULED)
def test_a_schedule_with_the_true_gradient(method):
    run, oracle = Run.of("momentum", method, gradient=sp.subgradient), Oracle("momentum", method)
    oracle.gradient = shrink
    assert run.train() == pytest.approx(oracle.train(), rel=1e-12)
    assert_follows(run, oracle, rtol=1e-12, atol=1e-14)


def test_a_trained_threshold_with_the_straight_through_gradient():
    """θ gets dL/dw everywhere, s gets what the true mapping gives it."""
    run, oracle = Run.of("momentum", "str", gradient=sp.identity), Oracle("momentum", "str")

    class Mixed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, theta, d):
            ctx.save_for_backward(theta, d)
            return shrink(theta, d)

        @staticmethod
        def backward(ctx, grad):
            theta, d = ctx.saved_tensors
            return grad, -(grad * theta.sign() * (theta.abs() > d)).sum()

    oracle.weight = lambda i, name: Mixed.apply(oracle.theta[name], torch.sigmoid(oracle.s[i]))
    assert run.train() == pytest.approx(oracle.train(), rel=1e-12)
    assert_follows(run, oracle, rtol=1e-10, atol=1e-12)


def test_zero_weights_under_a_zero_threshold_are_no_nan():
    model = nn.Linear(4, 4).double()
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.0), gradient=sp.subgradient)
    model(torch.ones(1, 4).double()).sum().backward()
    optimizer.step()
    assert torch.equal(model.weight, torch.zeros_like(model.weight))  # |θ| = d: the subgradient is 0


def test_a_hidden_zero_moves_under_the_identity_gradient():
    """Where the authors' layer stops: sign(0) = 0. The gradient of the paper is 1 everywhere."""
    model = nn.Linear(2, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.25))
    model(torch.ones(1, 2).double()).sum().backward()
    optimizer.step()
    assert pruner.theta["weight"].tolist() == [[-0.5, -0.5]]
    assert model.weight.tolist() == [[-0.25, -0.25]]
