"""Columns: one level (d, or k) for each pruned parameter.

A column is a list where the host knows its numbers, and a vector on the device where they are trained, so that no step
waits for the device. A level may also be a tensor of its parameter's shape: a threshold for each weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

Level = float | Tensor
"""What one parameter's prox is given: a number, a 0-dimensional tensor, or one number for each weight."""

Column = Sequence[Level] | Tensor
"""One level for each parameter: a list known to the host, or a vector on the device."""

Columns = tuple[Column, ...]
"""All that a prox reads: ``(d,)``, or ``(d, k)`` for GPO."""


def take(column: Any, indices: list[int]) -> Any:
    """Part of a column, without an index tensor, so without a host sync."""
    if len(indices) == len(column):
        return column
    part = [column[i] for i in indices]
    return torch.stack(part) if isinstance(column, Tensor) else part


def beside(level: Any, tensor: Tensor) -> Any:
    """A level on the tensor's device: trained thresholds stay where they are when a network moves away."""
    return level.to(tensor.device) if isinstance(level, Tensor) else level


def typed(level: Level, like: Tensor) -> Tensor:
    """A level as a number of the tensor's type. A number is put on the CPU, whatever torch's default device is, and
    works beside tensors of any device."""
    if isinstance(level, Tensor):
        return level.to(like.dtype)
    return torch.tensor(level, dtype=like.dtype, device="cpu")


def placed(column: Column, tensors: Sequence[Tensor]) -> Iterable[Any]:
    """A column's levels, each beside its tensor."""
    if is_scalar(column) and not isinstance(column, Tensor):
        return column
    return [beside(level, tensor) for level, tensor in zip(column, tensors, strict=True)]


def is_scalar(column: Column) -> bool:
    """Whether a column has one number for each parameter, not one for each weight."""
    return isinstance(column, Tensor) or not any(isinstance(level, Tensor) for level in column)


def floats(column: Column) -> list[float]:
    """A column, read by the host; means where each weight has a level of its own, of those that are finite."""
    if isinstance(column, Tensor):
        return [float(x) for x in column.tolist()]
    return [_mean(level) if isinstance(level, Tensor) else float(level) for level in column]


def _mean(level: Tensor) -> float:
    finite = level[level.isfinite()]
    return float(finite.mean()) if finite.numel() else 0.0
