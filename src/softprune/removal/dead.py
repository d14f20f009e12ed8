"""Which units are dead: nobody who lives reads them, or they are the same number for every input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from softprune.removal.varies import Read
from softprune.structure import Axis, Structure


def alive(model: nn.Module, structure: Structure, reads: Mapping[str, Sequence[Read]], new_biases: bool) -> Tensor:
    """Of each unit whether it is needed.

    A unit is dead if at every index where a parameter reads it, the parameter is zero in all outputs that live, or what
    it reads is a constant that can go into the bias. Dead outputs make more inputs dead, until nothing changes.

    Args:
        model: the network.
        structure: its units.
        reads: what its parameters read.
        new_biases: whether a layer without a bias may get one.
    """
    count = sum(len(site.units) for site in structure.sites)
    living = torch.ones(count, dtype=torch.bool)
    readers = [axis for axis in structure.axes if axis.reads]
    patterns = {axis: _pattern(model, structure, axis) for axis in map(_key, readers)}
    folds = {_key(axis): _folds(model, axis, reads.get(axis.name, ()), new_biases) for axis in readers}
    while True:
        needed = torch.zeros(count + 1, dtype=torch.bool)
        for axis in readers:
            nonzero, others = patterns[_key(axis)]
            for dim, units in others:
                here = (units < 0) | living[units]
                nonzero = nonzero & here.view([-1 if d == dim else 1 for d in range(nonzero.dim())])
            read = nonzero.movedim(axis.dim, 0).flatten(1).any(1) & ~folds[_key(axis)]
            needed[axis.units[read]] = True
        if torch.equal(needed[:count] & living, living):
            return leave_one(structure, living)
        living &= needed[:count]


def _key(axis: Axis) -> tuple[str, int]:
    return axis.name, axis.dim


def _pattern(model: nn.Module, structure: Structure, key: tuple[str, int]) -> tuple[Tensor, list[tuple[int, Tensor]]]:
    """Where a parameter is not zero, by the indices of the dimensions that have units; and its other dimensions."""
    name, dim = key
    parameter = tensor_of(model, name)
    others = [(axis.dim, axis.units) for axis in structure.axes if axis.name == name and axis.dim != dim]
    kept = {dim, *(other for other, _ in others)}
    nonzero = parameter.detach() != 0
    for d in range(parameter.dim()):
        if d not in kept:
            nonzero = nonzero.any(d, keepdim=True)
    return nonzero.cpu(), others


def _folds(model: nn.Module, axis: Axis, reads: Sequence[Read], new_biases: bool) -> Tensor:
    """At which indices what is read is surely zero, or a number that the bias can take."""
    size = len(axis.units)
    good = torch.full((size,), len(reads) > 0)
    biased = can_fold(model, axis, new_biases)
    for read in reads:
        if len(read.value) % size or len(read.value) != len(reads[0].value):
            return torch.zeros(size, dtype=torch.bool)
        value, first = read.value.view(-1, size), reads[0].value.view(-1, size)
        rounding = max(read.rounding, reads[0].rounding)
        same = (value - first).abs() <= rounding  # False where either is no number
        good &= ((value == 0) | (same & (biased and read.everywhere))).all(0)
    return good


def can_fold(model: nn.Module, axis: Axis, new_biases: bool) -> bool:
    """Whether the layer that owns a weight adds a bias, or could."""
    layer, _, last = axis.name.rpartition(".")
    module = model.get_submodule(layer)
    plain = isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) and axis.dim == 1
    turned = type(module).__name__ == "Conv1D" and axis.dim == 0
    return last == "weight" and (plain or turned) and (new_biases or module.bias is not None)


def leave_one(structure: Structure, living: Tensor) -> Tensor:
    """No dimension of a parameter may become empty: its first unit stays, dead or not."""
    living = living.clone()
    empty = True
    while empty:
        empty = False
        for axis in structure.axes:
            if bool((axis.units >= 0).all()) and not bool(living[axis.units].any()):
                living[axis.units[0]] = empty = True
    return living


def tensor_of(model: nn.Module, name: str) -> Tensor:
    """A parameter or buffer by its name."""
    layer, _, last = name.rpartition(".")
    tensor: Tensor = getattr(model.get_submodule(layer), last)
    return tensor
