"""Pruning in the step hooks is the re-parametrized training run of the textbook, under every optimizer."""

import pytest
import torch

import softprune as sp
from oracles import METHODS, OPTIMIZERS, Oracle, Run, assert_follows, network, stop
from small_networks import MODELS

SCHEDULED = ["slats", "delayed", "short", "constant", "lats"]


TRAINED = ["str", "str-exp", "str-shared", "gpo"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", SCHEDULED)
def test_bit_for_bit_the_straight_through_run(optimizer, method):
    run, oracle = Run.of(optimizer, method), Oracle(optimizer, method)
    assert run.train() == oracle.train()
    assert_follows(run, oracle)
    assert 0.05 < run.pruner.sparsity() < 1.0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", TRAINED)
def test_the_autograd_run_of_trained_thresholds(optimizer, method):
    run, oracle = Run.of(optimizer, method), Oracle(optimizer, method)
    start = run.pruner.rule.trained[0].detach().clone()
    assert run.train() == pytest.approx(oracle.train(), rel=1e-9)
    assert_follows(run, oracle, rtol=1e-8, atol=1e-10)
    assert not torch.equal(run.pruner.rule.trained[0], start)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", ["slats", "str"])
def test_every_kind_of_weight(kind, method):
    run, oracle = Run.of("adam", method, kind), Oracle("adam", method, kind)
    assert run.train() == pytest.approx(oracle.train(), rel=1e-10)
    assert_follows(run, oracle, rtol=1e-8, atol=1e-10)
    assert all((p == 0).any() for p in run.pruner.params.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("optimizer", ["momentum", "adamw", "adamw-fused"])
def test_low_precision_parameters(dtype, optimizer):
    run, oracle = Run.of(optimizer, "slats", dtype=dtype), Oracle(optimizer, "slats", dtype=dtype)
    assert run.train() == oracle.train()
    assert_follows(run, oracle)
    assert {p.dtype for p in run.pruner.theta.values()} == {dtype}


def test_low_precision_parameters_keep_their_trained_threshold_in_single_precision():
    run = Run.of("momentum", "str", dtype=torch.bfloat16)
    before = run.pruner.threshold
    run.train(range(3))
    assert run.pruner.rule.trained[0].dtype == torch.float32
    assert all(run.pruner.threshold[name] != d for name, d in before.items())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_threshold_of_zero_changes_nothing(optimizer):
    """Not even in the last bit, not even in the optimizer's state."""
    run = Run.of(optimizer, lambda params: sp.Constant(0.0))
    dense = Run.of(optimizer, lambda params: sp.Constant(0.0))
    stop(dense.pruner)
    assert run.train() == dense.train()
    for p, q in zip(run.model.parameters(), dense.model.parameters(), strict=True):
        assert torch.equal(p, q)
    for p, q in zip(run.optimizer.state.values(), dense.optimizer.state.values(), strict=True):
        assert p.keys() == q.keys()


def test_two_pruners_of_one_optimizer_are_one_pruner_of_both():
    """Each holds some of the parameters, so that methods may be mixed layer by layer."""
    whole, split = Run.of("adam"), Run.of("adam")
    stop(split.pruner)
    split.model.load_state_dict(network().state_dict())
    pruners = [
        sp.Pruner({n: p}, split.optimizer, threshold=METHODS["slats"]({})) for n, p in sp.select(split.model).items()
    ]
    assert split.train() == whole.train()
    for pruner in pruners:
        (name,) = pruner.params
        assert torch.equal(pruner.theta[name], whole.pruner.theta[name])


class Rebinding(torch.optim.Optimizer):
    """Gives parameters new memory at every step, as some SAMs do."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data - group["lr"] * p.grad


def test_an_optimizer_may_give_parameters_other_memory():
    run, other = Run.of(Rebinding, METHODS["slats"]), Run.of(lambda groups: torch.optim.SGD(groups, lr=0.1))
    for one in (run, other):
        one.train()
    for (_, a), (_, b) in zip(run.numbers(), other.numbers(), strict=True):
        torch.testing.assert_close(a, b)
    assert run.pruner.sparsity() > 0
