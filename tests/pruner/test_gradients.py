"""Gradients that are accumulated, clipped, cleared, missing or bad do what they would do without a pruner."""

import pytest
import torch
from torch import nn

from oracles import (
    STEPS,
    Oracle,
    Run,
    assert_follows,
    assert_same,
    loss_of,
    shrink,
)


@pytest.mark.parametrize("method", ["slats", "str"])
def test_accumulated_gradients_are_the_gradient_of_the_sum(method):
    """Two backward passes before each step; s has one gradient, made at the step."""

    def twice(forward, optimizer, after_step=lambda step: None):
        for step in range(STEPS):
            for half in (2 * step, 2 * step + 1):
                (loss_of(forward, half) / 2).backward()
            optimizer.step()
            after_step(step)
            optimizer.zero_grad()

    run, oracle = Run.of("momentum", method), Oracle("momentum", method)
    twice(run.model, run.optimizer)
    twice(oracle.forward, oracle.optimizer, oracle.advance)
    assert_follows(run, oracle, rtol=1e-12, atol=1e-14)


def test_clipping_sees_the_gradient_of_the_weights():
    def clipped(forward, model, optimizer, after_step=lambda step: None):
        for step in range(STEPS):
            loss_of(forward, step).backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            assert norm > 0.1
            optimizer.step()
            after_step(step)
            optimizer.zero_grad()

    run, oracle = Run.of("adam"), Oracle("adam", "slats")
    clipped(run.model, run.model, run.optimizer)
    clipped(oracle.forward, oracle.model, oracle.optimizer, oracle.advance)
    assert_follows(run, oracle)


@pytest.mark.parametrize("method", ["slats", "lats", "str", "gpo"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw-fused"])
def test_without_gradient_theta_stands_still_and_the_threshold_does_not(method, optimizer):
    run = Run.of(optimizer, method)
    frozen, *others = run.pruner.params.values()
    theta = run.pruner.theta["0.weight"].clone()
    for step in range(STEPS):
        loss_of(run.model, step).backward()
        frozen.grad = None
        run.optimizer.step()
        run.optimizer.zero_grad()
    d = run.pruner.threshold["0.weight"]
    assert torch.equal(run.pruner.theta["0.weight"], theta)
    assert run.pruner.step == STEPS
    if method != "gpo":
        torch.testing.assert_close(frozen.data, shrink(theta, d), rtol=1e-12, atol=1e-12)
    if method in ("slats", "lats"):
        assert (frozen == 0).sum() > (theta == 0).sum()
    assert all(not torch.equal(p, frozen) for p in others)


@pytest.mark.parametrize("method", ["slats", "str"])
def test_a_step_with_no_gradients_at_all(method):
    run = Run.of("adam", method)
    before = {name: theta.clone() for name, theta in run.pruner.theta.items()}
    run.optimizer.step()
    assert run.pruner.step == 1
    assert all(torch.equal(theta, before[name]) for name, theta in run.pruner.theta.items())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_gradient_goes_to_the_optimizer_untouched(bad):
    """One entry is bad; every other number is the number of the run without it."""
    good, run = Run.of("momentum"), Run.of("momentum")
    for r, poison in ((good, None), (run, bad)):
        loss_of(r.model, 0).backward()
        if poison is not None:
            r.model[0].weight.grad[2, 3] = poison
        r.optimizer.step()
    w, expected = run.model[0].weight.detach(), good.model[0].weight.detach()
    assert not w[2, 3].isfinite()
    w[2, 3] = expected[2, 3]
    assert torch.equal(w, expected)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("whose", ["model", "optimizer"])
@pytest.mark.parametrize("method", ["slats", "str"])
def test_every_way_to_clear_gradients(set_to_none, whose, method):
    run, twin = Run.of("momentum", method), Run.of("momentum", method)
    for step in range(STEPS):
        loss_of(run.model, step).backward()
        run.optimizer.step()
        run.scheduler.step()
        getattr(run, whose).zero_grad(set_to_none=set_to_none)
    twin.train()
    assert_same(run, twin)


def test_a_backward_pass_through_weights_that_a_step_changed_is_refused():
    """As without a pruner: autograd notices that the weights of its forward pass are gone."""
    run = Run.of("sgd")
    run.train(range(2))
    loss = loss_of(run.model, 2)
    loss.backward(retain_graph=True)
    run.optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_backward_pass_is_refused_too_where_d_alone_changed_the_weights():
    run = Run.of("sgd")
    run.train(range(2))
    loss = loss_of(run.model, 2)
    run.optimizer.zero_grad()
    run.optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
