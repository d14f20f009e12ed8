"""A real problem with a known answer: pruning with the identity gradient and LATS solves the Lasso.

The setting in which 1,000 steps suffice: scikit-learn's diabetes data with X *and* y standardized, step size 1/L,
from zero. There alpha = 0.02, 0.1 and 0.3 keep 7, 4 and 2 of the 10 features, and 500 steps are enough. (With y in its
own units the same alphas prune next to nothing, and an ill-conditioned problem, κ = 470, is left: 20,000 steps.)
"""

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import softprune as sp

spec = importlib.util.spec_from_file_location("lasso", Path(__file__).parents[1] / "examples" / "lasso.py")
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)


@cache
def trained(alpha: float, momentum: float = 0.0) -> torch.Tensor:
    return example.train(*example.problem(), alpha, steps=1000, momentum=momentum)[-1]


@pytest.mark.parametrize(("alpha", "nonzero"), [(0.02, 7), (0.1, 4), (0.3, 2)])
def test_pruned_gradient_descent_reaches_the_lasso_solution(alpha, nonzero):
    w, exact = trained(alpha), example.lasso(*example.problem(), alpha)
    assert torch.equal(w != 0, exact != 0)
    assert (exact != 0).sum() == nonzero
    assert (w - exact).abs().max() < 1e-10


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3])
def test_the_solution_satisfies_the_lassos_optimality_conditions(alpha):
    """|Xᵀ(y − Xw)| / n = alpha, with the sign of w, where w is not zero, and at most alpha where it is."""
    X, y = example.problem()
    w = trained(alpha)
    correlation = X.T @ (y - X @ w) / len(y)
    torch.testing.assert_close(correlation[w != 0], alpha * w.sign()[w != 0], rtol=0, atol=1e-12)
    assert (correlation.abs()[w == 0] < alpha).all()


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_with_momentum_m_the_loss_meets_the_penalty_times_one_minus_m(momentum):
    """Every gradient moves θ by η/(1 − m) in the end, while d grows by μ·η: ``train`` asks for μ = alpha / (1 − m)."""
    w, exact = trained(0.1, momentum), example.lasso(*example.problem(), 0.1)
    assert torch.equal(w != 0, exact != 0)
    assert (w - exact).abs().max() < 1e-10


@pytest.mark.parametrize("start", [0.0, 0.3], ids=["from zero", "from somewhere"])
def test_lats_is_regularized_dual_averaging_at_every_step_and_for_zero_weights_too(start):
    """w(t) = S_{μ·Ση}(θ₀ − Σ η·g), the minimiser of ⟨Σ η·g, w⟩ + μ·Ση·‖w‖₁ + ½‖w − θ₀‖², for any learning rates."""
    X, y = example.problem()
    rng = np.random.default_rng(0)
    mu, theta0 = 0.1, start * rng.normal(size=10)
    w = nn.Parameter(torch.from_numpy(theta0.copy()))
    optimizer = torch.optim.SGD([w], lr=1.0)
    sp.Pruner({"w": w}, optimizer, threshold=sp.LATS(penalty=mu))
    rates, moves = [], []
    zeros = returned = 0
    for _ in range(200):
        optimizer.param_groups[0]["lr"] = lr = float(rng.uniform(0, 0.4))
        optimizer.zero_grad()
        (((y - X @ w) ** 2).mean() / 2).backward()
        was = w.detach().numpy().copy()
        rates.append(lr)
        moves.append(lr * (X.T @ (X @ torch.from_numpy(was) - y) / len(y)).numpy())
        optimizer.step()
        now = w.detach().numpy()
        total, d = np.sum(moves, axis=0), mu * np.sum(rates)
        np.testing.assert_allclose(
            now, np.sign(theta0 - total) * np.maximum(np.abs(theta0 - total) - d, 0), rtol=0, atol=1e-12
        )
        slope = total + now - theta0  # of all but the penalty, at w: 0 ∈ slope + d·∂‖w‖₁
        assert np.abs(slope + d * np.sign(now))[now != 0].max() < 1e-12
        assert (np.abs(slope)[now == 0] <= d + 1e-12).all()
        zeros += (now == 0).sum()
        returned += ((was == 0) & (now != 0)).sum()
    assert zeros > 200
    assert returned > 0  # weights come back from zero while d grows


def test_the_subgradient_does_not_solve_the_lasso():
    """What the identity gradient is for: with the subgradient, a weight that is zero once stays zero."""
    X, y = example.problem()
    w = nn.Parameter(0.3 * torch.randn(10, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    optimizer = torch.optim.SGD([w], lr=0.2)
    sp.Pruner({"w": w}, optimizer, threshold=sp.LATS(0.1), gradient=sp.subgradient)
    zero = w == 0
    for _ in range(500):
        optimizer.zero_grad()
        (((y - X @ w) ** 2).mean() / 2).backward()
        optimizer.step()
        assert (w == 0)[zero].all()
        zero = w == 0
    assert not torch.equal(w != 0, example.lasso(X, y, 0.1) != 0)


def test_with_adam_the_same_penalty_is_another_problem():
    """One threshold for steps of different length is not one penalty: Adam's metric is not the identity."""
    X, y = example.problem()
    w = nn.Parameter(torch.zeros(10, dtype=torch.float64))
    optimizer = torch.optim.Adam([w], lr=0.01)
    sp.Pruner({"w": w}, optimizer, threshold=sp.LATS(0.1))
    for _ in range(1000):
        optimizer.zero_grad()
        (((y - X @ w) ** 2).mean() / 2).backward()
        optimizer.step()
    assert (w - example.lasso(X, y, 0.1)).abs().max() > 0.01
