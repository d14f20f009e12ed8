"""How the odds of being zero grow: the law behind TargetSparsity, by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softprune.thresholds import odds as law

positive = st.floats(1e-6, 1e3)


@given(d=positive, q=positive, old=positive, lacking=positive)
def test_at_the_end_only_the_quantile_counts(d, q, old, lacking):
    assert law.final(d, 1.0, lacking, q, old) == pytest.approx(q)


@given(d=positive, x=st.floats(law.EARLY, 1.0))
def test_what_is_on_its_way_is_left_alone(d, x):
    assert law.final(d, x, lacking=1.0, q=d, old=d / x) == pytest.approx(d / x)


@given(d=positive, q=positive, x=st.floats(1e-4, 0.99))
def test_no_forecast_leads_far_from_what_the_quantile_tells(d, q, x):
    """Whatever the odds are said to lack, D stays within a factor of 4 to either side."""
    low, high = (law.final(d, x, lacking, q, old=q) for lacking in (1e-12, 1e12))
    assert low <= high <= 4.0**2 * low * (1 + 1e-9)


@given(d=positive, q=positive, old=positive, lacking=positive, x=st.floats(1e-4, 1.0), unit=st.floats(1e-3, 1e3))
def test_weights_may_be_measured_in_any_unit(d, q, old, lacking, x, unit):
    assert law.final(unit * d, x, lacking, unit * q, unit * old) == pytest.approx(
        unit * law.final(d, x, lacking, q, old)
    )


@given(d=positive, q=positive, old=positive, lacking=positive, x=st.floats(1e-4, 1.0), more=st.floats(1.0, 10.0))
def test_whoever_lacks_more_zeros_gets_a_larger_threshold(d, q, old, lacking, x, more):
    assert law.final(d, x, more * lacking, q, old) >= law.final(d, x, lacking, q, old) * (1 - 1e-9)


@given(d=positive, q=positive, lacking=st.floats(0.5, 2.0))
def test_a_guess_gives_way_to_the_law(d, q, lacking):
    odds = law.odds(0.9)
    assert law.odds_today(odds, law.EARLY / 2, 5.0) == odds
    assert law.odds_today(odds, law.EARLY, 5.0) == odds / 5
    assert law.final(d, 1e-12, lacking, q, old=law.GUESS * q) == pytest.approx(law.GUESS * q)
    x = law.EARLY * (1 - 1e-12)
    fitting = d / x / law.GUESS  # a quantile that agrees with where the threshold is going
    assert law.final(d, x, lacking, fitting, old=d / x * lacking) == pytest.approx(d / x * lacking)


@given(share=st.floats(0.001, 0.999))
def test_odds_and_shares(share):
    assert law.share(law.odds(share)) == pytest.approx(share)


def test_growth_stops_when_learning_does():
    assert law.growth(1.0, law.annealing(0.0, 0.0, 0.1, 0.0)) == 1.0
    assert law.growth(0.5, law.annealing(0.05, 0.0, 0.1, 0.3)) > law.growth(0.7, law.annealing(0.02, 0.0, 0.1, 0.3)) > 1
    assert 1 < law.growth(0.0, 1.4) < 1e6


@given(lr=st.floats(1e-3, 0.1), last=st.floats(0.0, 1e-3), cooler=st.floats(0.0, 1.0), more=st.floats(0.0, 1.0))
def test_the_odds_gain_by_annealing_as_far_as_there_is_time(lr, last, cooler, more):
    gain = law.annealing(lr, last, 0.1, cooler)
    assert 1.0 <= gain <= law.annealing(lr, last, 0.1, cooler + more) <= law.annealing(0.1, 0.0, 0.1, 1.0)
    assert law.annealing(lr, lr, 0.1, cooler) == 1.0  # a constant learning rate does not anneal
    assert law.annealing(lr, last, 0.1, 0.0) == law.annealing(lr, last, 0.1, -3.0) == 1.0  # no time, no gain


@given(lr=st.floats(1e-6, 0.1))
def test_the_odds_gain_in_proportion_to_the_learning_rate_that_falls(lr):
    whole = law.annealing(0.1, 0.0, 0.1, 1.0) - 1
    assert 0.2 < whole < 0.6  # measured: 0.4
    assert law.annealing(lr, 0.0, 0.1, 1.0) - 1 == pytest.approx(whole * lr / 0.1)
