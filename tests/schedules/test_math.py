"""The paper's mathematics, each statement against an oracle that shares no code with it.

The oracles: optimality conditions for a proximal step, sums written out, scipy's quadrature, the formulas that
the paper gives for quantities which the library obtains in another way.
"""

import copy
import math
import warnings
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import nn
from torch.optim import lr_scheduler as lrs

import softprune as sp
from softprune import curves


def cosine(x: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * x))


def shrink(x, d):
    return np.sign(x) * np.maximum(np.abs(x) - d, 0)


def parameter(values) -> nn.Parameter:
    return nn.Parameter(torch.tensor(np.asarray(values), dtype=torch.float64))


# -- Lemma 1 and Theorem 1 -----------------------------------------------------------------------------------


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
        w, d, theta = p.detach().numpy().copy(), pruner.threshold, pruner.theta["p"].numpy().copy()
        g = A.T @ (A @ w - b)
        p.grad = torch.from_numpy(g)
        optimizer.step()
        holds = (w != 0) & (np.sign(theta) * pruner.theta["p"].numpy() > d * (1 - lr * weight_decay))
        mu = pruner.penalty + weight_decay * d
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


# -- the bridge, both ways -----------------------------------------------------------------------------------

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


# -- shapes by hand ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "g"),
    [
        (sp.Sine(0.5, 30), lambda x: (1 + math.sin(math.pi * (x - 0.5))) / 2),
        (sp.Linear(0.5, 30), lambda x: x),
        (sp.Log2(0.5, 30), lambda x: math.log(x + 1) / math.log(2)),
    ],
    ids=["sine", "linear", "log2"],
)
def test_the_schedules_of_stds_are_the_papers(schedule, g):
    assert [schedule(t) for t in range(31)] == pytest.approx([0.5 * g(t / 30) for t in range(31)], abs=1e-15)


# -- LATS ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epochs", "batches"), [(1, 1), (1, 7), (2, 2), (5, 3), (30, 4), (100, 1)])
def test_the_closed_form_of_lats_is_the_running_sum_of_cosine_annealing_by_epochs(epochs, batches):
    rates = [cosine(epoch / epochs) for epoch in range(epochs) for _ in range(batches)]
    schedule = sp.LATS.cosine(0.7, epochs, batches)
    sums = [math.fsum(rates[:t]) for t in range(len(rates) + 1)]
    expected = [0.7 * s / sums[-1] for s in sums]
    assert [schedule(t) for t in range(len(rates) + 1)] == pytest.approx(expected, abs=1e-14)
    mu = sp.implied_penalty(schedule, rates)
    assert mu == pytest.approx([mu[0]] * len(mu), rel=1e-9, abs=0)  # what LATS means: one and the same penalty


SCHEDULERS = {
    "cosine": lambda o: lrs.CosineAnnealingLR(o, 60),
    "step": lambda o: lrs.StepLR(o, 20),
    "one cycle": lambda o: lrs.OneCycleLR(o, max_lr=0.3, total_steps=60),
    "warm-up": lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, 0.1, total_iters=10), lrs.CosineAnnealingLR(o, 50)], milestones=[10]
    ),
    "lambda": lambda o: lrs.LambdaLR(o, lambda t: 1 / (1 + t)),
    "cyclic": lambda o: lrs.CyclicLR(o, base_lr=0.01, max_lr=0.2, step_size_up=7),
    "restarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 15),
    "chained": lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, 0.1, 5), lrs.ExponentialLR(o, 0.95)]),
}


@pytest.mark.parametrize("interval", [1, 5])
@pytest.mark.parametrize("start", [0, 13])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_lats_from_final_ends_at_final_and_disturbs_nothing(name, interval, start):
    p, twin = parameter([1.0, -2.0, 3.0]), parameter([1.0, -2.0, 3.0])
    optimizer, undisturbed = (torch.optim.SGD([x], lr=0.1, momentum=0.9) for x in (p, twin))
    scheduler, same = SCHEDULERS[name](optimizer), SCHEDULERS[name](undisturbed)
    before = copy.deepcopy((optimizer.state_dict(), plain(scheduler.state_dict())))

    source = sp.LATS.from_final(0.5, scheduler, steps=60, interval=interval, start=start)

    assert (optimizer.state_dict(), plain(scheduler.state_dict())) == before
    pruner = sp.Pruner({"p": p}, optimizer, threshold=source)
    seen = []
    for step in range(1, 61):
        seen.append(optimizer.param_groups[0]["lr"])
        assert seen[-1] == undisturbed.param_groups[0]["lr"]
        for x, o, s in ((p, optimizer, scheduler), (twin, undisturbed, same)):
            x.grad = torch.ones_like(x) / 100
            o.step()
            if step % interval == 0 and step < 60:
                s.step()
        assert pruner.threshold == pytest.approx(source.penalty * math.fsum(seen[start:]), rel=1e-13, abs=0)
    assert pruner.threshold == pytest.approx(0.5, rel=1e-13, abs=0)
    assert pruner.penalty == pytest.approx(source.penalty, rel=1e-9, abs=0)


