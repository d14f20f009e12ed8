"""Sharded parameters (DTensor, as FSDP2 makes them): this process's part, and sums over processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import is_available as _distributed_is_available

if _distributed_is_available():
    from torch.distributed.tensor import DTensor, Partial, Replicate
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
else:
    DTensor = None  # type: ignore[assignment, misc]


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds; the tensor itself unless it is sharded."""
    return tensor._local_tensor if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def sharding(tensor: Tensor) -> Any:
    """How a tensor is spread over processes: mesh and placements, which compare and hash; None if it is whole."""
    return (tensor.device_mesh, tensor.placements) if is_sharded(tensor) else None  # type: ignore[attr-defined]


def totals(values: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Sums over this process's shards, one for each parameter -> sums over the whole parameters."""
    if not any(is_sharded(p) for p in parameters):
        return values
    alike: dict[Any, list[int]] = {}  # one collective for all parameters that are sharded alike
    for i, p in enumerate(parameters):
        if (key := sharding(p)) is not None:
            alike.setdefault(key, []).append(i)
    whole = values
    for spread, members in alike.items():
        if len(members) == len(parameters):  # as FSDP2 does it: no index tensor, so no host sync
            return total(values, spread)
        sums = total(values[members], spread)
        whole = whole.index_copy(0, torch.tensor(members, device=whole.device), sums)
    return whole


def total(value: Tensor, sharding: Any) -> Tensor:
    """A sum over this process's shard -> the sum over the whole tensor, which is spread as ``sharding`` says."""
    if sharding is None:
        return value
    mesh, placements = sharding
    return DTensor.from_local(value, mesh, _partial(placements)).full_tensor()


def _partial(placements: Any) -> list[Any]:
    """How sums over shards are spread: a part of the sum where the tensor was cut, the same where it was copied."""
    return [Replicate() if placement.is_replicate() else Partial() for placement in placements]


def is_sharded(tensor: Tensor) -> bool:
    return DTensor is not None and isinstance(tensor, DTensor)


def extent(tensor: Tensor, dim: int) -> slice:
    """Where this process's part of a tensor lies along a dimension."""
    if not is_sharded(tensor):
        return slice(0, tensor.shape[dim])
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)  # type: ignore[attr-defined]
    return slice(offset[dim], offset[dim] + shape[dim])


def cuts(tensor: Tensor, dim: int, step: int) -> bool:
    """Whether processes hold parts of a tensor whose ends along a dimension are no multiples of ``step``."""
    if not is_sharded(tensor) or dim >= tensor.ndim:
        return False
    mesh, placements = sharding(tensor)
    over = [mesh.size(i) for i, placement in enumerate(placements) if placement.is_shard(dim)]
    size = tensor.shape[dim]
    for parts in over:
        size = -(-size // parts)
        if size < tensor.shape[dim] and size % step:
            return True
    return False
