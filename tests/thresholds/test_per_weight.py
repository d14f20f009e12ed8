"""A threshold for each weight, with state of its own: what a rule may do beyond one number for each parameter.

The threshold here is dual averaging in Adam's metric, d_i = μ · Σ η / h_i with h = sqrt(v̂) + ε, which needs the
optimizer's own state.
"""

from dataclasses import dataclass

import pytest
import torch

import softprune as sp
from oracles import STEPS, batch, network, saved, shrink
from softprune.thresholds.base import Rule


@dataclass(frozen=True)
class Metric(sp.Threshold):
    penalty: float

    def bind(self, weights, optimizer):
        return MetricRule(self, weights, optimizer)


class MetricRule(Rule):
    def __init__(self, threshold, weights, optimizer):
        super().__init__(threshold, weights)
        self.optimizer = optimizer
        self.learned = 0.0
        self.levels = ([torch.zeros_like(theta) for theta in weights.pairs.thetas],)

    def advance(self, step, lrs):
        self.learned += lrs[0]
        states = [self.optimizer.state[p] for p in self.weights.params]
        self.levels = (
            [self.threshold.penalty * self.learned / (state["exp_avg_sq"].sqrt() + 0.1) for state in states],
        )

    def state(self):
        return {
            p: {"levels": levels, "learned": self.learned}
            for p, levels in zip(self.weights.params, self.levels[0], strict=True)
        }

    def load(self, entries):
        self.learned = entries[self.weights.params[0]]["learned"]
        self.levels = ([entries[p]["levels"].clone() for p in self.weights.params],)


def build():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    return model, optimizer, sp.Pruner(sp.select(model), optimizer, threshold=Metric(0.05))


def train(model, optimizer, steps):
    for step in steps:
        x, y = batch(step)
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_each_weight_has_its_own_threshold():
    model, optimizer, pruner = build()
    train(model, optimizer, range(STEPS))
    (levels,) = pruner.rule.levels
    for (name, p), d in zip(pruner.params.items(), levels, strict=True):
        assert len(d.unique()) > 1
        torch.testing.assert_close(p.detach(), shrink(pruner.theta[name], d), rtol=1e-12, atol=1e-15)
    assert pruner.threshold == {name: float(d.mean()) for name, d in zip(pruner.params, levels, strict=True)}
    assert 0 < pruner.sparsity() < 1
    assert sp.summarize(pruner).layers[0].threshold > 0


@pytest.mark.parametrize("of", ["optimizer", "pruner"])
def test_it_is_saved_and_goes_on_bit_for_bit(of):
    model, optimizer, pruner = build()
    train(model, optimizer, range(4))
    other, fresh, resumed = build()
    other.load_state_dict(saved(model.state_dict()))
    fresh.load_state_dict(saved(optimizer.state_dict()))
    if of == "pruner":
        resumed.load_state_dict(saved(pruner.state_dict()))
    train(model, optimizer, range(4, STEPS))
    train(other, fresh, range(4, STEPS))
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_weights_set_from_outside_find_a_hidden_weight():
    model, optimizer, pruner = build()
    train(model, optimizer, range(4))
    with torch.no_grad():
        model[0].weight.add_(0.5)
    new = model[0].weight.detach().clone()
    theta = pruner.state_dict()["0.weight"]["theta"]
    torch.testing.assert_close(shrink(theta, pruner.rule.levels[0][0]), new, rtol=1e-9, atol=1e-12)
