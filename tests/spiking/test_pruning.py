"""Pruning a spiking network is pruning a network: the hooks against autograd, bit for bit, backwards through time."""

import pytest
import torch
from torch import nn

from oracles import STEPS, Oracle, Run, assert_follows, batch
from softprune.spiking.neurons import IF


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adamw"])
@pytest.mark.parametrize("method", ["slats", "short", "lats", "str"])
def test_the_hook_form_is_the_reparametrization(optimizer, method):
    run, oracle = Run.of(optimizer, method, "spiking"), Oracle(optimizer, method, "spiking")
    assert run.train() == oracle.train()
    assert_follows(run, oracle)
    assert run.pruner.step == STEPS
    assert all((p == 0).any() for p in run.pruner.params.values())


def test_the_network_of_these_tests_fires_and_remembers():
    """Gradients reach the currents of the first time step from spikes of the last."""
    model = Run.of("sgd", "slats", "spiking").model
    fired: list[torch.Tensor] = []
    for m in model.modules():
        if isinstance(m, IF):
            m.register_forward_hook(lambda _, inputs, out: fired.append(out))
    x, _ = batch(0)
    model(x)
    assert all(0 < spikes.mean() < 1 for spikes in fired)
    currents = torch.full((4, 1, 3), 0.2, dtype=torch.double, requires_grad=True)
    nn.Sequential(IF())(currents)[-1].sum().backward()
    assert (currents.grad != 0).all()