def plain(state):
    """A scheduler's state without its functions, which compare by identity."""
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    return [plain(x) for x in state] if isinstance(state, list) else None if callable(state) else state


def test_lats_from_final_leaves_a_learning_rate_alone_that_is_a_tensor():
    """The scheduler writes into such a learning rate in place."""
    lr = torch.tensor(0.1)
    optimizer = torch.optim.Adam([parameter([0.0])], lr=lr)
    source = sp.LATS.from_final(1.0, lrs.ExponentialLR(optimizer, 0.5), steps=3)
    assert source.penalty == pytest.approx(1 / (0.1 + 0.05 + 0.025), rel=1e-6)
    assert lr.item() == torch.tensor(0.1).item()


def test_lats_from_final_goes_on_from_where_the_scheduler_is():
    optimizer = torch.optim.SGD([parameter([0.0])], lr=1.0)
    scheduler = lrs.LambdaLR(optimizer, lambda t: 1.0 if t < 10 else 0.5)
    for _ in range(10):
        optimizer.step()
        scheduler.step()
    assert sp.LATS.from_final(1.0, scheduler, steps=4).penalty == pytest.approx(1.0 / (4 * 0.5))


def test_lats_from_final_refuses_a_scheduler_that_waits_for_the_loss():
    scheduler = lrs.ReduceLROnPlateau(torch.optim.SGD([parameter([0.0])], lr=0.1))
    with pytest.raises(TypeError, match=r"Cannot play a ReduceLROnPlateau forward\. .* Use LATS\(penalty\)"):
        sp.LATS.from_final(0.5, scheduler, steps=10)


# -- S-LATS --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WarmUp:
    """A user's curve with a kink."""

    def __call__(self, x: float) -> float:
        return min(x / 0.05, cosine(x))


CURVES = {
    "cosine by default": (None, cosine, ()),
    "cosine": (curves.Cosine(), cosine, ()),
    "polynomial": (curves.Polynomial(0.9), lambda x: (1 - x) ** 0.9, ()),
    "polynomial by quadrature": (lambda x: (1 - x) ** 0.9, lambda x: (1 - x) ** 0.9, ()),
    "constant": (lambda x: 0.1, lambda x: 3.0, ()),
    "step": (lambda x: 0.1 ** int(x / 0.3), lambda x: 0.1 ** int(x / 0.3), (0.3, 0.6, 0.9)),
    "warm-up": (WarmUp(), lambda x: min(20 * x, cosine(x)), (0.05,)),
    "wave": (lambda x: 1 + math.sin(40 * x), lambda x: 1 + math.sin(40 * x), ()),
}


def integral(h, a: float, b: float, jumps=()) -> float:
    """∫ h over [a, b] by scipy, piece by piece between the jumps."""
    ends = [a, *(x for x in jumps if a < x < b), b]
    return math.fsum(quad(h, lo, hi, epsabs=1e-14, epsrel=1e-13, limit=200)[0] for lo, hi in pairwise(ends))


@pytest.mark.parametrize("start", [0, 17])
@pytest.mark.parametrize(("lr", "h", "jumps"), CURVES.values(), ids=CURVES.keys())
def test_s_lats_is_the_integral_of_the_learning_rate_curve_at_every_step(lr, h, jumps, start):
    D, T = 0.8, 60
    schedule = sp.SLATS(D, T, lr=lr, start=start)
    pieces = [integral(h, t / T, (t + 1) / T, jumps) if t >= start else 0.0 for t in range(T)]
    expected = [D * math.fsum(pieces[:t]) / math.fsum(pieces) for t in range(T + 1)]
    assert [schedule(t) for t in range(T + 1)] == pytest.approx(expected, abs=1e-12)


def test_a_curve_full_of_rounding_errors_is_integrated_in_bounded_time():
    """Refining until a tolerance below the rounding is met would never end."""
    calls = 0

    def single_precision(x: float) -> float:
        nonlocal calls
        calls += 1
        return float(np.float32(1 + math.sin(40 * x)))

    assert curves.integral(single_precision, 1.0) == pytest.approx(1 + (1 - math.cos(40)) / 40, abs=1e-8)
    assert calls < 1_000_000


