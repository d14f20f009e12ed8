"""Turns: ratios within a round do not depend on the minute, and noise is told."""

import time

import pytest
import torch
from torch import nn

from softprune.bench.clock import Spread, Timings, _counted, interleave
from softprune.errors import ArgumentError


class Machine:
    """A clock that calls advance, by seconds that differ from round to round of two candidates."""

    def __init__(self, *factors: float) -> None:
        self.now, self.calls, self.factors = 0.0, [], factors

    def candidate(self, name: str, seconds: float):
        def call() -> None:
            self.calls.append(name)
            self.now += seconds * self.factors[(len(self.calls) - 1) // 4 % len(self.factors)]

        return call


def test_a_machine_that_slows_down_changes_times_and_not_ratios():
    machine = Machine(1.0, 3.0, 9.0)
    candidates = {"slow": machine.candidate("slow", 4.0), "fast": machine.candidate("fast", 1.0)}
    times = interleave(candidates, rounds=9, turn=0, clock=lambda: machine.now)
    assert set(times.seconds["slow"]) <= {4.0, 12.0, 36.0}
    assert times.faster("fast", than="slow") == Spread(4.0, 4.0, 4.0)
    assert times.faster("slow", than="fast") == Spread(0.25, 0.25, 0.25)


def test_every_round_begins_with_another_candidate_and_a_call_that_is_not_counted():
    machine = Machine(1.0)
    names = ["a", "b", "c"]
    interleave({n: machine.candidate(n, 1.0) for n in names}, rounds=3, turn=0, clock=lambda: machine.now)
    assert machine.calls[12:] == list("aabbcc" + "bbccaa" + "ccaabb")


def test_a_turn_is_filled_with_calls():
    calls = []
    seconds = interleave({"nap": lambda: calls.append(time.sleep(0.001))}, rounds=2, turn=0.02).seconds["nap"]
    assert 12 <= len(calls) <= 4 + 2 * 22
    assert min(seconds) >= 0.001


def test_the_same_network_is_as_fast_as_itself():
    model, x = nn.Linear(256, 256), torch.randn(64, 256)
    candidates = {"one": lambda: model(x), "other": lambda: model(x)}
    times = interleave(candidates, rounds=15, turn=0.005, clock=time.process_time)
    assert 0.5 < times.faster("one", than="other").median < 2
    assert times.typical("one") > 0


def test_a_quiet_machine_is_not_mentioned_and_a_noisy_one_is():
    calm = {"a": [1.0, 1.0, 1.0], "b": [2.0, 2.0, 2.0]}
    assert Timings(calm).noise() is None
    assert Timings(calm, others=0.05).noise() is None
    assert (
        Timings(calm, others=0.8).noise() == "The machine was noisy: other processes used 0.8 of its cores meanwhile."
    )
    wild = Timings({"a": [1.0, 1.0, 1.0], "b": [1.0, 2.0, 3.0]}, others=0.0)
    assert wild.noise() == "The machine was noisy: ratios of b vary by more than 10% from round to round."


def test_busy_rounds_do_not_count_if_enough_quiet_ones_are_left():
    times = Timings({"a": [1.0, 2.0, 3.0, 4.0, 5.0]})
    assert _counted(times, [0.0, 0.9, 0.05, 0.9, 0.01]) == Timings({"a": [1.0, 3.0, 5.0]}, pytest.approx(0.02))
    assert _counted(times, [0.0, 0.9, 0.9, 0.9, 0.0]) == Timings({"a": times.seconds["a"]}, pytest.approx(0.54))
    assert _counted(times, [None] * 5) == times


def test_one_round_has_no_spread():
    assert Spread.of([2.0]) == Spread(2.0, 2.0, 2.0)


def test_what_is_refused():
    with pytest.raises(ArgumentError, match=r"`interleave\(candidates\)` must hold at least one"):
        interleave({})
    with pytest.raises(ArgumentError, match=r"`interleave\(rounds=...\)` must be a whole number >= 1. Got 0"):
        interleave({"a": lambda: None}, rounds=0)
    with pytest.raises(ArgumentError, match=r"`interleave\(turn=...\)` must be >= 0. Got -1"):
        interleave({"a": lambda: None}, turn=-1)
