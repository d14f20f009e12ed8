"""Shapes by hand are the paper's."""

import math

import pytest

import softprune as sp


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
