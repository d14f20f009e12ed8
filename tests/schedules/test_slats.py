"""LATS by epochs, S-LATS and PGH, against sums written out, scipy's quadrature and the paper's formulas."""

import math
import warnings
from dataclasses import dataclass
from itertools import pairwise

import pytest
from scipy.integrate import quad

import softprune as sp
from formulas import cosine
from softprune import curves


@pytest.mark.parametrize(("epochs", "batches"), [(1, 1), (1, 7), (2, 2), (5, 3), (30, 4), (100, 1)])
def test_the_closed_form_of_lats_is_the_running_sum_of_cosine_annealing_by_epochs(epochs, batches):
    rates = [cosine(epoch / epochs) for epoch in range(epochs) for _ in range(batches)]
    schedule = sp.LATS.cosine(0.7, epochs, batches)
    sums = [math.fsum(rates[:t]) for t in range(len(rates) + 1)]
    expected = [0.7 * s / sums[-1] for s in sums]
    assert [schedule(t) for t in range(len(rates) + 1)] == pytest.approx(expected, abs=1e-14)
    mu = sp.implied_penalty(schedule, rates)
    assert mu == pytest.approx([mu[0]] * len(mu), rel=1e-9, abs=0)  # what LATS means: one and the same penalty


@dataclass(frozen=True)
class WarmUp:
    """A user's curve with a kink."""

    def __call__(self, x: float) -> float:
        return min(x / 0.05, cosine(x))


def step_decay(x: float) -> float:
    return 1.0 if x < 0.3 else 0.1 if x < 0.6123 else 0.01


EXACT, KINK, JUMP = 1e-12, 1e-6, 3e-4  # a jump of 0.9 at 1e-4 of its height, in a curve whose integral is 0.335
CURVES = {
    "cosine by default": (None, cosine, (), EXACT),
    "cosine": (curves.Cosine(), cosine, (), EXACT),
    "polynomial": (curves.Polynomial(0.9), lambda x: (1 - x) ** 0.9, (), EXACT),
    "polynomial by quadrature": (lambda x: (1 - x) ** 2.5, lambda x: (1 - x) ** 2.5, (), EXACT),
    "constant": (lambda x: 0.1, lambda x: 3.0, (), EXACT),
    "wave": (lambda x: 1 + math.sin(40 * x), lambda x: 1 + math.sin(40 * x), (), EXACT),
    "steps": (curves.Steps(at=(0.3, 0.6123), factor=0.1), step_decay, (0.3, 0.6123), EXACT),
    "warm-up": (WarmUp(), lambda x: min(20 * x, cosine(x)), (0.05,), KINK),
    "steps by quadrature": (step_decay, step_decay, (0.3, 0.6123), JUMP),
}


def integral(h, a: float, b: float, jumps=()) -> float:
    """∫ h over [a, b] by scipy, piece by piece between the jumps."""
    ends = [a, *(x for x in jumps if a < x < b), b]
    return math.fsum(quad(h, lo, hi, epsabs=1e-14, epsrel=1e-13, limit=200)[0] for lo, hi in pairwise(ends))


@pytest.mark.parametrize("start", [0, 17])
@pytest.mark.parametrize(("lr", "h", "jumps", "tolerance"), CURVES.values(), ids=CURVES.keys())
def test_s_lats_is_the_integral_of_the_learning_rate_curve_at_every_step(lr, h, jumps, tolerance, start):
    D, T = 0.8, 60
    schedule = sp.SLATS(D, T, lr=lr, start=start)
    pieces = [integral(h, t / T, (t + 1) / T, jumps) if t >= start else 0.0 for t in range(T)]
    expected = [D * math.fsum(pieces[:t]) / math.fsum(pieces) for t in range(T + 1)]
    assert [schedule(t) for t in range(T + 1)] == pytest.approx(expected, abs=tolerance)


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


@pytest.mark.parametrize(
    ("lr", "tolerance"),
    [(None, 1e-11), (cosine, 1e-11), (WarmUp(), KINK)],
    ids=["closed form", "quadrature", "a user's curve"],
)
@pytest.mark.parametrize("start", [0, 25, 45])
@pytest.mark.parametrize("beta", [1 - 1e-12, 0.9, 0.1, 1e-5, 1e-10, 1e-40, 1e-300])
def test_pgh_is_the_integral_of_the_decaying_penalty(beta, start, lr, tolerance):
    D, T = 0.8, 50
    schedule = sp.PGH(D, T, beta, lr=lr, start=start)
    # the decay counts from the start: a factor that cancels, and β^(9/10) may be 10⁻²⁷⁰, beyond quad
    h = cosine if lr is None else lr

    def decayed(x: float) -> float:
        return h(x) * math.exp(math.log(beta) * (x - start / T))

    pieces = [quad(decayed, t / T, (t + 1) / T, epsabs=0, epsrel=1e-12, limit=200)[0] for t in range(start, T)]
    expected = [D * math.fsum(pieces[:n]) / math.fsum(pieces) for n in range(T - start + 1)]
    assert [schedule(t) for t in range(start, T + 1)] == pytest.approx(expected, abs=tolerance)


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
