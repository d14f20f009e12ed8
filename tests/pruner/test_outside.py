"""Between steps the model is the user's: weights set from outside are kept, and θ follows wherever the model goes."""

import copy
import pickle

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import METHODS, STEPS, Run, assert_same, network


def pruned(final: float = 0.25, lr: float = 0.5) -> tuple[nn.Linear, torch.optim.SGD, sp.Pruner]:
    """Four weights under a constant threshold; numbers that floats hold exactly."""
    model = nn.Linear(4, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -0.5, 0.125, -0.25]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return model, optimizer, sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(final))


def test_building_a_pruner_applies_its_threshold():
    model, _, pruner = pruned()
    assert model.weight.tolist() == [[0.75, -0.25, 0.0, 0.0]]
    assert pruner.theta["weight"].tolist() == [[1.0, -0.5, 0.125, -0.25]]


@pytest.mark.parametrize("how", ["copy_", "load_state_dict", "data", "init"])
def test_weights_set_from_outside_are_kept(how):
    """θ becomes w + d·sign(w) where w was changed, and stays where it was not."""
    model, optimizer, pruner = pruned()
    new = torch.tensor([[0.75, 1.0, 0.0, 0.5]]).double()
    match how:
        case "copy_":
            with torch.no_grad():
                model.weight.copy_(new)
        case "load_state_dict":
            model.load_state_dict({"weight": new})
        case "data":
            model.weight.data = new.clone()
        case "init":
            with torch.no_grad():
                model.weight[0, 1] = 1.0
                model.weight[0, 3] = 0.5
    optimizer.step()
    assert pruner.theta["weight"].tolist() == [[1.0, 1.25, 0.125, 0.75]]
    assert torch.equal(model.weight, new)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda things: pickle.loads(pickle.dumps(things))])
def test_a_copy_keeps_weights_set_from_outside(clone):
    model, optimizer, pruner = pruned()
    with torch.no_grad():
        model.weight[0, 1] = 1.0
    model, optimizer, pruner = clone((model, optimizer, pruner))
    optimizer.step()
    assert pruner.theta["weight"].tolist() == [[1.0, 1.25, 0.125, -0.25]]
    assert model.weight.tolist() == [[0.75, 1.0, 0.0, 0.0]]


def test_the_sparsity_of_gpo_counts_weights_set_from_outside():
    run = Run.of("momentum", "gpo")
    run.train(range(3))
    with torch.no_grad():
        for p in run.pruner.params.values():
            p.zero_()
    assert run.pruner.sparsity() == sp.summarize(run.pruner).sparsity == 1.0


def test_a_gradient_on_weights_from_outside_moves_their_theta():
    model, optimizer, pruner = pruned()
    model.load_state_dict({"weight": torch.full((1, 4), 2.0)})
    model(torch.tensor([[1.0, 0.0, -1.0, 0.0]]).double()).backward()
    optimizer.step()
    assert pruner.theta["weight"].tolist() == [[1.75, 2.25, 2.75, 2.25]]
    assert model.weight.tolist() == [[1.5, 2.0, 2.5, 2.0]]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["copy_", "data", "load_state_dict"])
def test_an_average_swapped_in_and_out_again_changes_nothing(method, how):
    run, twin = Run.of("momentum", method), Run.of("momentum", method)
    for step in range(STEPS):
        run.train(range(step, step + 1))
        own = copy.deepcopy(run.model.state_dict())
        addresses = [p.data for p in run.model.parameters()]
        match how:
            case "copy_":
                with torch.no_grad():
                    for p, w in zip(run.model.parameters(), list(own.values()), strict=True):
                        p.mul_(0.5)
                        p.copy_(w)
            case "data":
                for p, w in zip(run.model.parameters(), addresses, strict=True):
                    p.data = torch.zeros_like(p)
                    p.data = w
            case "load_state_dict":
                run.model.load_state_dict(network(seed=5).state_dict())
                run.model.load_state_dict(own)
    twin.train()
    assert_same(run, twin)


def test_an_average_that_is_in_while_the_state_is_saved_costs_no_hidden_weight():
    run, twin = Run.of("momentum"), Run.of("momentum")
    run.train(range(4))
    own = copy.deepcopy(run.model.state_dict())
    run.model.load_state_dict(network(seed=5).state_dict())
    run.optimizer.state_dict()
    run.model.load_state_dict(own)
    run.train(range(4, STEPS))
    twin.train()
    assert_same(run, twin)


@pytest.mark.parametrize("method", ["slats", "lats", "str", "gpo"])
def test_the_model_may_change_its_type(method):
    """θ follows to within the precision that it had, also where the weight is pruned."""
    run = Run.of("sgd", METHODS[method], dtype=torch.float32)
    run.train(range(4))
    run.optimizer.zero_grad()
    before = {name: theta.clone() for name, theta in run.pruner.theta.items()}
    run.model.double()
    run.optimizer.step()  # no gradients: only d moves
    for name, theta in run.pruner.theta.items():
        assert theta.dtype == run.pruner.params[name].dtype == torch.float64
        torch.testing.assert_close(theta, before[name].double(), rtol=1e-6, atol=1e-6)
    run.dtype = torch.float64
    run.train(range(4, STEPS))
    assert run.pruner.step == STEPS + 1


def test_a_change_of_type_keeps_theta():
    model, optimizer, pruner = pruned()
    model.float()
    optimizer.step()
    assert pruner.theta["weight"].dtype == torch.float32
    assert pruner.theta["weight"].tolist() == [[1.0, -0.5, 0.125, -0.25]]
    assert model.weight.tolist() == [[0.75, -0.25, 0.0, 0.0]]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_theta_follows_the_memory_format(kind):
    """A fused optimizer walks through weights and gradients as they lie in memory."""
    ends = []
    for threshold in (None, sp.Constant(0.0)):
        torch.manual_seed(0)
        model = nn.Conv2d(3, 4, 3)
        optimizer = kind(model.parameters(), lr=0.1, fused=True)
        if threshold is not None:
            sp.Pruner(sp.select(model), optimizer, threshold=threshold)
        model.to(memory_format=torch.channels_last)
        for _ in range(3):
            x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        ends.append(model.weight.detach())
    torch.testing.assert_close(*ends)


def test_w_stays_in_the_memory_that_the_model_gave_it():
    """Views, flattened LSTM weights and shared memory go on looking at the sparse weights."""
    run = Run.of("momentum", "slats", kind="lstm")
    view = run.model.lstm.weight_hh_l0.data.view(-1)
    run.train()
    assert torch.equal(view, run.model.lstm.weight_hh_l0.data.view(-1))
    assert (view == 0).any()


@pytest.mark.parametrize("threshold", [sp.SLATS(0.1, 4), sp.TargetSparsity(0.5, 4)])
def test_the_default_device_is_not_the_models(threshold):
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 8)
    with torch.device("meta"):  # as torch.set_default_device("cuda") would be
        with sp.Pruner(sp.select(model), optimizer, threshold=threshold) as pruner:
            for _ in range(4):
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert 0 < pruner.sparsity() < 1
