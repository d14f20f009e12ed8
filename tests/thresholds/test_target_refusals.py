"""What a target refuses: sparsities that cannot be reached, budgets that lead elsewhere, wrong arguments."""

from functools import partial

import pytest
import torch
from torch import nn

import softprune as sp
from digit_classifier import OPTIMIZERS, STEPS, classifier, run
from oracles import network, refused
from proxes import Rows


def test_an_impossible_target_is_refused():
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    with pytest.raises(ValueError, match=r"cannot reach 99\.0000% where min_density = 0\.05 leaves at most 94\."):
        sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.99, STEPS, min_density=0.05))


@pytest.mark.parametrize("kind", [sp.TargetSparsity, sp.GradualSparsity])
def test_a_target_that_whole_blocks_do_not_allow_is_refused(kind):
    """Of each layer one block stays, however little ``min_density`` asks for."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128))
    optimizer, groups = torch.optim.SGD(model.parameters()), sp.Blocks(64, 64)
    with pytest.raises(ValueError, match=r"cannot reach 90\.0000% where .*Blocks.* leaves at most 66\.6667%"):
        sp.Pruner(sp.select(model), optimizer, threshold=kind(0.9, STEPS), groups=groups)
    sp.Pruner(sp.select(model), optimizer, threshold=kind(0.66, STEPS), groups=groups)


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ({"0": 0.5, "3": 0.5}, "says nothing about 7.weight"),
        ({"0": 0.5, "3": 0.5, "7": 0.5, "9": 0.5}, "names 9, which is not among the pruned parameters"),
        ({"0": 0.5, "3": 0.5, "7": 1.5}, "must be between 0 and 1. Got 1.5."),
    ],
)
def test_a_wrong_budget_is_refused(budget, text):
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    with pytest.raises(ValueError, match=text.replace(".", r"\.")):
        sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.5, STEPS, budget=budget))


def test_a_table_that_leads_elsewhere_is_refused():
    with pytest.raises(ValueError, match=r"is 0.95, but its budget leads to 0.2504"):
        run(target=0.95, budget={"0": 0.1, "3": 0.2, "7": 0.3})


def test_a_refused_budget_names_the_layer():
    with pytest.raises(ValueError, match=r"cannot reach 100.0000% of 0.weight where min_density"):
        run(target=0.9015, budget={"0": 1.0, "3": 0.9, "7": 0.9})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"target": 1.0, "steps": 10}, "must be > 0 and < 1. Got 1.0."),
        ({"target": 95, "steps": 10}, "must be > 0 and < 1. Got 95."),
        ({"target": 0.9, "steps": 0}, "must be a whole number >= 1. Got 0."),
        ({"target": 0.9, "steps": 20.5}, "must be a whole number >= 1. Got 20.5."),
        ({"target": 0.9, "steps": 10, "start": 10}, "must be < steps = 10. Got 10."),
        ({"target": 0.9, "steps": 10, "start": 0.5}, "must be a whole number >= 0. Got 0.5."),
        ({"target": 0.9, "steps": 10, "interval": 1.5}, "must be a whole number >= 1. Got 1.5."),
        ({"target": 0.9, "steps": 10, "refresh": 0}, "must be a whole number >= 1. Got 0."),
        ({"target": "0.9", "steps": 10}, "must be > 0 and < 1. Got '0.9'."),
        ({"target": torch.tensor(0.9), "steps": 10}, "`TargetSparsity(target=...)` must be > 0 and < 1. Got tensor"),
        ({"target": 0.9, "steps": True}, "must be a whole number >= 1. Got True."),
    ],
)
def test_wrong_arguments_are_refused(arguments, text):
    refused(lambda: sp.TargetSparsity(**arguments), text)


def test_a_budget_by_its_name_is_refused():
    text = "(budget=...)` must be {name: sparsity}, `sp.uniform`, `sp.erdos_renyi` or `sp.erk`. Got 'erk'."
    refused(lambda: run(target=0.9, budget="erk"), text)


def test_a_target_needs_a_prox_whose_zeros_it_can_count():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer, prox=Rows())
    refused(partial(build, threshold=sp.TargetSparsity(0.5, 10)), "Cannot use TargetSparsity with", TypeError)
    with build(threshold=sp.Constant(100.0)) as pruner:
        assert pruner.sparsity() == 1.0


def test_a_prox_that_looks_separable_on_the_smallest_parameter_is_refused_too():
    """What counts is what it claims, not what it does to some numbers."""
    model = torch.nn.Sequential(torch.nn.Linear(1, 3, bias=False), torch.nn.Linear(3, 4, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer, prox=Rows(), threshold=sp.TargetSparsity(0.5, 10))
    refused(build, "which this prox does not claim (`Prox.thresholds`)", TypeError)
