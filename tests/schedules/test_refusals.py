"""What schedules refuse when they are built."""

from dataclasses import dataclass
from functools import partial

import pytest

import softprune as sp
from oracles import refused

SCHEDULES = [sp.SLATS, partial(sp.PGH, beta=0.1), sp.Sine, sp.Linear, sp.Log2]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_a_schedule_refuses(schedule):
    name = type(schedule(0.5, 10)).__name__
    for final in (-1.0, float("nan"), float("inf")):
        refused(partial(schedule, final, 10), f"`{name}(final=...)` must be >= 0 and finite. Got {final}.")
    for steps in (0, -3, 2.5):
        refused(partial(schedule, 0.5, steps), f"`{name}(steps=...)` must be a whole number >= 1. Got {steps}.")
    for start in (-1, 0.5):
        text = f"`{name}(start=...)` must be a whole number >= 0. Got {start}."
        refused(partial(schedule, 0.5, 10, start=start), text)
    for start in (10, 11):
        text = f"`{name}(start=...)` must be < steps = 10. Got {start}."
        refused(partial(schedule, 0.5, 10, start=start), text)
    assert schedule(0.0, 10, start=9)(10) == 0.0  # the edges are allowed


@pytest.mark.parametrize("beta", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_pgh_refuses_a_beta_outside_0_and_1_and_names_its_limits(beta):
    refused(lambda: sp.PGH(0.5, 10, beta=beta), f"`PGH(beta=...)` must be > 0 and < 1. Got {beta}.")
    refused(lambda: sp.PGH(0.5, 10, beta=beta), "write `Constant(0.5)`; for a constant penalty")
    refused(lambda: sp.PGH(0.5, 10, beta=beta), "write `SLATS(0.5, 10)`.")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: sp.Constant(-0.1), "`Constant(final=...)` must be >= 0 and finite. Got -0.1."),
        (lambda: sp.Constant(0.1, start=-1), "`Constant(start=...)` must be a whole number >= 0. Got -1."),
        (lambda: sp.LATS.cosine(-1.0, 2, 2), "`CosineLATS(final=...)` must be >= 0 and finite. Got -1.0."),
        (lambda: sp.LATS.cosine(1.0, 0, 2), "`CosineLATS(epochs=...)` must be a whole number >= 1. Got 0."),
        (lambda: sp.LATS.cosine(1.0, 2, 0), "`CosineLATS(batches=...)` must be a whole number >= 1. Got 0."),
        (lambda: sp.SLATS(1.0, 10, lr=lambda x: 0.5 - x), "must be a curve h(x) >= 0 on [0, 1]. Got h("),
        (lambda: sp.SLATS(1.0, 10, lr=lambda x: 0.0), "must be positive somewhere after the start of pruning."),
        (lambda: sp.PGH(1.0, 10, 0.1).stop(slope=0.0), "`PGH.stop(slope=...)` must be > 0. Got 0.0."),
    ],
)
def test_what_single_schedules_refuse(build, text):
    refused(build, text)


def test_a_curve_that_cannot_be_remembered():
    @dataclass
    class Curve:
        def __call__(self, x: float) -> float:
            return 1.0

    refused(lambda: sp.SLATS(1.0, 10, lr=Curve()), "`SLATS(lr=...)` must be hashable", TypeError)
    refused(lambda: sp.PGH(1.0, 10, 0.1, lr=Curve()), "`PGH(lr=...)` must be hashable", TypeError)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: sp.SLATS(0.5, 100, lr=0.1), "how the learning rate falls, not how large it is. Got 0.1."),
        (lambda: sp.PGH(0.5, 100, 0.1, 5), "`PGH(lr=...)` must be a curve h on [0, 1]"),
        (lambda: sp.PGH(0.5, 100, beta="0.1"), "`PGH(beta=...)` must be > 0 and < 1. Got 0.1."),
        (lambda: sp.curves.DecayedCosine(1.0), "`DecayedCosine(beta=...)` must be > 0 and < 1. Got 1.0."),
        (lambda: sp.curves.Decayed(sp.curves.Cosine(), 0.0), "`Decayed(beta=...)` must be > 0 and < 1. Got 0.0."),
        (
            lambda: sp.curves.Steps(at="ab"),
            "shares of training between 0 and 1, as (0.5, 0.75). Got 'ab'.",
        ),
    ],
)
def test_mistakes_that_a_name_invites(build, text):
    refused(build, text)


def test_the_cosine_curve_is_the_closed_form_whether_it_is_named_or_not():
    named, unnamed = sp.PGH(0.5, 100, 1e-50, lr=sp.curves.Cosine()), sp.PGH(0.5, 100, 1e-50)
    assert [named(t) for t in range(101)] == [unnamed(t) for t in range(101)]
    assert named.stop() == unnamed.stop()