@pytest.mark.parametrize("epochs", [5, 20, 100])
def test_s_lats_is_lats_up_to_a_rectangle_rule(epochs):
    """Left rectangles of width 1/N overshoot the integral of a falling h by at most (h(0) − h(1))/N."""
    batches = 4
    exact, simple = sp.LATS.cosine(1.0, epochs, batches), sp.SLATS(1.0, epochs * batches)
    gap = max(abs(exact(t) - simple(t)) for t in range(epochs * batches + 1))
    assert 0.1 / epochs < gap < 1 / epochs


def test_s_lats_without_the_warm_up_is_off_by_some_per_cent_on_the_way():
    T, D = 1000, 1.0
    rates = [min((t + 1) / 50, cosine(t / T)) for t in range(T)]
    total = math.fsum(rates)
    exact = sp.threshold_from_penalty([D / total] * T, rates)
    assert 0.03 < max(abs(d - sp.SLATS(D, T)(t)) for t, d in enumerate(exact)) < 0.05
    aware = sp.SLATS(D, T, lr=WarmUp())
    assert max(abs(d - aware(t)) for t, d in enumerate(exact)) < 1e-3


# -- PGH -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lr", [None, cosine, WarmUp()], ids=["closed form", "quadrature", "a user's curve"])
@pytest.mark.parametrize("start", [0, 25, 45])
@pytest.mark.parametrize("beta", [1 - 1e-12, 0.9, 0.1, 1e-5, 1e-10, 1e-40, 1e-300])
def test_pgh_is_the_integral_of_the_decaying_penalty(beta, start, lr):
    D, T = 0.8, 50
    schedule = sp.PGH(D, T, beta, lr=lr, start=start)
    # the decay counts from the start: a factor that cancels, and β^(9/10) may be 10⁻²⁷⁰, beyond quad
    h = cosine if lr is None else lr

    def decayed(x: float) -> float:
        return h(x) * math.exp(math.log(beta) * (x - start / T))

    pieces = [quad(decayed, t / T, (t + 1) / T, epsabs=0, epsrel=1e-12, limit=200)[0] for t in range(start, T)]
    expected = [D * math.fsum(pieces[:n]) / math.fsum(pieces) for n in range(T - start + 1)]
    assert [schedule(t) for t in range(start, T + 1)] == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("beta", [0.5, 0.1, 1e-5, 1e-10])
def test_pgh_is_the_papers_analytic_form_where_that_can_be_evaluated(beta):
    def g(x: float) -> float:
        log, pi, power = math.log(beta), math.pi, beta**x
        wave = log * power * (log * math.cos(pi * x) + pi * math.sin(pi * x))
        return (pi**2 * (power - 1) + log**2 * (power - 2) + wave) / (pi**2 * (beta - 1) - 2 * log**2)

    schedule = sp.PGH(1.0, 100, beta)
    assert [schedule(t) for t in range(101)] == pytest.approx([g(t / 100) for t in range(101)], abs=1e-12)


@pytest.mark.parametrize(("beta", "stop"), [(0.1, 0.743), (1e-5, 0.382), (1e-10, 0.231)])
def test_pgh_stops_where_the_paper_says(beta, stop):
    schedule = sp.PGH(0.1, 100, beta)
    assert schedule.stop() == pytest.approx(stop, abs=5e-4)
    assert sp.PGH(0.1, 100, beta, lr=cosine).stop() == pytest.approx(stop, abs=5e-4)
    # what it means, from the schedule alone: the slope of g = d/D crosses 0.1 there
    fine = sp.PGH(1.0, 10**6, beta)
    t = round(schedule.stop() * 10**6)
    assert (fine(t + 50) - fine(t - 50)) * 10**4 == pytest.approx(0.1, rel=1e-3, abs=0)


def test_pgh_stops_later_for_a_smaller_slope_and_not_before_its_start():
    assert sp.PGH(1.0, 100, 0.1).stop(slope=0.01) > sp.PGH(1.0, 100, 0.1).stop(slope=0.1)
    assert sp.PGH(1.0, 100, 0.1).stop(slope=1e9) == 0.0
    assert 0.5 < sp.PGH(1.0, 100, 1e-10, start=50).stop() < 1


