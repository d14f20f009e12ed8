"""Learning-rate curves: closed forms against scipy's quadrature, and what numerical integration promises."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from softprune import curves
from softprune.errors import ArgumentError


@pytest.mark.parametrize(
    "curve",
    [
        curves.Cosine(),
        curves.Polynomial(0.0),
        curves.Polynomial(0.9),
        curves.Polynomial(2.0),
        curves.DecayedCosine(beta=1e-3),
        curves.DecayedCosine(beta=0.1, origin=0.3),
        curves.Steps(at=(0.25, 0.3, 0.9), factor=0.2),
        curves.Steps(at=[0.4], factor=3.0),
    ],
    ids=str,
)
def test_closed_forms_are_integrals(curve):
    origin = getattr(curve, "origin", 0.0)
    for x in (0.301, 0.5, 0.95, 1.0):
        ends = sorted({origin, x, *(a for a in getattr(curve, "at", ()) if origin < a < x)})
        expected = math.fsum(quad(curve, a, b, epsabs=1e-14, epsrel=1e-13)[0] for a, b in pairwise(ends))
        assert curves.integral(curve, x, origin) == pytest.approx(expected, abs=1e-13)


def test_steps_are_those_of_multi_step_lr():
    """PyTorch steps down at the milestone itself."""
    curve = curves.Steps(at=(30 / 90, 60 / 90), factor=0.1)
    assert [curve(epoch / 90) for epoch in (0, 29, 30, 59, 60, 89)] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    assert curve.integral(1.0) == pytest.approx(1.11 / 3, rel=1e-15)
    assert repr(curves.Steps([0.5])) == "Steps(at=(0.5,), factor=0.1)"


@pytest.mark.parametrize("at", [(), (0.0, 0.5), (0.5, 1.0), (0.6, 0.4), (0.5, 0.5), 0.5])
def test_steps_must_come_in_order_and_inside_training(at):
    with pytest.raises(ArgumentError, match=r"^`Steps\(at=...\)` must be increasing shares of training between 0"):
        curves.Steps(at)


def test_numbers_out_of_range_are_refused():
    with pytest.raises(ArgumentError, match=r"^`Steps\(factor=...\)` must be > 0 and finite\. Got 0\.$"):
        curves.Steps((0.5,), factor=0)
    with pytest.raises(ArgumentError, match=r"^`Polynomial\(power=...\)` must be >= 0\. Got -1\.$"):
        curves.Polynomial(-1)


@pytest.mark.parametrize("origin", [0.0, 0.37])
def test_a_jump_costs_at_most_one_ten_thousandth_of_its_height(origin):
    worst = 0.0
    for at in np.random.default_rng(0).uniform(origin, 1, 50):
        curve = curves.Steps((float(at),), factor=0.01)
        error = curves.integral(lambda x, curve=curve: curve(x), 1.0, origin) - curves.integral(curve, 1.0, origin)
        worst = max(worst, abs(error))
    assert 1e-5 < worst < 1e-4


def test_between_the_panels_the_integral_never_falls_even_at_a_jump():
    def curve(x: float) -> float:
        return 1.0 if x < 0.50003 else 0.0

    near = [curves.integral(curve, 0.4998 + i * 1e-6) for i in range(500)]
    assert all(later >= earlier for earlier, later in pairwise(near))


def test_a_curve_in_single_precision_is_integrated_as_well_as_it_is_known():
    assert curves.integral(lambda x: float(np.float32(1 + math.sin(40 * x))), 1.0) == pytest.approx(
        1 + (1 - math.cos(40)) / 40, abs=1e-8
    )


def test_a_curve_is_evaluated_once_for_a_whole_run():
    seen = []

    def curve(x: float) -> float:
        seen.append(x)
        return 1.0

    for t in range(100):
        curves.integral(curve, t / 100)
    assert len(seen) == len(set(seen)) == 8193
