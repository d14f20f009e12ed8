"""The end of pruning: what is said where it ends before it should."""

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import Run, network, refused


class SAM(torch.optim.Optimizer):
    """As everybody copies it: two calls around an inner optimizer, whose step is the one that counts."""

    def __init__(self, params, **options):
        super().__init__(params, {"rho": 0.05, **options})
        self.base_optimizer = torch.optim.SGD(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    def second_step(self):
        self.base_optimizer.step()


def test_a_pruner_whose_optimizer_never_steps_says_so():
    layer = nn.Linear(10, 10)
    idle, busy = (torch.optim.SGD(layer.parameters(), lr=0.1) for _ in range(2))
    pruner = sp.Pruner(sp.select(layer), idle, threshold=sp.TargetSparsity(0.9, steps=5))
    for _ in range(5):
        layer(torch.randn(8, 10)).square().mean().backward()
        busy.step()
    assert "No step of the optimizer was counted yet." in str(sp.summarize(pruner))
    with pytest.warns(UserWarning, match="Nothing was pruned: no step of this SGD was counted"):
        pruner.detach()


def test_an_optimizer_that_steps_another_one_is_refused_by_the_name_of_that_one():
    model = network()
    sam = SAM(model.parameters(), lr=0.1)
    text = "Give the inner one: `Pruner(params, optimizer.base_optimizer, ...)`."
    refused(lambda: sp.Pruner(sp.select(model), sam, threshold=sp.Constant(0.1)), text, TypeError)
    pruner = sp.Pruner(sp.select(model), sam.base_optimizer, threshold=sp.Constant(0.1))
    model(torch.ones(1, 6).double()).sum().backward()
    sam.second_step()
    assert pruner.step == 1


@pytest.mark.parametrize(
    ("threshold", "steps", "text"),
    [
        (sp.SLATS(0.1, 300), 10, "ends after 10 steps at the threshold"),
        (sp.Sine(0.1, 20, start=5), 3, "ends after 3 steps at the threshold 0, before Sine"),
        (sp.TargetSparsity(0.5, 100), 10, "ends after 10 of 100 steps, before its target 0.5"),
        (sp.TargetSparsity(0.5, 100, start=20), 10, "ends after 10 of 100 steps, before its target 0.5"),
    ],
)
def test_a_threshold_that_is_left_early_says_so(threshold, steps, text):
    run = Run.of("sgd", lambda params: threshold)
    run.train(range(steps))
    with pytest.warns(UserWarning, match=text):
        run.pruner.detach()


def test_early_pruning_is_no_mistake():
    """PGH's threshold is nearly final long before training is over, and may be left there."""
    schedule = sp.PGH(0.1, 100, beta=1e-10)
    run = Run.of("sgd", lambda params: schedule)
    run.train(range(round(100 * schedule.stop())))
    run.pruner.detach()  # warnings are errors here


def test_pruning_at_initialization_needs_no_step():
    run = Run.of("sgd", lambda params: sp.Constant(0.1))
    run.pruner.detach()
    assert run.pruner.sparsity() > 0


def test_a_target_is_kept_though_training_went_on():
    run = Run.of("sgd", lambda params: sp.TargetSparsity(0.5, 8))
    run.train(range(40))
    run.pruner.detach()  # warnings are errors here
    assert run.pruner.sparsity() == pytest.approx(0.5, abs=0.01)


def test_a_target_missed_because_weights_are_equal_is_said():
    layer = nn.Linear(20, 20, bias=False)
    nn.init.constant_(layer.weight, 0.1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(layer), optimizer, threshold=sp.TargetSparsity(0.9, steps=2, min_density=0.5 / 400))
    for _ in range(2):
        layer.weight.grad = torch.zeros_like(layer.weight)
        optimizer.step()
    with pytest.warns(UserWarning, match="many weights have the same size"):
        pruner.detach()


def test_an_exception_is_not_hidden_by_a_warning():
    run = Run.of("sgd")
    with pytest.raises(RuntimeError, match="out of data"), run.pruner:
        raise RuntimeError("out of data")


def test_where_warnings_are_errors_it_detaches_all_the_same():
    run = Run.of("sgd")
    run.train(range(2))
    with pytest.raises(UserWarning, match="Pruning ends after 2 steps"):  # warnings are errors here
        run.pruner.detach()
    assert run.pruner.theta == {}
    run.pruner.detach()  # once is enough
    run.train(range(2, 4))
    assert run.pruner.step == 2