@pytest.mark.parametrize("beta", [math.nextafter(1.0, 0.0), 1 - 1e-12])
def test_pgh_becomes_s_lats_as_beta_tends_to_one(beta):
    pgh, slats = sp.PGH(0.5, 200, beta), sp.SLATS(0.5, 200)
    assert [pgh(t) for t in range(201)] == pytest.approx([slats(t) for t in range(201)], abs=1e-12)


@pytest.mark.parametrize("beta", [1e-250, 1e-308, 5e-324])
@pytest.mark.parametrize("lr", [None, cosine], ids=["closed form", "quadrature"])
def test_pgh_becomes_pruning_at_initialization_as_beta_tends_to_zero(beta, lr):
    T = 10  # even β = 5e-324 has a decay of only e⁻⁷⁴⁴ over a whole run
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pgh, at_once = sp.PGH(0.5, T, beta, lr=lr), sp.Constant(0.5, start=1)
    assert [pgh(t) for t in range(T + 1)] == pytest.approx([at_once(t) for t in range(T + 1)], abs=1e-14)


def test_under_its_learning_rate_pgh_implies_a_penalty_that_decays_by_beta_over_the_run():
    T, beta = 4000, 1e-3
    mu = sp.implied_penalty(sp.PGH(0.5, T, beta), [0.1 * cosine((t + 0.5) / T) for t in range(T)])
    for x in (0.1, 0.5, 0.9):
        assert mu[int(x * T)] / mu[0] == pytest.approx(beta**x, rel=1e-4, abs=0)


# -- trained thresholds --------------------------------------------------------------------------------------


def sigmoid(s):
    return 1 / (1 + np.exp(-s))


@pytest.mark.parametrize(("transform", "function"), [("sigmoid", sigmoid), ("exp", np.exp)])
def test_with_weight_decay_alone_strs_threshold_is_a_schedule(transform, function):
    """App. C: d(t) = σ(s_init · Π (1 − η(i)·λ))."""
    p, lam = parameter(np.linspace(-1, 1, 7)), 0.3
    source = sp.STR({"p": p}, init=-8.0, transform=transform)
    optimizer = torch.optim.SGD([{"params": [p]}, {"params": source.parameters(), "weight_decay": lam}], lr=1.0)
    pruner = sp.Pruner({"p": p}, optimizer, threshold=source)
    product = 1.0
    for t in range(30):
        for group in optimizer.param_groups:
            group["lr"] = lr = 0.4 * cosine(t / 30)
        p.grad = torch.zeros_like(p)
        optimizer.step()
        product *= 1 - lr * lam
        assert pruner.threshold["p"] == pytest.approx(function(-8.0 * product), rel=1e-12, abs=0)
    assert pruner.threshold["p"] > 10 * function(-8.0)


def gradients_during_step(optimizer: torch.optim.Optimizer, *tensors: nn.Parameter) -> list[np.ndarray]:
    """What the optimizer is given for these tensors in its next step; ask after the pruner has hooked itself in."""
    seen = []
    handle = optimizer.register_step_pre_hook(lambda *_: seen.extend(x.grad.numpy().copy() for x in tensors))
    optimizer.step()
    handle.remove()
    return seen


@pytest.mark.parametrize("mapping_gradient", [sp.identity, sp.subgradient])
@pytest.mark.parametrize("shared", [False, True])
def test_the_gradient_of_strs_s_is_the_papers_sum_over_nonzero_weights(shared, mapping_gradient):
    """Whichever gradient θ itself is given."""
    rng = np.random.default_rng(0)
    params = {"a": parameter(rng.normal(size=(4, 5))), "b": parameter(rng.normal(size=30))}
    theta = {name: p.detach().numpy().copy() for name, p in params.items()}
    source = sp.STR(params, init=-0.4, shared=shared)
    optimizer = torch.optim.SGD([*params.values(), *source.parameters()], lr=0.1)
    sp.Pruner(params, optimizer, threshold=source, gradient=mapping_gradient)
    for p in params.values():
        (torch.sin(3 * p).sum() + (p**2).sum()).backward()
    d = sigmoid(-0.4)
    sums, turned = [], []
    for name, p in params.items():
        w, g = shrink(theta[name], d), p.grad.numpy().copy()
        assert 0 < (w == 0).mean() < 1
        sums.append(-d * (1 - d) * (g * np.sign(theta[name]))[w != 0].sum())
        turned.append(g if mapping_gradient is sp.identity else np.where(w != 0, g, 0))
    ds, *dthetas = gradients_during_step(optimizer, source.s, *params.values())
    np.testing.assert_allclose(ds, [sum(sums)] if shared else sums, rtol=1e-12)
    np.testing.assert_allclose(source.s.detach(), -0.4 - 0.1 * ds, rtol=1e-12)
    for dtheta, expected in zip(dthetas, turned, strict=True):
        np.testing.assert_array_equal(dtheta, expected)


