"""The optimizer inside a wrapper, the param group of a parameter, and its learning rate."""

import math
from functools import partial

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import (
    STEPS,
    loss_of,
    network,
    refused,
)


def test_a_pruner_finds_the_optimizer_inside_a_wrapper():
    accelerate = pytest.importorskip("accelerate")
    model = network()
    optimizer = accelerate.Accelerator(cpu=True).prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.SLATS(0.2, STEPS))
    loss_of(model, 0).backward()
    optimizer.step()
    assert pruner.step == 1
    assert pruner.optimizer is optimizer.optimizer


def swap_lists(first: dict, second: dict) -> None:
    first["params"], second["params"] = second["params"], first["params"]


def swap_members(first: dict, second: dict) -> None:
    first["params"][0], second["params"][0] = second["params"][0], first["params"][0]


MOVES = {
    "none": (lambda groups: None, {"a": 0.02, "b": 0.0002, "still": 0.0}),
    "groups change places": (lambda groups: groups.reverse(), {"a": 0.02, "b": 0.0002, "still": 0.0}),
    "lists change places": (lambda groups: swap_lists(*groups[:2]), {"a": 0.0101, "b": 0.0101, "still": 0.0}),
    "members change places": (lambda groups: swap_members(*groups[:2]), {"a": 0.0101, "b": 0.0101, "still": 0.0}),
    "one joins another group": (
        lambda groups: groups[0]["params"].append(groups[1]["params"].pop()),
        {"a": 0.02, "b": 0.0101, "still": 0.0},
    ),
}


@pytest.mark.parametrize(("move", "expected"), MOVES.values(), ids=MOVES.keys())
def test_every_parameter_follows_the_learning_rate_of_its_param_group(move, expected):
    """Wherever it is by now; the penalty is one, except where nothing is learned."""
    params = {name: nn.Parameter(torch.ones(3, 3)) for name in ("a", "b", "still")}
    rates = zip(params.values(), (0.1, 0.001, 0.0), strict=True)
    optimizer = torch.optim.SGD([{"params": [p], "lr": lr} for p, lr in rates])
    pruner = sp.Pruner(params, optimizer, threshold=sp.LATS(0.1))
    optimizer.step()
    move(optimizer.param_groups)
    optimizer.step()
    assert pruner.threshold == pytest.approx(expected, rel=1e-12, abs=0)
    assert pruner.penalty == pytest.approx({"a": 0.1, "b": 0.1, "still": 0.0}, rel=1e-12, abs=0)


def test_a_parameter_that_the_optimizer_lost_is_missed():
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sp.Pruner(sp.select(model), optimizer, threshold=sp.LATS(1.0))
    optimizer.param_groups[0]["params"].clear()
    with pytest.raises(ValueError, match="Call `detach\\(\\)` before taking some away"):
        optimizer.state_dict()


def test_a_layer_that_was_replaced_is_missed_at_the_next_step():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sp.Pruner(sp.select(model), optimizer, threshold=sp.LATS(1.0))
    optimizer.step()
    model[0] = nn.Linear(4, 4)
    optimizer.param_groups[0]["params"] = list(model.parameters())
    with pytest.raises(ValueError, match="does not hold all of the parameters that are pruned"):
        optimizer.step()


class Stepwise(torch.optim.Optimizer):
    """Without learning rates."""

    def __init__(self, params) -> None:
        super().__init__(params, {"size": 0.1})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=self.param_groups[0]["size"])


@pytest.mark.parametrize("threshold", [sp.LATS(0.1), sp.TargetSparsity(0.9, 10)])
def test_thresholds_that_follow_the_learning_rate_need_one(threshold):
    model = network()
    nothing = torch.optim.SGD(model.parameters(), lr=0.1)
    nothing.param_groups[0]["lr"] = None  # as Adafactor, which finds its own
    for optimizer in (Stepwise(model.parameters()), nothing):
        text = f"{type(threshold).__name__} follows the learning rate, and {type(optimizer).__name__} has none"
        refused(partial(sp.Pruner, sp.select(model), optimizer, threshold=threshold), text)


@pytest.mark.parametrize("threshold", [sp.SLATS(0.2, 4), "str"])
def test_other_thresholds_need_no_learning_rate(threshold):
    model = network()
    params = sp.select(model)
    threshold = sp.STR(params, init=-2.0) if threshold == "str" else threshold
    more = threshold.parameters() if isinstance(threshold, sp.STR) else ()
    optimizer = Stepwise([*model.parameters(), *more])
    with sp.Pruner(params, optimizer, threshold=threshold) as pruner:
        for step in range(4):
            loss_of(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert pruner.step == 4
        assert pruner.sparsity() > 0.1
        assert all(math.isnan(mu) for mu in pruner.penalty.values())
