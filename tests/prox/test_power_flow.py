"""What LATS minimises with a power threshold: SGD in small steps, against the equations of docs/math.md."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from sklearn.linear_model import Lasso

import softprune as sp
from formulas import number, parameter

CENTER = np.array([1.0, -1.5, 2.0])
FACTOR = np.random.default_rng(0).normal(size=(6, 3))
HESSIAN = FACTOR.T @ FACTOR / 3 + np.eye(3) / 2  # eigenvalues 0.57, 1.48, 4.08


def slope(w):
    return HESSIAN @ (w - CENTER)


def train(p, mu, lr, total, start=CENTER, gradient=slope):
    """w, θ and d after ``total`` / ``lr`` steps of pruned SGD."""
    w = parameter(start.copy())
    optimizer = torch.optim.SGD([w], lr=lr)
    pruner = sp.Pruner({"w": w}, optimizer, threshold=sp.LATS(mu), prox=sp.PowerThreshold(p))
    for _ in range(round(total / lr)):
        w.grad = torch.from_numpy(gradient(w.detach().numpy()))
        optimizer.step()
    return w.detach().numpy(), pruner.theta["w"].numpy(), number(pruner.threshold)


def flow(p, mu, total):
    """(|w|/|θ|)^(p−1) · w' = −(g + μ·(d/|θ|)^(p−1)·sign(w)) with d = μ·t, from the minimum of the loss."""

    def velocity(t, w):
        d = mu * t
        theta = (np.abs(w) ** p + d**p) ** (1 / p)
        return -((theta / np.abs(w)) ** (p - 1)) * (slope(w) + mu * (d / theta) ** (p - 1) * np.sign(w))

    return solve_ivp(velocity, (0, total), CENTER, rtol=1e-10, atol=1e-12).y[:, -1]


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_lats_with_a_power_threshold_follows_the_flow_of_a_fading_penalty(p):
    """Half the step, half the distance; a slightly different power is ten times as far away, and more."""
    ends = {lr: train(p, 0.2, lr, total=10)[0] for lr in (0.02, 0.01)}
    far, near = (np.abs(w - flow(p, 0.2, total=10)).max() for w in ends.values())
    assert far < 2e-4
    assert far / near == pytest.approx(2, abs=0.05)
    assert np.abs(ends[0.01] - flow(p + 0.25, 0.2, total=10)).max() > 10 * far


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_with_a_power_threshold_the_loss_meets_the_penalty_times_a_power_of_d_over_theta(p):
    """g + μ·(d/|θ|)^(p−1)·sign(w) is what w has yet to move: of order μ², as d grows by μ."""

    def imbalance(mu, power):
        w, theta, d = train(p, mu, lr=0.02, total=2 / mu)  # until d = 2, about as large as the weights
        pull = mu * (d / np.abs(theta)) ** power
        return np.abs(slope(w) + pull * np.sign(w)) / pull

    assert imbalance(0.1, p - 1).max() < 0.02
    assert imbalance(0.05, p - 1).max() < 0.55 * imbalance(0.1, p - 1).max()
    assert (imbalance(0.1, p) > 4 * imbalance(0.1, p - 1)).all()
    assert (imbalance(0.1, p - 1.25) > 2 * imbalance(0.1, p - 1)).all()


def test_with_a_power_threshold_far_above_the_weights_lats_solves_the_lasso():
    """Zeros included, as with the soft threshold, if steps are small: they count |θ/w|^(p−1) times."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 8))
    y = X[:, :3] @ np.array([1.0, -1.0, 0.5]) + 0.3 * rng.normal(size=40)
    mu = 0.2
    exact = Lasso(mu, fit_intercept=False, tol=1e-14, max_iter=10**5).fit(X, y).coef_
    assert 0 < (exact == 0).sum() < 8

    def gradient(w):
        return X.T @ (X @ w - y) / len(y)

    w, _, d = train(1.5, mu, lr=0.05, total=200, start=np.zeros(8), gradient=gradient)
    assert d == pytest.approx(40)
    assert np.array_equal(w == 0, exact == 0)
    np.testing.assert_allclose(w, exact, rtol=0, atol=2e-3)
    early, _, _ = train(1.5, mu, lr=0.05, total=10, start=np.zeros(8), gradient=gradient)
    assert np.abs(early - exact).max() > 0.01  # where d is about as large as the weights, it pulls them less


@pytest.mark.parametrize("p", [1.5, 3])
def test_with_a_power_threshold_lats_is_dual_averaging_with_its_penalty(p):
    """w minimises ⟨Σ η·g, w⟩ + ρ(w; μ·Σ η) + ½|w − θ₀|², coordinate by coordinate, whatever the gradients are."""
    rng = np.random.default_rng(2)
    start, gradients = rng.normal(size=12), rng.normal(size=(30, 12))
    queue = iter(gradients)
    w, _, _ = train(p, 2.0, lr=0.02, total=0.6, start=start, gradient=lambda w: next(queue))
    assert 0 < (w == 0).sum() < 12
    grid = np.tile(np.linspace(-4, 4, 80_001)[:, None], 12)

    def objective(v):
        penalty = sp.PowerThreshold(p).regularizer(torch.from_numpy(v), 2.0 * 0.6).numpy()
        return 0.02 * gradients.sum(0) * v + penalty + (v - start) ** 2 / 2

    best = objective(grid).min(0)
    assert (objective(w) <= best + 1e-12).all()
    assert (objective(w) >= best - 1e-8).all()  # the grid is as fine
