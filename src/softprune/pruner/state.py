"""The pruner's state by name, for those who save no optimizer: {name: {key: tensor or number}}.

The parameters of a trained threshold have no name that the pruner knows; they are ``threshold.0``, ``threshold.1``.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from softprune.attach.state import Entries
from softprune.errors import ArgumentError, ArgumentTypeError
from softprune.prox.base import Prox
from softprune.prox.group import Grouped
from softprune.prox.power import PowerThreshold
from softprune.prox.soft import SoftThreshold


def by_name(entries: Entries, params: Mapping[str, Tensor], trained: Sequence[Tensor]) -> dict[str, dict[str, Any]]:
    return {name: dict(entries[p]) for name, p in _owners(params, trained).items()}


def by_parameter(state_dict: Mapping[str, Any], params: Mapping[str, Tensor], trained: Sequence[Tensor]) -> Entries:
    if not isinstance(state_dict, Mapping):
        raise ArgumentTypeError(f"`Pruner.load_state_dict` takes a mapping. Got {type(state_dict).__name__}.")
    if {"step", "theta", "threshold", "values", "control"} <= state_dict.keys():
        state_dict = _of_version_0(state_dict)
    if not all(isinstance(values, Mapping) for values in state_dict.values()):
        raise ArgumentError("Cannot load this state: `Pruner.state_dict()` did not give it.")
    owners = _owners(params, trained)
    if others := [name for name in state_dict if name.startswith("threshold.") and name not in owners]:
        raise ArgumentError(
            f"Cannot load this state: it holds {', '.join(others)} of another threshold. Build the Pruner with the "
            "threshold of that run."
        )
    return {p: dict(state_dict.get(name, {})) for name, p in owners.items()}


def of_the_rule(entries: Entries) -> Entries:
    """What the threshold saved, without what the pruner itself did: θ, the step, and the mark and scale of its prox."""
    own = ("theta", "step", "prox", "scale")
    return {p: {key: value for key, value in values.items() if key not in own} for p, values in entries.items()}


def mark(prox: Prox) -> int:
    """A number by which a saved state tells which prox it was made with: of its name and its numbers."""
    if isinstance(prox, Grouped):
        return zlib.crc32(repr((mark(prox.scalar), prox.partition.mark)).encode()) & 0xFFFFFF
    if prox == PowerThreshold(1):
        prox = SoftThreshold()  # the same numbers
    values: list[object] = [getattr(prox, field.name) for field in fields(prox)] if is_dataclass(prox) else []
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    return zlib.crc32(repr((type(prox).__name__, numbers)).encode()) & 0xFFFFFF  # single precision can hold it


def _owners(params: Mapping[str, Tensor], trained: Sequence[Tensor]) -> dict[str, Tensor]:
    return {**params, **{f"threshold.{i}": p for i, p in enumerate(trained)}}


def _of_version_0(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What was saved before November 2026: one mapping for each key."""
    entries: dict[str, dict[str, Any]] = {
        name: {"theta": theta, "step": state["step"]} for name, theta in state["theta"].items()
    }
    for name, d in (state["threshold"] or {}).items():
        entries[name]["threshold"] = d
    first = next(iter(entries.values()), {})
    first.update({f"control.{key}": value for key, value in state["control"].items()})
    return {**entries, **{f"threshold.{i}": {"value": value} for i, value in enumerate(state["values"])}}
