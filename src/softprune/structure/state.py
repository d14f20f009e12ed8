"""What is known of each tensor while a network runs, and how it is kept.

- ``Tensor``: labels, of the same shape: an activation.
- ``Leaves``: a value that parameters or buffers alone determine, element by element.
- None: it belongs to no unit, and no dimension of it can become smaller: inputs, masks, positions, constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from softprune.structure.labels import FIXED, Ties, changes_along, compact


@dataclass(frozen=True)
class Leaf:
    """A dimension of a parameter or buffer, whose indices have the labels ``first``, ``first`` + 1, ..."""

    name: str
    dim: int
    first: int
    size: int
    parameter: bool


@dataclass(frozen=True)
class Leaves:
    """Where in its parameters each element comes from: for each of their dimensions, the label of its index."""

    axes: tuple[tuple[Leaf, Tensor], ...]

    def move(self, move: Callable[[Tensor], Tensor]) -> Leaves:
        return Leaves(tuple((leaf, move(labels)) for leaf, labels in self.axes))

    def along(self, dim: int) -> list[tuple[Leaf, Tensor]]:
        """The dimensions of parameters that lie along this one, one of each parameter, and the labels along it."""
        found: dict[str, tuple[Leaf, Tensor]] = {}
        for leaf, labels in self.axes:
            if changes_along(labels) == [dim % labels.dim()] and leaf.name not in found:
                rest = labels.movedim(dim, 0).flatten(1)[:, 0] if labels.dim() > 1 else labels
                found[leaf.name] = leaf, rest
        return list(found.values())

    @property
    def weight(self) -> bool:
        """Whether it is learned; a product with a buffer makes no units."""
        return any(leaf.parameter for leaf, _ in self.axes)


State = Tensor | Leaves | None


class States:
    """The states of all tensors that are alive, and of the parameters and buffers of a model."""

    def __init__(self, model: nn.Module, ties: Ties) -> None:
        self.leaves: list[Leaf] = []
        self._states: Any = WeakTensorKeyDictionary()
        parameters = dict(model.named_parameters())
        for name, tensor in (parameters | dict(model.named_buffers())).items():
            axes = []
            for dim, size in enumerate(tensor.shape):
                labels = ties.new(size)
                leaf = Leaf(name, dim, ties.size - size, size, name in parameters)
                shape = [size if d == dim else 1 for d in range(tensor.dim())]
                axes.append((leaf, labels.view(shape).expand(tensor.shape)))
                self.leaves.append(leaf)
            self._states[tensor] = Leaves(tuple(axes))

    def __getitem__(self, tensor: Tensor) -> State:
        state = self._states.get(tensor)
        if isinstance(state, Tensor):
            small = compact(state)
            if not bool((small >= 0).any()):
                return None
            if bool((small < 0).any()):
                return state.clamp(min=FIXED)
        return state  # type: ignore[no-any-return]

    def __setitem__(self, tensor: Tensor, state: State) -> None:
        """Views of labels share memory as views of tensors do, so what is written into one is seen in the other."""
        old = self._states.get(tensor)
        if isinstance(old, Tensor) and isinstance(state, Tensor) and old.shape == state.shape and old.is_contiguous():
            old.copy_(old.where(old >= 0, state))
        elif state is not None:
            self._states[tensor] = state

    def raw(self, tensor: Tensor) -> State:
        """With -1 where nothing was written yet, and the memory that is shared."""
        return self._states.get(tensor)  # type: ignore[no-any-return]


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of nested lists, mappings and dataclasses, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            yield from tensors(part)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))


def changed(example: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The example of a call with other tensors; what is no tensor stays."""
    if isinstance(example, Tensor):
        return change(example)
    if isinstance(example, Mapping):
        return {name: changed(value, change) for name, value in example.items()}
    if isinstance(example, tuple | list):
        return type(example)(changed(value, change) for value in example)
    return example
