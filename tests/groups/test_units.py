"""Groups that lie in several parameters."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

import softprune as sp
from softprune.errors import ArgumentError, ArgumentTypeError


def perceptron(hidden: int = 6, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 3)).to(dtype)


def neurons(hidden: int = 6) -> sp.Groups:
    return sp.Groups({j: [("0.weight", 0, [j]), ("2.weight", 1, [j])] for j in range(hidden)})


def sizes(model: nn.Sequential) -> torch.Tensor:
    """‖θ_G‖ / √|G| of the neurons of ``perceptron``."""
    squares = model[0].weight.square().sum(1) + model[2].weight.square().sum(0)
    return (squares / (4 + 3)).sqrt().detach()


def train(model, optimizer, steps: int) -> None:
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1), dtype=model[0].weight.dtype)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - x[:, :3].sin()).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("p", [1, 2, 4, math.inf])
def test_a_group_is_scaled_by_what_the_scalar_prox_leaves_of_its_size(p):
    model = perceptron(dtype=torch.float64)
    before, r, d = copy.deepcopy(model), sizes(model), float(sizes(model).median())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(d), prox=sp.PowerThreshold(p), groups=neurons())
    f = sp.PowerThreshold(p)(r, d) / r
    torch.testing.assert_close(model[0].weight, before[0].weight * f[:, None])
    torch.testing.assert_close(model[2].weight, before[2].weight * f)
    assert torch.equal(model[0].weight.eq(0).all(1), r <= d)
    assert torch.equal(model[0].bias, before[0].bias)


def test_weights_in_no_group_are_not_pruned():
    model = perceptron()
    before = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    groups = sp.Groups({"first two": [("0.weight", 0, [0, 1])]})
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(10.0), groups=groups)
    assert not model[0].weight[:2].any()
    assert torch.equal(model[0].weight[2:], before[0].weight[2:])
    assert torch.equal(model[2].weight, before[2].weight)
    assert pruner.sparsity() == 8 / 42


@pytest.mark.parametrize("target", [0.3, 0.5, 0.8])
def test_a_target_counts_the_weights_of_groups(target):
    model = perceptron(hidden=50)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    pruner = sp.Pruner(
        sp.select(model), optimizer, threshold=sp.TargetSparsity(target, steps=60), groups=neurons(hidden=50)
    )
    train(model, optimizer, 60)
    assert abs(pruner.sparsity() - target) <= 0.5 / 50 + 1e-9
    pruner.detach()
    dead = model[0].weight.eq(0).all(1)
    assert torch.equal(dead, model[2].weight.eq(0).all(0))
    assert dead.sum() == round(target * 50)


@pytest.mark.parametrize("steps", [4, 12, 60])
def test_a_target_is_never_passed_on_the_way(steps):
    """Units of a layer begin with nearly one size: a penalty that grows would take them all at once."""
    model = perceptron(hidden=50)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    threshold = sp.TargetSparsity(0.5, steps=steps)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=threshold, groups=neurons(hidden=50))
    way = []
    for _ in range(steps):
        train(model, optimizer, 1)
        way.append(pruner.sparsity())
    assert max(way) <= 0.5 + 1.5 / 50
    assert way[threshold.arrival - 1 :] == pytest.approx([0.5] * (steps - threshold.arrival + 1), abs=1 / 50)


def test_at_least_one_group_of_a_layer_stays():
    model = perceptron(hidden=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    threshold = sp.TargetSparsity(0.87, steps=20, min_density=0.2)
    with pytest.raises(ArgumentError, match="can free at most 75"):
        sp.Pruner(sp.select(model), optimizer, threshold=threshold, groups=neurons(hidden=8))


def test_resuming_is_bit_for_bit():
    runs = []
    for split in (False, True):
        model = perceptron(hidden=20)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        threshold = sp.TargetSparsity(0.6, steps=40)
        pruner = sp.Pruner(sp.select(model), optimizer, threshold=threshold, groups=neurons(20))
        train(model, optimizer, 17)
        if split:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            model = perceptron(hidden=20)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            pruner = sp.Pruner(sp.select(model), optimizer, threshold=threshold, groups=neurons(20))
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        train(model, optimizer, 23)
        pruner.detach()
        runs.append(model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(runs[0].values(), runs[1].values(), strict=True))


def test_the_state_of_other_groups_is_refused():
    states = []
    for groups in (neurons(), sp.Groups({0: [("0.weight", 0, [0, 1, 2])]}), sp.Blocks(1, 2), None):
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1), groups=groups)
        if states:
            with pytest.raises(ArgumentError, match="another prox"):
                pruner.load_state_dict(states[0])
        states.append(pruner.state_dict())


def test_weights_set_from_outside_stay_as_they_are_set():
    """One weight of a group has been set: all of its group have another θ, and no weight moves."""
    model = perceptron(dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1), groups=neurons())
    theta = {name: x.clone() for name, x in pruner.theta.items()}
    with torch.no_grad():
        model[0].weight[2, 1] = 3.0
    expected = copy.deepcopy(model.state_dict())
    train(model, optimizer, 1)
    for name, w in model.state_dict().items():
        torch.testing.assert_close(w, expected[name])
    others = [0, 1, 3, 4, 5]
    assert torch.equal(pruner.theta["2.weight"][:, others], theta["2.weight"][:, others])
    assert not torch.equal(pruner.theta["2.weight"][:, 2], theta["2.weight"][:, 2])


def test_a_pruner_with_groups_can_be_copied_and_pickled():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Linear(0.3, steps=10), groups=neurons())
    both = copy.deepcopy((model, optimizer, pruner)), pickle.loads(pickle.dumps((model, optimizer, pruner)))
    train(model, optimizer, 5)
    for other, its_optimizer, its_pruner in both:
        train(other, its_optimizer, 5)
        assert torch.equal(other[0].weight, model[0].weight)
        assert its_pruner.sparsity() == pruner.sparsity()


def test_a_group_has_the_threshold_of_its_first_parameter():
    model = perceptron(dtype=torch.float64)
    r = sizes(model)
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": 0.7}]
    optimizer = torch.optim.SGD(groups)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.LATS(penalty=1.0), groups=neurons())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert pruner.threshold == {"0.weight": 0.1, "2.weight": 0.7}
    f = (1 - 0.1 / r).clamp(min=0)
    torch.testing.assert_close(model[2].weight, pruner.theta["2.weight"] * f)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({0: [("1.weight", 0, [0])]}, "not among the pruned parameters"),
        ({0: [("0.weight", 2, [0])]}, "names dimension 2"),
        ({0: [("0.weight", 0, [6])]}, "from 0 to 5"),
        ({0: [("0.weight", 0, [0])], 1: [("0.weight", 0, [1, 0])]}, "none that another group has"),
        ({0: [("0.weight", 0, [0, 0])]}, "each once"),
        ({0: [("0.weight", 0, [0])], 1: [("0.weight", 1, [0])]}, "along dimension 1, and another group along 0"),
    ],
)
def test_groups_that_make_no_sense_are_refused(groups, words):
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ArgumentError, match=words):
        sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1), groups=sp.Groups(groups))


@pytest.mark.parametrize("groups", [{}, {0: []}])
def test_empty_groups_are_refused(groups):
    with pytest.raises(ArgumentError, match="something in every group"):
        sp.Groups(groups)


def test_what_does_not_go_with_groups_is_refused():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    params = sp.select(model)
    with pytest.raises(ArgumentTypeError, match="must be a grouping"):
        sp.Pruner(params, optimizer, threshold=sp.Constant(0.1), groups="channels")
    with pytest.raises(ArgumentTypeError, match="soft or the power threshold"):
        sp.Pruner(params, optimizer, threshold=sp.Constant(0.1), prox=sp.Blend(), groups=neurons())
    threshold = sp.TargetSparsity(0.5, steps=10, budget=sp.uniform)
    with pytest.raises(ArgumentError, match="out `budget` or `groups`"):
        sp.Pruner(params, optimizer, threshold=threshold, groups=neurons())
    threshold = sp.STR(params, init=-5.0)
    optimizer.add_param_group({"params": threshold.parameters()})
    with pytest.raises(ArgumentTypeError, match="several parameters"):
        sp.Pruner(params, optimizer, threshold=threshold, groups=neurons())
