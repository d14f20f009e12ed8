"""Random networks with random dead units: whatever died goes, and nobody can tell."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from torch import nn

from removal.grammar import sentence
from softprune.removal import shrink
from softprune.removal.dead import leave_one
from softprune.structure import Structure, analyse


def zero(net: nn.Module, structure: Structure, units: set[int], reads: bool) -> None:
    tensors = dict(net.named_parameters())
    for axis in structure.axes:
        if axis.reads == reads and axis.name in tensors:
            dead = torch.isin(axis.units, torch.tensor(sorted(units)))
            tensors[axis.name].data[(slice(None),) * axis.dim + (dead,)] = 0


def law(seed: int) -> None:
    net = sentence(seed)
    example = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    structure = analyse(net, example)
    assert structure.unknown == ()
    dice = random.Random(seed)
    unread, unmade = set(), set()
    for site in structure.sites:
        alive = dice.choice(list(site.units))  # one lives
        for unit in set(site.units) - {alive}:
            unread |= {unit} if dice.random() < 0.3 else set()
            unmade |= {unit} if dice.random() < 0.3 else set()
    zero(net, structure, unread, reads=True)
    zero(net, structure, unmade, reads=False)
    shrunk = shrink(net, example)
    needed = torch.tensor([unit not in unread for site in structure.sites for unit in site.units])
    needed = leave_one(structure, needed)  # no layer becomes empty
    for site, change in zip(structure.sites, shrunk.sites, strict=True):
        assert change.reason == ""
        assert change.after <= needed[list(site.units)].sum()
    other = torch.randn(3, 3, 12, 12, dtype=torch.float64)
    expected, got = net(other), shrunk.model(other)
    assert (expected - got).abs().max() <= 1e-10 * expected.abs().max()
    single = shrink(copy.deepcopy(net).float(), example.float())
    assert [change.after for change in single.sites] == [change.after for change in shrunk.sites]
    exact, expected, got = expected, net.float()(other.float()), single.model(other.float())
    rounding = (expected - exact).abs().max()  # a norm of nearly constant channels makes it large
    assert (expected - got).abs().max() <= 1e-5 * expected.abs().max() + 4 * rounding


@pytest.mark.parametrize("seed", range(60))
def test_random_networks(seed: int) -> None:
    law(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 2000))
def test_many_random_networks(seed: int) -> None:
    law(seed)
