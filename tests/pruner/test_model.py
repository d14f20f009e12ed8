"""The model stays the user's own: its names, its types, its exports; and after `detach()` nothing of ours is left."""

import warnings
import weakref

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import METHODS, OPTIMIZERS, Run, loss_of, network


def test_names_and_keys_of_the_model_never_change():
    plain = network()
    run = Run.of("adam", "str")
    for steps in (range(0), range(2)):
        run.train(steps)
        assert list(run.model.state_dict()) == list(plain.state_dict())
        assert [type(m) for m in run.model.modules()] == [type(m) for m in plain.modules()]
    plain.load_state_dict(run.model.state_dict())
    x = torch.randn(2, 6).double()
    assert torch.equal(plain.eval()(x), run.model.eval()(x))


def test_tied_parameters_are_pruned_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
            self.second.weight = self.first.weight
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.second(self.first(x)))

    torch.manual_seed(0)
    model = Tied().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    params = sp.select(model)
    assert list(params) == ["first.weight", "head.weight"]
    pruner = sp.Pruner(params, optimizer, threshold=sp.Linear(0.2, 4))
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    assert model.second.weight is model.first.weight
    assert sp.summarize(pruner).parameters == 36 + 18
    assert (model.first.weight == 0).any()


def test_the_sparse_model_can_be_exported():
    run = Run.of("momentum", "slats", dtype=torch.float32)
    run.train()
    x = torch.randn(2, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        program = torch.export.export(run.model, (x,))
    torch.testing.assert_close(program.module()(x), run.model(x))
    exported = dict(program.named_parameters())
    assert torch.equal(exported["0.weight"], run.model[0].weight)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw-fused"])
def test_detaching_leaves_a_plain_module_and_a_plain_optimizer(method, optimizer):
    run = Run.of(optimizer, METHODS[method])
    run.train()
    expected = {name: w.clone() for name, w in run.pruner.weights()}
    run.pruner.detach()
    untouched = OPTIMIZERS[optimizer](network().parameters())
    hooks = [name for name in vars(untouched) if name.endswith("_hooks")]
    assert len(hooks) >= 5
    assert all(len(vars(run.optimizer)[name]) == len(vars(untouched)[name]) for name in hooks)
    for name, p in run.pruner.params.items():
        assert torch.equal(p.data, expected[name])
        assert type(p) is nn.Parameter
        assert (p == 0).any()
        assert p.requires_grad
    assert not any("softprune" in key for state in run.optimizer.state_dict()["state"].values() for key in state)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in run.model.modules())
    run.pruner.detach()  # twice is once
    step = run.pruner.step
    run.train(range(1))
    assert run.pruner.step == step


def test_nothing_keeps_the_hidden_weights_after_the_end():
    """Also of a target, whose controller looked at them."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.TargetSparsity(0.9, 1))
    optimizer.step()
    theta = weakref.ref(pruner.theta["0.weight"])
    pruner.detach()
    assert theta() is None
    assert pruner.step == 1


def test_a_pruner_prints_its_factors():
    run = Run.of("sgd")
    assert repr(run.pruner) == (
        "Pruner(2 parameters, threshold=SLATS(final=0.2, steps=8, start=0, lr=None), prox=SoftThreshold(), "
        "gradient=identity, step=0)"
    )
