"""A parameter has one pruner at a time."""

import gc
from functools import partial

import torch

import softprune as sp
from oracles import network, refused
from softprune.pruner import registry


def test_one_parameter_under_two_pruners_until_the_first_is_detached():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = sp.Pruner({"0.weight": model[0].weight}, optimizer, threshold=sp.Constant(0.1))
    build = partial(sp.Pruner, sp.select(model), optimizer, threshold=sp.Constant(0.1))
    refused(build, "'0.weight' is pruned already. Call `detach()` on its pruner first, or leave it out")
    other = torch.optim.Adam(model.parameters())
    refused(lambda: sp.Pruner(sp.select(model), other, threshold=sp.Constant(0.1)), "'0.weight' is pruned already.")
    first.detach()
    assert build().step == 0


def test_an_optimizer_keeps_its_pruner_and_both_go_together():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1))  # nobody holds it but the hooks
    gc.collect()
    fresh = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), fresh, threshold=sp.Constant(0.1))
    refused(build, "is pruned already")
    del optimizer
    gc.collect()
    assert build().step == 0


def test_a_pruner_that_nobody_holds_any_more_is_in_nobodys_way():
    model = network()
    for _ in range(2):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1))
        del optimizer


def test_a_pruner_makes_way_only_for_one_that_is_not_refused():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    old = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1))
    registry.replaceable(old)
    stranger = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    refused(lambda: sp.Pruner(sp.select(model), stranger, threshold=sp.Constant(0.1)), "does not hold '0.weight'")
    assert registry.pruner_of(model[0].weight) is old
    new = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.2))
    assert registry.pruner_of(model[0].weight) is new
    assert old.theta == {}
