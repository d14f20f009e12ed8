"""Whoever saves the optimizer saves the pruning: a resumed run is the uninterrupted run, bit for bit."""

import pytest
import torch

import softprune as sp
from oracles import METHODS, OPTIMIZERS, STEPS, Run, assert_same, loss_of, network, saved

HALF = STEPS // 2


def interrupted(optimizer: str, method: str, **arguments) -> tuple[Run, Run]:
    """A run of all steps, and one that has half of them behind it."""
    whole, half = Run.of(optimizer, method, **arguments), Run.of(optimizer, method, **arguments)
    whole.train()
    half.train(range(HALF))
    return whole, half


def resumed(half: Run, optimizer: str, method: str, order: str = "model first", **arguments) -> Run:
    """A fresh model, optimizer and pruner, which get what was saved."""
    run = Run.of(optimizer, method, seed=1, **arguments)
    files = saved(half.model.state_dict()), saved(half.optimizer.state_dict())
    if order == "model first":
        run.model.load_state_dict(files[0])
    run.optimizer.load_state_dict(files[1])
    if order == "optimizer first":
        run.model.load_state_dict(files[0])
    run.scheduler.load_state_dict(half.scheduler.state_dict())
    return run


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", METHODS)
def test_resume_is_bit_exact(optimizer, method):
    whole, half = interrupted(optimizer, method)
    run = resumed(half, optimizer, method)
    assert_same(run, half)
    run.train(range(HALF, STEPS))
    assert_same(run, whole)


@pytest.mark.parametrize("method", METHODS)
def test_it_does_not_matter_what_is_loaded_first(method):
    whole, half = interrupted("adam", method)
    run = resumed(half, "adam", method, order="optimizer first")
    run.train(range(HALF, STEPS))
    assert_same(run, whole)


@pytest.mark.parametrize("optimizer", ["momentum", "adamw-fused"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_resume_in_low_precision(optimizer, dtype):
    whole, half = interrupted(optimizer, "str", dtype=dtype)
    run = resumed(half, optimizer, "str", dtype=dtype)
    run.train(range(HALF, STEPS))
    assert_same(run, whole)


@pytest.mark.parametrize("method", METHODS)
def test_the_pruner_has_a_state_of_its_own(method):
    """For those who save no optimizer: with plain SGD there is nothing else to save."""
    whole, half = interrupted("sgd", method)
    run = Run.of("sgd", method, seed=1)
    run.model.load_state_dict(saved(half.model.state_dict()))
    run.pruner.load_state_dict(saved(half.pruner.state_dict()))
    run.scheduler.load_state_dict(half.scheduler.state_dict())
    for group, other in zip(run.optimizer.param_groups, half.optimizer.param_groups, strict=True):
        group["lr"] = other["lr"]
    run.train(range(HALF, STEPS))
    assert_same(run, whole)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_saving_before_the_first_step(optimizer):
    """Adam takes a parameter with any state for initialised: nothing of ours may be in ``optimizer.state``."""
    run, twin = Run.of(optimizer), Run.of(optimizer)
    assert "softprune.theta" in run.optimizer.state_dict()["state"][0]
    assert not run.optimizer.state
    fresh = resumed(run, optimizer, "slats")
    assert not fresh.optimizer.state
    for r in (run, fresh, twin):
        r.train()
    assert_same(run, twin)
    assert_same(fresh, twin)


def test_two_pruners_of_one_optimizer_resume():
    def build(seed):
        model = network(seed=seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
        first = sp.Pruner({"0.weight": model[0].weight}, optimizer, threshold=sp.Linear(0.2, STEPS))
        second = sp.Pruner({"2.weight": model[2].weight}, optimizer, threshold=sp.LATS(0.5))
        return model, optimizer, first, second

    def train(model, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()

    model, optimizer, first, second = build(0)
    train(model, optimizer, range(HALF))
    other, fresh, *pruners = build(1)
    other.load_state_dict(saved(model.state_dict()))
    fresh.load_state_dict(saved(optimizer.state_dict()))
    train(model, optimizer, range(HALF, STEPS))
    train(other, fresh, range(HALF, STEPS))
    for a, b in zip((first, second), pruners, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
def test_a_resumed_report_counts_what_the_saved_one_counted(order):
    _, half = interrupted("momentum", "slats")
    run = resumed(half, "momentum", "slats", order)
    assert sp.summarize(run.pruner).zeros == sp.summarize(half.pruner).zeros > 0


def test_pruning_starts_from_a_dense_state_that_is_loaded_first():
    dense = network()
    optimizer = torch.optim.Adam(dense.parameters())
    loss_of(dense, 0).backward()
    optimizer.step()
    model = network(seed=1)
    fresh = torch.optim.Adam(model.parameters())
    model.load_state_dict(dense.state_dict())
    fresh.load_state_dict(saved(optimizer.state_dict()))
    pruner = sp.Pruner(sp.select(model), fresh, threshold=sp.SLATS(0.2, STEPS))
    assert all(torch.equal(theta, dict(dense.named_parameters())[name]) for name, theta in pruner.theta.items())
