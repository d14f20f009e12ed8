"""Channels, neurons and heads: the units of a network that can be removed, found by looking at one forward pass.

A group is what makes a unit: the rows of the weights, with their biases and norms, that compute it. Where they are zero
so is the unit, whatever the input, and what reads it does nothing. A weight that reads units and makes none that can be
removed, such as the one after a perceptron's hidden layer, has its columns in their groups.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from softprune.errors import ArgumentError, listing
from softprune.groups.base import Grouping, Partition
from softprune.groups.units import Placed, Slots, UnitPartition
from softprune.kernels.sharding import local
from softprune.selection import unwrap
from softprune.structure import Axis, Kind, analyse


class Channels(Grouping):
    """All units that a network can do without: channels, neurons between linear layers, heads of attention.

        groups = sp.Channels(model, example)
        pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.TargetSparsity(0.5, steps=T), groups=groups)
        ...
        small = sp.shrink(model, example).model

    A channel of a residual stream is one unit, whichever layers add to it; so are the channels that a concatenation, a
    grouped convolution or a flattening bind together, and a key/value head with all of its queries. Norms and biases of
    a unit are pruned with it, though ``sp.select`` leaves them out; the inputs that read it count as freed. Where an
    activation makes something of zero, as a sigmoid does, a dead unit is a constant until ``detach`` frees what reads
    it: outputs may change a little then.

    Args:
        model: the network, before it is sharded.
        example: an input, or a tuple of inputs; small images and few of them will do.
    """

    kinds: ClassVar[frozenset[Kind]] = frozenset(Kind)

    def __init__(self, model: nn.Module, example: Any) -> None:
        self.model = unwrap(model)
        self.structure = analyse(self.model, example)
        if not any(site.kind in self.kinds for site in self.structure.sites):
            unknown = self.structure.unknown
            raise ArgumentError(
                f"`{type(self).__name__}` found nothing in this network that can be removed as a whole."
                + (f" It does not know what {listing(unknown, most=5)} do." if unknown else "")
            )

    def __repr__(self) -> str:
        chosen = [len(site.units) for site in self.structure.sites if site.kind in self.kinds]
        return f"{type(self).__name__}({sum(chosen)} in {len(chosen)} places)"

    def complete(self, params: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        vectors = {axis.name for axis in self._making() if axis.name in trained and trained[axis.name].ndim == 1}
        chosen = self._chosen(params.keys() | vectors)
        needed = {a.name for a in self._making() if a.name in vectors and chosen[a.units[a.units >= 0]].any()}
        return dict(params) | {name: p for name, p in trained.items() if name in needed and name not in params}

    def bind(self, params: Mapping[str, nn.Parameter]) -> Partition:
        chosen = self._chosen(params.keys())
        if not chosen.any():
            raise ArgumentError(
                f"None of {self} can be removed when only these parameters are pruned. Give the Pruner all that "
                "`sp.select(model)` finds, of the model that was looked at."
            )
        numbers = torch.where(chosen, chosen.cumsum(0) - 1, -1)
        numbers = torch.cat([numbers, numbers.new_full((1,), -1)])  # index -1 is that of no unit
        owned: dict[str, Slots] = {}
        used: dict[str, list[Slots]] = {}
        for axis in sorted(self.structure.axes, key=lambda axis: axis.reads):  # what makes units comes first
            groups = numbers[axis.units]
            if axis.name in params and (groups >= 0).any():
                slots = Slots(axis.dim, Placed(groups))
                if owned.setdefault(axis.name, slots) is not slots:
                    used.setdefault(axis.name, []).append(slots)
        places: dict[str, list[int]] = {}
        for site in self.structure.sites:  # a layer may make units of two places
            places.setdefault(site.name, []).extend(n for n in numbers[list(site.units)].tolist() if n >= 0)
        partition = UnitPartition(params, owned, used, {name: found for name, found in places.items() if found})
        partition.measure([local(p.detach()) for p in params.values()])
        return partition

    def _making(self) -> Iterator[Axis]:
        """Of what makes units, and of what belongs to them: norms, biases."""
        return (axis for axis in self.structure.axes if not axis.reads)

    def _chosen(self, names: Container[str]) -> Tensor:
        """Of each unit, whether it is of the kinds wanted, and all that makes it is among these parameters."""
        chosen = torch.zeros(max(site.units.stop for site in self.structure.sites), dtype=torch.bool)
        for site in self.structure.sites:
            chosen[list(site.units)] = site.kind in self.kinds
        parameters = {name for name, _ in self.model.named_parameters()}
        for axis in self._making():
            if axis.name in parameters and axis.name not in names:
                chosen[axis.units[axis.units >= 0]] = False
        return chosen


class Neurons(Channels):
    """The neurons between two linear layers, such as those of a transformer's perceptron: rows of up and gate with
    their biases, and the column of down."""

    kinds = frozenset({Kind.NEURON})


class Heads(Channels):
    """The heads of attention: rows of query, key and value with their biases, and the columns of what reads them. Where
    several queries share a key and a value they are one group."""

    kinds = frozenset({Kind.HEAD})
