"""Copies of model, optimizer and pruner: by copy, by pickle, and averages of the weights."""

import copy
import pickle

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import softprune as sp
from oracles import METHODS, STEPS, Run, assert_same, loss_of, stop

HALF = STEPS // 2


@pytest.mark.parametrize("method", ["slats", "lats", "str", "gpo"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw-fused"])
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))], ids=["copy", "pickle"])
def test_a_copy_goes_on_alone(method, optimizer, clone):
    """Model, optimizer and pruner copied together train identically, and leave the original alone."""
    run = Run.of(optimizer, METHODS[method])
    run.train(range(HALF))
    run.scheduler = None  # a LambdaLR holds a lambda, which pickle refuses
    twin = clone(run)
    assert_same(twin, run)
    frozen = {name: value.clone() for name, value in run.numbers()}
    twin.train(range(HALF, STEPS))
    assert all(torch.equal(value, frozen[name]) for name, value in run.numbers())
    run.train(range(HALF, STEPS))
    assert_same(twin, run)
    twin.pruner.detach()
    run.train(range(STEPS, STEPS + 1))
    assert run.pruner.step == STEPS + 1


def test_a_copy_of_the_optimizer_first_or_last():
    run = Run.of("adam")
    run.train(range(2))
    pruner, optimizer, model = copy.deepcopy((run.pruner, run.optimizer, run.model))
    loss_of(model, 2).backward()
    optimizer.step()
    assert (pruner.step, run.pruner.step) == (3, 2)
    assert pruner.params["0.weight"] is model[0].weight


def test_a_detached_pruner_can_be_copied():
    run = Run.of("adam")
    run.train(range(2))
    stop(run.pruner)
    twin = copy.deepcopy(run.pruner)
    assert (twin.step, twin.theta, twin.sparsity()) == (2, {}, run.pruner.sparsity())


def test_a_copy_of_the_model_is_an_ordinary_model():
    run = Run.of("adam")
    run.train(range(HALF))
    twin = copy.deepcopy(run.model)
    stop(sp.Pruner(sp.select(twin), torch.optim.SGD(twin.parameters(), lr=0.1), threshold=sp.Constant(0.0)))
    run.train(range(HALF, STEPS))
    reference = Run.of("adam")
    reference.train()
    assert_same(run, reference)
    assert not torch.equal(twin[0].weight, run.model[0].weight)


def test_an_average_of_the_weights_is_an_average_of_the_sparse_ones():
    run, plain = Run.of("momentum"), Run.of("momentum")
    average = AveragedModel(run.model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    seen = []
    for step in range(STEPS):
        run.train(range(step, step + 1))
        average.update_parameters(run.model)
        seen.append(run.model[0].weight.detach().clone())
    by_hand = seen[0] * 0.5 ** (STEPS - 1) + sum(w * 0.5 ** (STEPS - t) for t, w in enumerate(seen) if t > 0)
    torch.testing.assert_close(average.module[0].weight.data, by_hand)
    plain.train()
    assert_same(run, plain)
