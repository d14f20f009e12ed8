"""Theorem 1: a threshold schedule is an L1 penalty. Against optimality conditions, and the paper's formulas."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import softprune as sp
from formulas import cosine, number, parameter, shrink


def one_step(theta, gradient, lr, d, d_next, mapping_gradient=sp.identity, weight_decay=0.0):
    """w(t), w(t+1) and θ(t+1) of a real pruner and a real SGD."""
    p = parameter(theta)
    optimizer = torch.optim.SGD([p], lr=lr, weight_decay=weight_decay)
    pruner = sp.Pruner({"p": p}, optimizer, threshold=lambda t: (d, d_next)[t], gradient=mapping_gradient)
    w = p.detach().numpy().copy()
    p.grad = torch.tensor(gradient, dtype=torch.float64)
    optimizer.step()
    return w, p.detach().numpy(), pruner.theta["p"].numpy()


moderate = st.floats(-4, 4, allow_subnormal=False)
weights_and_gradients = st.lists(st.tuples(moderate, moderate), min_size=1, max_size=12)


@pytest.mark.parametrize("mapping_gradient", [sp.identity, sp.subgradient])
@given(pairs=weights_and_gradients, lr=st.floats(0.001, 2), d=st.floats(0, 2), growth=st.floats(0, 2))
@settings(max_examples=150, deadline=None)
def test_lemma_1_a_nonzero_weight_takes_an_ista_step(mapping_gradient, pairs, lr, d, growth):
    theta, g = np.array(pairs).T
    w, w_next, theta_next = one_step(theta, g, lr, d, d + growth, mapping_gradient)
    holds = (w != 0) & (np.abs(theta_next) > d) & (np.sign(theta_next) == np.sign(theta))
    assume(holds.any())
    ista = shrink(w - lr * g, (d + growth) - d)
    np.testing.assert_allclose(w_next[holds], ista[holds], rtol=0, atol=1e-13)


def test_lemma_1_needs_its_sign_condition():
    """A weight that jumps across zero must cross the dead zone of width 2d first: ISTA knows of none."""
    w, w_next, theta_next = one_step([1.0], [2.5], lr=1.0, d=0.5, d_next=0.6)
    assert (w, theta_next) == (0.5, -1.5)
    assert w_next == pytest.approx(-0.9)
    assert shrink(w - 2.5, 0.1) == pytest.approx(-1.9)


def nothing_better_than(y, w, g, lr, mu):
    """How far y is from the minimum of ⟨g, y⟩ + |y − w|² / 2η + μ‖y‖₁, coordinate by coordinate: 0 ∈ ∂."""
    slope = g + (y - w) / lr
    return np.where(y != 0, np.abs(slope + mu * np.sign(y)), np.maximum(np.abs(slope) - mu, 0))


RUN = 40
COSINE_LRS = [0.3 * cosine(t / RUN) for t in range(RUN)]


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize(
    "threshold",
    [sp.SLATS(0.2, RUN), sp.PGH(0.2, RUN, beta=1e-3), sp.Sine(0.2, RUN), sp.LATS(0.03), sp.LATS(0.03, start=10)],
    ids=str,
)
def test_theorem_1_every_step_is_a_proximal_gradient_step_on_the_loss_with_the_implied_penalty(threshold, weight_decay):
    """With weight decay λ: on loss + λ/2·‖w‖² and the penalty μ + λ·d (docs/math.md)."""
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(60, 200)) / 8, rng.normal(size=60)
    p = parameter(rng.normal(size=200) / 4)
    optimizer = torch.optim.SGD([p], lr=1.0, weight_decay=weight_decay)
    pruner = sp.Pruner({"p": p}, optimizer, threshold=threshold)
    checked = 0
    for lr in COSINE_LRS:
        optimizer.param_groups[0]["lr"] = lr
        w, d, theta = p.detach().numpy().copy(), number(pruner.threshold), pruner.theta["p"].numpy().copy()
        g = A.T @ (A @ w - b)
        p.grad = torch.from_numpy(g)
        optimizer.step()
        holds = (w != 0) & (np.sign(theta) * pruner.theta["p"].numpy() > d * (1 - lr * weight_decay))
        mu = number(pruner.penalty) + weight_decay * d
        residual = nothing_better_than(p.detach().numpy(), w, g + weight_decay * w, lr, mu)[holds]
        assert residual.max() < 1e-11 / lr
        checked += holds.sum()
    assert checked > 10 * RUN


def test_weight_decay_on_theta_is_weight_decay_on_w_and_one_more_penalty():
    """w(t+1) = S_{Δd + ηλd}(w − η(g + λw)); App. F.1 has λ|θ| for ηλd, which is off by more than rounding."""
    theta, g, lr, lam, d, d_next = np.array([1.0, -2.0, 0.9]), np.array([0.3, 0.1, 0.2]), 0.1, 0.2, 0.5, 0.6
    w, w_next, _ = one_step(theta, g, lr, d, d_next, weight_decay=lam)
    np.testing.assert_allclose(w_next, shrink(w - lr * (g + lam * w), d_next - d + lr * lam * d), rtol=0, atol=1e-15)
    # the paper's form, with its η restored
    np.testing.assert_allclose(w_next, shrink(w - lr * g, d_next - d + lr * lam * np.abs(theta)), rtol=0, atol=1e-15)
    as_printed = shrink(w - lr * g, d_next - d + lam * np.abs(theta))
    assert np.abs(w_next - as_printed).max() > 0.1
    schedule = (d, d_next).__getitem__
    assert sp.implied_penalty(schedule, [lr], weight_decay=lam) == pytest.approx([(d_next - d) / lr + lam * d])


positive = st.floats(1e-3, 10)


@given(st.lists(st.tuples(st.just(0.0) | positive, positive), min_size=1, max_size=30))
def test_the_bridge_leads_from_penalties_to_thresholds_and_back(pairs):
    penalties, rates = zip(*pairs, strict=True)
    ds = sp.threshold_from_penalty(penalties, rates)
    assert ds == pytest.approx([math.fsum(m * r for m, r in pairs[:t]) for t in range(len(pairs) + 1)], abs=1e-12)
    # d is a sum of up to 30 products, of which the bridge takes differences and divides by η
    assert sp.implied_penalty(ds.__getitem__, rates) == pytest.approx(penalties, abs=1e-12 * max(ds) / min(rates))


@pytest.mark.parametrize("schedule", [sp.Sine(0.3, 50), sp.SLATS(0.3, 50), sp.PGH(0.3, 50, 1e-5)], ids=str)
def test_the_bridge_leads_from_thresholds_to_penalties_and_back(schedule):
    rates = [0.1 * cosine(t / 50) for t in range(50)]
    ds = sp.threshold_from_penalty(sp.implied_penalty(schedule, rates), rates)
    assert ds == pytest.approx([schedule(t) for t in range(51)], abs=1e-15)


def test_a_threshold_that_grows_without_a_learning_rate_is_an_infinite_penalty():
    assert sp.implied_penalty(sp.Linear(1.0, 2), [0.0, 1.0, 0.0]) == [math.inf, 0.5, 0.0]


def test_the_sine_schedule_implies_a_penalty_proportional_to_a_tangent():
    """App. B: exactly so for the learning rate of the middle of a step, and in the limit of many steps."""
    T = 20_000
    inner = range(T // 20, T - T // 20)

    def constants(shift: float) -> np.ndarray:
        mu = sp.implied_penalty(sp.Sine(0.5, T), (0.1 * cosine((t + shift) / T) for t in range(T)))
        return np.array([mu[t] / math.tan(math.pi * (t + shift) / (2 * T)) for t in inner])

    assert np.ptp(constants(0.5)) < 1e-7 * constants(0.5).mean()
    assert np.ptp(constants(0.0)) < 1e-3 * constants(0.0).mean()
    # 2D·sin(π/2T) / η_max; the paper's third line has sin(π/T), twice as much
    assert constants(0.5).mean() == pytest.approx(2 * 0.5 * math.sin(math.pi / (2 * T)) / 0.1, rel=1e-9, abs=0)


def test_under_cosine_annealing_only_s_lats_implies_a_constant_penalty():
    T = 1000
    rates = [0.1 * cosine((t + 0.5) / T) for t in range(T)]

    def spread(schedule) -> float:
        mu = sp.implied_penalty(schedule, rates)[:-5]  # where η ends at zero a step is no longer short
        return max(mu) / min(mu)

    assert spread(sp.SLATS(0.5, T)) < 1.01
    assert spread(sp.Sine(0.5, T)) > 1e5
    assert spread(sp.Linear(0.5, T)) > 1e3
    assert spread(sp.Log2(0.5, T)) > 1e3
