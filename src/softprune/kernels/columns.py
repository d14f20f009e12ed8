"""Columns: one level (d, or k) for each pruned parameter.

A column is a list of numbers where the host knows them, and a vector on the device where they are trained, so that no
step waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

Column = Sequence[float] | Tensor
"""One level for each parameter: numbers known to the host, or a vector on the device."""

Columns = tuple[Column, ...]
"""All that a prox asks for: ``(d,)``, or ``(d, k)`` for GPO."""


def take(column: Any, indices: list[int]) -> Any:
    """Part of a column, without making the device wait for an index."""
    if len(indices) == len(column):
        return column
    part = [column[i] for i in indices]
    return torch.stack(part) if isinstance(column, Tensor) else part


def beside(level: Any, tensor: Tensor) -> Any:
    """A level on the tensor's device: trained thresholds stay where they are when a network moves away."""
    return level.to(tensor.device) if isinstance(level, Tensor) else level


def levels(column: Column, tensors: Sequence[Tensor]) -> Iterable[Any]:
    """A column's levels, each beside its tensor."""
    if not isinstance(column, Tensor):
        return column
    return [beside(level, tensor) for level, tensor in zip(column.unbind(), tensors, strict=True)]


def rest(k: Any, like: Tensor) -> Tensor:
    """1 − k as a number of the tensor's type: torch would round it on one device and not on another."""
    return torch.as_tensor(1 - k, dtype=like.dtype)


def floats(column: Column) -> list[float]:
    """A column, read by the host."""
    return [float(x) for x in (column.tolist() if isinstance(column, Tensor) else column)]