@pytest.mark.parametrize("b", [1e6, 3e5, -2e5])
def test_the_gradient_of_gpos_b_is_the_papers_sum(b):
    p = parameter(np.random.default_rng(0).normal(size=40))
    theta = p.detach().numpy().copy()
    source = sp.GPO({"p": p}, init=-0.4)
    with torch.no_grad():
        source.b.fill_(b)
    optimizer = torch.optim.SGD([p, *source.parameters()], lr=0.1)
    sp.Pruner({"p": p}, optimizer, threshold=source)
    k, d = 1e-6 * abs(b), sigmoid(-0.4)
    np.testing.assert_allclose(p.detach(), (1 - k) * shrink(theta, d) + k * theta, rtol=0, atol=1e-15)
    (torch.sin(3 * p).sum() + (p**2).sum()).backward()
    g = p.grad.numpy().copy()
    db, ds, dtheta = gradients_during_step(optimizer, source.b, source.s, p)
    assert db == pytest.approx(1e-6 * np.sign(b) * (g * (theta - shrink(theta, d))).sum(), rel=1e-12, abs=0)
    outside = np.abs(theta) > d
    assert ds == pytest.approx(-(1 - k) * d * (1 - d) * (g * np.sign(theta))[outside].sum(), rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(dtheta, np.where(outside, g, k * g), rtol=1e-12, atol=1e-15)


def train_with(make, b: float | None = None, steps: int = 60) -> tuple[sp.Pruner, list[np.ndarray]]:
    """A regression with STR or GPO; the weight decay on GPO's numbers is strong, as in GPO's own code."""
    rng = np.random.default_rng(1)
    A, y = torch.from_numpy(rng.normal(size=(30, 20))), torch.from_numpy(rng.normal(size=30))
    p = parameter(rng.normal(size=20))
    source = make({"p": p}, init=-3.0)
    if b is not None:
        with torch.no_grad():
            source.b.fill_(b)
    optimizer = torch.optim.SGD([{"params": [p]}, {"params": source.parameters(), "weight_decay": 5.0}], lr=0.1)
    pruner = sp.Pruner({"p": p}, optimizer, threshold=source)
    ws = []
    for _ in range(steps):
        optimizer.zero_grad()
        ((A @ p - y) ** 2).mean().backward()
        optimizer.step()
        ws.append(p.detach().numpy().copy())
    return pruner, ws


def test_gpos_blend_decays_to_strs_soft_threshold():
    for steps in (1, 5, 15):
        k = train_with(sp.GPO, steps=steps)[0].source()[1].item()
        assert k == pytest.approx(0.5**steps, rel=1e-4, abs=0)  # Π (1 − ηλ): the loss has no say in it
    pruner, ws = train_with(sp.GPO, steps=60)
    d, k = (x.item() for x in pruner.source())
    assert k < 1e-12
    np.testing.assert_allclose(ws[-1], shrink(pruner.theta["p"].numpy(), d), rtol=0, atol=1e-12)
    assert 0 < pruner.sparsity() < 1


def test_gpo_without_its_blend_is_str():
    _, str_weights = train_with(sp.STR)
    _, gpo_weights = train_with(sp.GPO, b=0.0)
    np.testing.assert_allclose(gpo_weights, str_weights, rtol=0, atol=1e-12)
    _, blended = train_with(sp.GPO, b=1e5)
    assert np.abs(np.array(blended) - str_weights).max() > 1e-3  # and with it, it is not


def test_gpos_blend_is_the_prox_of_a_huber_penalty():
    """min over y of ½(y − θ)² + (1 − k)·huber(y), huber being quadratic up to k·d and of slope d beyond: by 0 ∈ ∂."""
    theta, d, k = torch.linspace(-3, 3, 601, dtype=torch.float64), 0.8, 0.25
    w = sp.Blend()(theta, d, k).requires_grad_()
    delta = k * d
    huber = nn.functional.huber_loss(w, torch.zeros_like(w), delta=delta, reduction="sum")  # slope δ beyond δ
    ((w - theta) ** 2 / 2).sum().add((1 - k) / k * huber).backward()
    assert w.grad.abs().max() < 1e-14


# -- the smooth surrogate ------------------------------------------------------------------------------------


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
