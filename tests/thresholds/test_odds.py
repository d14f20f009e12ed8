"""How the odds of being zero grow: the rule behind TargetSparsity, by itself."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softprune.thresholds import odds
from softprune.thresholds.odds import FIT, Standing

positive = st.floats(1e-6, 1e3)


def predicted(x: float, annealed: float = 1.0) -> float:
    """The odds at the end of weights whose odds are 1 now, if the threshold goes on as before."""
    return odds.odds(odds.forecast(Standing(d=x, final=1.0, odds=1.0, wanted=1.0), x, annealed))


def solved(d: float, x: float, lacking: float, q: float, old: float, fit: odds.Fit = FIT) -> float:
    """D where the odds must become ``lacking`` times what is predicted, and q is the quantile that is asked for."""
    cell = Standing(d, old, odds=1.0, wanted=lacking * predicted(x))
    (found,) = odds.solve([cell], x, 1.0, lambda shares: [q], fit)
    return found


@given(d=positive, q=positive, old=positive, lacking=positive)
def test_at_the_end_only_the_quantile_counts(d, q, old, lacking):
    assert solved(d, 1.0, lacking, q, old) == pytest.approx(q)


@given(d=positive, x=st.floats(FIT.early, 1.0))
def test_what_is_on_its_way_is_left_alone(d, x):
    assert solved(d, x, lacking=1.0, q=d, old=d / x) == pytest.approx(d / x)


@given(d=positive, q=positive, x=st.floats(1e-4, 0.99))
def test_no_prediction_leads_far_from_what_the_quantile_tells(d, q, x):
    """Whatever the odds are said to lack, D stays within a factor of 4 to either side."""
    low, high = (solved(d, x, lacking, q, old=q) for lacking in (1e-12, 1e12))
    assert low <= high <= 4.0**2 * low * (1 + 1e-9)


@given(d=positive, q=positive, x=st.floats(FIT.early, 0.9), lacking=st.floats(1e3, 1e9))
def test_with_less_trust_the_quantile_binds_more(d, q, x, lacking):
    bound = replace(FIT, trust=1.0)
    assert solved(d, x, lacking, q, old=q / x, fit=bound) == pytest.approx(q / x)


@given(d=positive, q=positive, old=positive, lacking=positive, x=st.floats(1e-4, 1.0), unit=st.floats(1e-3, 1e3))
def test_weights_may_be_measured_in_any_unit(d, q, old, lacking, x, unit):
    assert solved(unit * d, x, lacking, unit * q, unit * old) == pytest.approx(unit * solved(d, x, lacking, q, old))


@given(d=positive, q=positive, old=positive, lacking=positive, x=st.floats(1e-4, 1.0), more=st.floats(1.0, 10.0))
def test_whoever_lacks_more_zeros_gets_a_larger_threshold(d, q, old, lacking, x, more):
    assert solved(d, x, more * lacking, q, old) >= solved(d, x, lacking, q, old) * (1 - 1e-9)


def test_the_quantile_is_asked_for_at_the_target_early_and_at_what_leads_there_later():
    asked = []
    cell = Standing(d=0.1, final=1.0, odds=1.0, wanted=odds.odds(0.9))
    for x in (0.1, 0.5, 1.0):
        odds.solve([cell], x, 1.0, lambda shares: asked.extend(shares) or [0.1])
    assert asked[0] == asked[2] == pytest.approx(0.9)
    assert 0.7 < asked[1] < 0.9


@given(d=positive, q=positive, lacking=st.floats(0.5, 2.0))
def test_a_guess_gives_way_to_the_rule(d, q, lacking):
    guess = solved(0.0, 0.0, lacking, q, old=0.0)
    assert guess == pytest.approx(FIT.guess * q)
    assert solved(d, 1e-12, lacking, q, old=guess) == pytest.approx(guess)
    x = FIT.early * (1 - 1e-12)
    fitting = d / x / FIT.guess  # a quantile that agrees with where the threshold is going
    assert solved(d, x, lacking, fitting, old=d / x * lacking) == pytest.approx(d / x * lacking)


@given(share=st.floats(0.001, 0.999))
def test_odds_and_shares(share):
    assert odds.share(odds.odds(share)) == pytest.approx(share)


def test_growth_stops_when_learning_does():
    assert predicted(1.0, odds.annealing(0.0, 0.0, 0.1, 0.0)) == pytest.approx(1.0)
    sooner = predicted(0.5, odds.annealing(0.05, 0.0, 0.1, 0.3))
    later = predicted(0.7, odds.annealing(0.02, 0.0, 0.1, 0.3))
    assert sooner > later > 1


@given(lr=st.floats(1e-3, 0.1), last=st.floats(0.0, 1e-3), cooler=st.floats(0.0, 1.0), more=st.floats(0.0, 1.0))
def test_the_odds_gain_by_annealing_as_far_as_there_is_time(lr, last, cooler, more):
    gain = odds.annealing(lr, last, 0.1, cooler)
    assert 1.0 <= gain <= odds.annealing(lr, last, 0.1, cooler + more) <= odds.annealing(0.1, 0.0, 0.1, 1.0)
    assert odds.annealing(lr, lr, 0.1, cooler) == 1.0  # a constant learning rate does not anneal
    assert odds.annealing(lr, last, 0.1, 0.0) == odds.annealing(lr, last, 0.1, -3.0) == 1.0  # no time, no gain


@given(lr=st.floats(1e-6, 0.1))
def test_the_odds_gain_in_proportion_to_the_learning_rate_that_falls(lr):
    whole = odds.annealing(0.1, 0.0, 0.1, 1.0) - 1
    assert 0.2 < whole < 0.6  # measured: 0.4
    assert odds.annealing(lr, 0.0, 0.1, 1.0) - 1 == pytest.approx(whole * lr / 0.1)
