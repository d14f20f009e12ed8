"""The law behind TargetSparsity, by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softprune.attach.future import Future
from softprune.thresholds import odds as law

positive = st.floats(1e-6, 1e3)


@given(d=positive, q=positive, old=positive, lacking=positive)
def test_at_the_end_only_the_quantile_counts(d, q, old, lacking):
    assert law.final(d, 1.0, lacking, q, old) == pytest.approx(q)


@given(d=positive, x=st.floats(law.EARLY, 1.0))
def test_what_is_on_its_way_is_left_alone(d, x):
    assert law.final(d, x, lacking=1.0, q=d, old=d / x) == pytest.approx(d / x)


@given(d=positive, q=positive, lacking=st.floats(1e-12, 1e12), x=st.floats(1e-4, 0.99))
def test_no_solution_is_far_from_what_the_quantile_tells(d, q, lacking, x):
    anchor = q / x if x >= law.EARLY else law.GUESS * q
    assert anchor / law.TRUST * 0.99 <= law.final(d, x, lacking, q, old=anchor) <= anchor * law.TRUST * 1.01


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


def test_the_odds_gain_by_annealing_as_far_as_there_is_time():
    assert law.annealing(0.1, 0.1, 0.1, 0.3) == 1.0  # a constant learning rate does not anneal
    assert law.annealing(0.1, 0.0, 0.1, 0.3) == pytest.approx(1 + law.ANNEALING)
    assert law.annealing(0.05, 0.0, 0.1, 0.3) == pytest.approx(1 + law.ANNEALING / 2)
    assert law.annealing(0.1, 0.0, 0.1, law.COOLING / 2) == pytest.approx(1 + law.ANNEALING / 2)
    assert law.annealing(0.1, 0.0, 0.1, 0.0) == law.annealing(0.01, 0.0, 0.1, -3.0) == 1.0


def test_a_future_adds_up():
    future = Future([4.0, 2.0, 1.0, 1.0])
    assert [future.to_come(step) for step in range(5)] == [8.0, 4.0, 2.0, 1.0, 0.0]
    assert future.cooler(1, 4.0) == (2 * (1 - 2 / 4) + 2 * (1 - 1 / 4)) / 8
    assert future.cooler(1, 0.0) == 0.0
    assert (future.top, future.last) == (4.0, 1.0)
    assert future.foretold(0, 1.0)
    assert not future.foretold(0, 0.9)
