"""Thresholds that follow a schedule: before its start, at its end, past it."""

import pytest
import torch

import softprune as sp
from oracles import STEPS, Run, refused


def test_before_its_start_nothing_is_pruned():
    run, dense = Run.of("adam", "delayed"), Run.of("adam", lambda params: sp.Constant(0.0))
    run.train(range(3))
    dense.train(range(3))
    assert set(run.pruner.threshold.values()) == {0.0}
    for p, q in zip(run.model.parameters(), dense.model.parameters(), strict=True):
        assert torch.equal(p, q)
    run.train(range(3, 4))
    assert all(d > 0 for d in run.pruner.threshold.values())


@pytest.mark.parametrize("method", ["slats", "short"])
def test_past_its_steps_the_threshold_stays_and_the_weights_go_on(method):
    run = Run.of("momentum", method)
    run.train()
    assert set(run.pruner.threshold.values()) == {0.2}
    before = run.model[0].weight.clone()
    run.train(range(STEPS, STEPS + 3))
    assert run.pruner.step == STEPS + 3
    assert set(run.pruner.threshold.values()) == {0.2}
    assert set(run.pruner.penalty.values()) == {0.0}
    assert not torch.equal(run.model[0].weight, before)


def test_the_penalty_of_a_step_is_its_growth_over_its_learning_rate():
    run = Run.of(lambda groups: torch.optim.SGD(groups, lr=0.02), lambda params: sp.Linear(0.8, STEPS))
    run.train(range(2))
    assert run.pruner.penalty["2.weight"] == pytest.approx(0.1 / (0.02 / 1.1))


def test_what_lats_refuses():
    refused(lambda: sp.LATS(-1.0), "`LATS(penalty=...)` must be >= 0 and finite. Got -1.0.")
    refused(lambda: sp.LATS(1.0, start=-1), "`LATS(start=...)` must be a whole number >= 0. Got -1.")
