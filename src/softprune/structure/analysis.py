"""The units of a network: who makes, who reads and who follows each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from softprune.errors import ArgumentError
from softprune.structure.labels import FIXED
from softprune.structure.record import Kind, Record
from softprune.structure.state import Leaf
from softprune.structure.trace import trace


@dataclass(frozen=True)
class Axis:
    """A dimension of a parameter or buffer that units lie along.

    Args:
        name: of the parameter or buffer.
        dim: which of its dimensions.
        units: of each index its unit; -1 where it belongs to none, and stays.
        reads: whether it is summed over, so that the units come in here. If not, they are made here, or follow. A tied
            embedding, which makes the units and reads them too, reads.
    """

    name: str
    dim: int
    units: Tensor
    reads: bool


@dataclass(frozen=True)
class Site:
    """Units that lie side by side: the channels of one layer or of one residual stream.

    Args:
        name: of the first layer that makes them.
        kind: what they are.
        units: their numbers.
    """

    name: str
    kind: Kind
    units: range


@dataclass(frozen=True)
class Structure:
    """What of a network can go without anybody noticing but those who read it.

    Args:
        axes: where units lie, one entry for each dimension of a parameter or buffer.
        sites: the units, which are numbered from 0, by the layer that makes them.
        unknown: operations that no rule knows; what they touch is not listed here, so it stays.
    """

    axes: tuple[Axis, ...]
    sites: tuple[Site, ...]
    unknown: tuple[str, ...]


def analyse(model: nn.Module, example: Any) -> Structure:
    """The channels, neurons and heads of a network, found in one forward pass.

    The model runs once as it is, in evaluation mode; a small example (one sample, a small image) is enough and fast.
    Nothing is traced or compiled, so nothing can fail that does not fail in the model itself. What the operations do
    is followed exactly: sums tie channels together, a concatenation puts them side by side, attention merges a head's
    query, key and value. Inputs and outputs stay.

    Args:
        model: the network, without wrappers.
        example: its input: a tensor, a tuple of positional arguments, or a mapping of keyword arguments. Branches that
            it does not take are not seen.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10))
    >>> found = analyse(net, torch.zeros(1, 3, 4, 4))
    >>> found.sites
    (Site(name='0', kind=<Kind.CHANNEL: 'channel'>, units=range(0, 8)),)
    >>> [(axis.name, axis.dim, axis.reads) for axis in found.axes if axis.name.endswith("weight")]
    [('0.weight', 0, False), ('1.weight', 0, False), ('4.weight', 1, True)]
    """
    if any(p.is_meta for p in model.parameters()):
        raise ArgumentError("`analyse(model, example)` needs a model with memory, not on the meta device.")
    return solve(trace(model, example))


def solve(record: Record) -> Structure:
    """Number the units, and give each axis its own."""
    roots, follows = settle(record)
    spans = {leaf: roots[leaf.first : leaf.first + leaf.size] for leaf in record.states.leaves}
    lying = {leaf: spans[leaf] for leaf in record.makers.keys() | record.readers | record.followers}
    free = torch.zeros(len(roots), dtype=torch.bool)
    for leaf in record.readers:
        free[spans[leaf]] = True
    for units in lying.values():
        if bool((units == units[0]).all()):  # without it nothing would be left
            free[units[0]] = False
    free[roots[FIXED]] = False
    head = torch.zeros(len(roots), dtype=torch.bool)
    for labels in record.heads:
        head[roots[labels]] = True
    numbers = torch.full((len(roots),), -1)
    sites: list[Site] = []
    count = 0
    for leaf, made in record.makers.items():
        for kind in (made, Kind.HEAD):
            new = ordered(spans[leaf])
            new = new[free[new] & (numbers[new] < 0) & (head[new] == (kind is Kind.HEAD))]
            if len(new) > 1:
                numbers[new] = torch.arange(count, count + len(new))
                sites.append(Site(layer(leaf.name), kind, range(count, count + len(new))))
                count += len(new)
    axes = []
    for leaf in record.states.leaves:
        met = lying.get(leaf, follows.get(leaf))
        if met is not None and bool((numbers[met] >= 0).any()):
            axes.append(Axis(leaf.name, leaf.dim, numbers[met], leaf in record.readers))
    return Structure(tuple(axes), tuple(sites), tuple(record.unknown))


def settle(record: Record) -> tuple[Tensor, dict[Leaf, Tensor]]:
    """Of each label its unit; and of each parameter that only met activations, the units that it follows."""
    meetings = defaultdict(list)
    for meeting in record.meetings:
        meetings[meeting.leaf].append(meeting)
    lying = record.makers.keys() | record.readers | record.followers
    while True:
        roots, settled = record.ties.solve(), True
        follows: dict[Leaf, Tensor] = {}
        for leaf, met in meetings.items():
            index, units = torch.cat([m.pairs for m in met], dim=1)
            index, units = index - leaf.first, roots[units]
            if leaf in lying:
                index = torch.cat([index, torch.arange(leaf.size)])
                units = torch.cat([units, roots[leaf.first : leaf.first + leaf.size]])
            index, units = torch.unique(torch.stack([index, units]), dim=1)
            if len(index) == len(index.unique()) and len(units.unique()) > 1:
                follows[leaf] = torch.full((leaf.size,), FIXED).scatter(0, index, units)
                continue
            walls = roots[torch.cat([m.walls for m in met], dim=1)]
            stay = walls[:, walls[0] != walls[1]].flatten()
            if leaf in lying:
                stay = torch.cat([stay, roots[leaf.first : leaf.first + leaf.size]])
            if bool((stay != roots[FIXED]).any()):
                record.ties.fix(stay)
                settled = False
        if settled:
            return roots, follows


def ordered(labels: Tensor) -> Tensor:
    """The different ones, in the order in which they first appear."""
    values, inverse = torch.unique(labels, return_inverse=True)
    first = torch.full((len(values),), len(labels)).scatter_reduce(0, inverse, torch.arange(len(labels)), "amin")
    order: Tensor = values[first.argsort()]
    return order


def layer(parameter: str) -> str:
    """The module that owns a parameter; the parameter itself, if that is the whole network."""
    return parameter.rpartition(".")[0] or parameter
