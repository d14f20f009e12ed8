"""What rules read and write: the call of an operation, and the record of everything seen so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from softprune.structure.labels import FIXED, Ties, changes_along, neighbours, pairs, together
from softprune.structure.state import Leaf, Leaves, State, States, tensors


class Kind(StrEnum):
    """What a unit is."""

    CHANNEL = "channel"  # made by a convolution
    NEURON = "neuron"  # made by a linear layer or an embedding
    HEAD = "head"  # merged by attention


@dataclass(frozen=True)
class Call:
    """An operation that has just run."""

    name: str
    arguments: dict[str, Any]
    out: Any
    overload: Any

    @classmethod
    def of(cls, func: Any, args: Any, kwargs: Any, out: Any) -> Call:
        expected = func._schema.arguments
        arguments = {argument.name: argument.default_value for argument in expected}
        arguments |= dict(zip(arguments, args, strict=False)) | kwargs
        name = func._schema.name.split("::")[1].removesuffix("_")
        if name == "as_strided" and _in_order(out):
            name = "alias"  # other strides of dimensions that have one index, as after pooling in channels_last
        return cls(name, arguments, out, func)

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    @property
    def inputs(self) -> list[Tensor]:
        return list(tensors(self.arguments))

    @property
    def shape(self) -> torch.Size:
        return next(tensors(self.out)).shape


def _in_order(x: Tensor) -> bool:
    """Whether all elements of its memory follow each other as in a contiguous tensor."""
    plain = torch.empty(x.shape, device="meta").stride()
    steps = zip(x.shape, x.stride(), plain, strict=True)
    return x.untyped_storage().nbytes() == x.nbytes and all(a == b for n, a, b in steps if n > 1)


@dataclass(frozen=True)
class Meeting:
    """A parameter was added to or multiplied with an activation, element by element.

    Its dimension follows the units if each index meets one unit alone. Else it cannot become smaller, and units that
    differ along it must stay.
    """

    leaf: Leaf
    pairs: Tensor
    walls: Tensor


@dataclass
class Record:
    """Everything seen so far."""

    ties: Ties
    states: States
    meetings: list[Meeting] = field(default_factory=list)
    makers: dict[Leaf, Kind] = field(default_factory=dict)
    readers: set[Leaf] = field(default_factory=set)
    followers: set[Leaf] = field(default_factory=set)
    heads: list[Tensor] = field(default_factory=list)
    unknown: dict[str, None] = field(default_factory=dict)

    def labels(self, tensor: Tensor) -> Tensor | None:
        """The labels of an activation. A parameter that is used as one: those of its last dimension."""
        state = self.states[tensor]
        if not isinstance(state, Leaves):
            return state
        axes = [(leaf, labels) for leaf, labels in state.axes if leaf.parameter and len(changes_along(labels)) == 1]
        self.fix_others(state, axes[-1:])
        if not axes:
            return None
        leaf, labels = axes[-1]
        self.makers.setdefault(leaf, Kind.NEURON)
        return labels

    def labels_or_fixed(self, tensor: Tensor) -> Tensor:
        """The same, FIXED if it has none."""
        labels = self.labels(tensor)
        return torch.full((1,) * tensor.dim(), FIXED).expand(tensor.shape) if labels is None else labels

    def fix(self, tensor: Tensor) -> None:
        """All units of a tensor must stay."""
        state = self.states[tensor]
        if isinstance(state, Leaves):
            for _, labels in state.axes:
                self.ties.fix(labels)
        elif state is not None:
            self.ties.fix(state)

    def fix_others(self, leaves: Leaves, used: Iterable[tuple[Leaf, Tensor]]) -> None:
        """Of a parameter, the dimensions that are not those ``used`` here cannot become smaller."""
        known = {leaf for leaf, _ in used}
        for leaf, labels in leaves.axes:
            if leaf not in known:
                self.ties.fix(labels)

    def follow(self, parameter: Tensor | None, units: Tensor) -> None:
        """A parameter of one dimension has one number for each of the units: the scale of a norm, a bias."""
        if parameter is None:
            return
        state = self.states[parameter]
        axes = state.along(0) if isinstance(state, Leaves) and parameter.dim() == 1 else []
        for leaf, labels in axes:
            self.ties.tie(labels, units)
            self.followers.add(leaf)
        if not axes:
            self.ties.wall(units, range(units.dim()))

    def meet(self, leaves: Leaves, units: Tensor) -> None:
        """A parameter and an activation of the same shape meet element by element."""
        for leaf, labels in leaves.axes:
            dims = changes_along(labels)
            if dims:
                a, b = together([labels, units], units.shape)
                self.meetings.append(Meeting(leaf, pairs(a, b), neighbours(units, dims)))

    def read(self, axes: Iterable[tuple[Leaf, Tensor]], units: Tensor) -> None:
        """The units are summed over along these dimensions of parameters."""
        axes = list(axes)
        for leaf, labels in axes:
            self.ties.tie(labels, units)
            self.readers.add(leaf)
        if not axes:
            self.ties.fix(units)

    def make(self, axes: Iterable[tuple[Leaf, Tensor]], kind: Kind) -> Tensor | None:
        """Units that these dimensions of parameters make: their labels, or None if none can go."""
        axes = list(axes)
        for leaf, labels in axes:
            self.makers.setdefault(leaf, kind)
            self.ties.tie(labels, axes[0][1])
        return axes[0][1] if axes else None


def along(labels: Tensor | None, dim: int, shape: torch.Size) -> State:
    """Labels of one dimension, for a tensor of this shape."""
    if labels is None:
        return None
    return labels.view([-1 if d == dim % len(shape) else 1 for d in range(len(shape))]).expand(shape)
