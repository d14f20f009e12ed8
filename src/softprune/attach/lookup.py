"""What an optimizer knows of a parameter: its param group, its index in state dicts, its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor
from torch.optim import Optimizer

from softprune.errors import ArgumentError

LearningRate = float | Tensor
"""A learning rate: a number, or a tensor on a device, which only a host sync would read."""


def group_indices(optimizer: Optimizer, params: Iterable[Tensor]) -> list[int]:
    """For each parameter the index of its param group, whose learning rate it follows."""
    return _of_each(params, optimizer, {id(p): i for i, g in enumerate(optimizer.param_groups) for p in g["params"]})


def held_ids(optimizer: Optimizer) -> set[int]:
    """The ids of all parameters that the optimizer holds."""
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


def indices(optimizer: Optimizer, params: Iterable[Tensor]) -> list[int]:
    """For each parameter its index in the optimizer's state dicts."""
    held = (p for group in optimizer.param_groups for p in group["params"])
    return _of_each(params, optimizer, {id(p): n for n, p in enumerate(held)})


def _of_each(params: Iterable[Tensor], optimizer: Optimizer, table: Mapping[int, int]) -> list[int]:
    try:
        return [table[id(p)] for p in params]
    except KeyError:
        raise ArgumentError(
            f"The {type(optimizer).__name__} does not hold all of the parameters that are pruned. Call `detach()` "
            "before taking some away; and an `lr_scheduler` must be that of the same optimizer."
        ) from None


def rates(optimizer: Optimizer, params: Sequence[Tensor]) -> list[LearningRate]:
    """The learning rate of each parameter: that of its param group, wherever it is by now; nan if there is none.

    One on a device stays a tensor there: a copy, since schedulers write to it in place.
    """
    lrs = [_rate(group.get("lr")) for group in optimizer.param_groups]
    return [lrs[index] for index in group_indices(optimizer, params)]


def read(rates: Sequence[LearningRate]) -> list[float]:
    """Learning rates as numbers: one host sync for each that is on a device."""
    known = {id(rate): float(rate) for rate in rates}
    return [known[id(rate)] for rate in rates]


def require_lr(owner: str, optimizer: Optimizer) -> None:
    """Refuse an optimizer without a learning rate, for a threshold that follows it."""
    if any(group.get("lr") is None for group in optimizer.param_groups):
        raise ArgumentError(
            f"{owner} follows the learning rate, and {type(optimizer).__name__} has none: "
            "`lr` is missing in a param group. Use a schedule, or give the optimizer an `lr`."
        )


def on_host(lr: LearningRate) -> bool:
    """Whether a learning rate can be read without a host sync."""
    return not isinstance(lr, Tensor) or lr.device.type == "cpu"


def _rate(lr: LearningRate | None) -> LearningRate:
    if lr is None:
        return math.nan
    return float(lr) if on_host(lr) else lr.detach().clone()  # type: ignore[union-attr]
