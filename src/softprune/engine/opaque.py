"""A part of a network that torch runs: calls of aten in order, as data, so that it can be written to a file.

>>> part = Program(1, (torch.ones(2),), (Call(torch.ops.aten.add.Tensor, (Slot(0), Slot(1)), {}),), Slot(2))
>>> part(torch.zeros(2))
tensor([1., 1.])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Slot:
    """Stands for a tensor or a number that is known when the program runs: an input, a constant or a result."""

    index: int


@dataclass(frozen=True, eq=False)
class Call:
    """``target`` of the arguments, in which slots stand for what is computed."""

    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Program:
    """Slots are numbered: the inputs, the constants, then one for the result of each call."""

    inputs: int
    constants: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    output: Slot

    @cached_property
    def _finished(self) -> tuple[tuple[int, ...], ...]:
        """For each call, the slots that nobody reads after it."""
        last = {self.output.index: len(self.calls)}
        for number, call in reversed(list(enumerate(self.calls))):
            for slot in slots((call.args, call.kwargs)):
                last.setdefault(slot.index, number)
        ends: list[list[int]] = [[] for _ in self.calls]
        for index, number in last.items():
            if number < len(self.calls):
                ends[number].append(index)
        return tuple(map(tuple, ends))

    @cached_property
    def for_sizes(self) -> frozenset[int]:
        """The inputs of which nothing but sizes is read."""
        calls = [call for call in self.calls if call.target is not torch.ops.aten.sym_size.int]
        read = {self.output.index, *(slot.index for call in calls for slot in slots((call.args, call.kwargs)))}
        return frozenset(range(self.inputs)) - read

    def __call__(self, *inputs: Tensor) -> Tensor:
        values: list[Any] = [*inputs, *self.constants]
        for call, finished in zip(self.calls, self._finished, strict=True):
            args, kwargs = substitute((call.args, call.kwargs), lambda leaf: values[leaf.index])
            values.append(call.target(*args, **kwargs))
            for index in finished:
                values[index] = None
        result: Tensor = values[self.output.index]
        return result

    def to(self, dtype: torch.dtype) -> Program:
        """The same in another precision: every floating-point tensor, made or held."""

        def cast(call: Call) -> Call:
            args, kwargs = substitute(
                (call.args, call.kwargs),
                lambda leaf: dtype if isinstance(leaf, torch.dtype) and leaf.is_floating_point else leaf,
                (Slot, torch.dtype),
            )
            return Call(call.target, args, kwargs)

        constants = tuple(c.to(dtype) if c.is_floating_point() else c for c in self.constants)
        return replace(self, constants=constants, calls=tuple(map(cast, self.calls)))


def substitute(tree: Any, change: Callable[[Any], Any], kinds: type | tuple[type, ...] = Slot) -> Any:
    """Arguments, with every leaf of some kinds changed."""
    if isinstance(tree, kinds):
        return change(tree)
    if type(tree) in (tuple, list):
        return type(tree)(substitute(item, change, kinds) for item in tree)
    if isinstance(tree, list | tuple):  # torch's immutable lists
        return [substitute(item, change, kinds) for item in tree]
    if isinstance(tree, dict):
        return {key: substitute(item, change, kinds) for key, item in tree.items()}
    return tree


def slots(tree: Any) -> list[Slot]:
    """The slots in some arguments."""
    found: list[Slot] = []
    substitute(tree, found.append)
    return found
