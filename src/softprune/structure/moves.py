"""Rules for operations that move elements: the same operation moves their labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from softprune.structure.labels import FIXED, changes_along, unflatten
from softprune.structure.record import Call, Record
from softprune.structure.state import Leaves, State, tensors

SAME = {"clone", "alias", "detach", "_to_copy", "contiguous", "lift_fresh", "lift_fresh_copy", "_conj", "resolve_conj"}
VIEWS = {"view", "_unsafe_view", "reshape", "_reshape_alias"}
MOVES = {
    "unsqueeze", "squeeze", "permute", "transpose", "t", "expand", "slice", "select", "split", "split_with_sizes",
    "unsafe_split", "unbind", "repeat", "repeat_interleave", "flip", "roll", "diagonal", "unfold", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", "index", "index_select", "gather",
}  # fmt: skip
JOINS = {"cat", "stack"}


def same(record: Record, call: Call) -> State:
    return record.states.raw(call.inputs[0])


def view(record: Record, call: Call) -> State:
    """A dimension that is split in two: units go in whole rows or whole columns."""
    state = record.states.raw(call["self"])
    if call.out.dtype != call["self"].dtype:
        record.fix(call["self"])
        return None
    if isinstance(state, Leaves):
        return state.move(lambda labels: labels.reshape(call.shape))
    if state is None:
        return None
    labels = state.reshape(call.shape)
    record.ties.grid(labels)
    return labels


def move(record: Record, call: Call) -> list[State]:
    state = record.states.raw(call["self"])
    for index in call.inputs[1:]:
        record.fix(index)
    if state is None:
        return [None]
    if isinstance(state, Tensor):
        return list(tensors(again(call, keep_whole(record, call, state))))
    moved = [list(tensors(again(call, labels))) for _, labels in state.axes]
    return [
        Leaves(tuple((leaf, parts[i]) for (leaf, _), parts in zip(state.axes, moved, strict=True)))
        for i in range(len(list(tensors(call.out))))
    ]


def again(call: Call, labels: Tensor) -> Any:
    """The operation, with the labels in the place of the tensor that it moves. Labels live on the CPU."""
    arguments = {name: _cpu(value) for name, value in call.arguments.items() if name != "self"}
    return call.overload(labels, **arguments)


def _cpu(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_cpu(part) for part in value]
    return value.cpu() if isinstance(value, Tensor) else value


def keep_whole(record: Record, call: Call, labels: Tensor) -> Tensor:
    """What such an operation asks of the units, so that it still does the same when some have gone; their labels."""
    sizes = {part.shape[call["dim"] or 0] for part in tensors(call.out)} if "split" in call.name else set()
    if len(sizes) == 1:  # equal parts, which stay equally large
        dim = (call["dim"] or 0) % labels.dim()
        record.ties.grid(unflatten(labels, dim, len(list(tensors(call.out)))), tie=dim)
    elif call.name in ("channel_shuffle", "native_channel_shuffle"):
        record.ties.grid(unflatten(labels, 1, call["groups"]), tie=1)
    elif call.name == "pixel_shuffle":
        rows = labels.size(-3) // call["upscale_factor"] ** 2
        tied = record.ties.tie_along(unflatten(labels, -3, rows), [labels.dim() - 2])
        labels = tied.expand_as(unflatten(labels, -3, rows)).reshape(labels.shape)
    elif call.name in ("index_select", "gather"):
        record.ties.wall(labels, [call["dim"] % labels.dim()])
    elif call.name == "index":
        record.ties.wall(labels, [d for d, index in enumerate(call["indices"]) if index is not None])
    return labels


def join(record: Record, call: Call) -> State:
    """Tensors side by side. What belongs to no unit is FIXED beside what does."""
    parts = call["tensors"]
    if not any(isinstance(record.states[x], Tensor) for x in parts):
        for x in parts:
            record.fix(x)
        return None
    dim = (call["dim"] or 0) % len(call.shape)
    labels = getattr(torch, call.name)([record.labels_or_fixed(x) for x in parts], dim)
    record.ties.grid(labels, tie=dim)
    return labels  # type: ignore[no-any-return]


def pad(record: Record, call: Call) -> State:
    """Pixels that are added belong to the channel; channels that are added to nobody."""
    labels = record.labels(call["self"])
    if labels is None:
        return None
    changing = changes_along(labels)
    for place in range(len(call["pad"]) // 2):
        dim = labels.dim() - 1 - place
        before, after = call["pad"][2 * place : 2 * place + 2]
        if before < 0 or after < 0:
            labels = labels.narrow(dim, max(-before, 0), labels.size(dim) - max(-before, 0) - max(-after, 0))
        before, after = max(before, 0), max(after, 0)
        if dim not in changing:
            shape = [n + before + after if d == dim else n for d, n in enumerate(labels.shape)]
            labels = labels.narrow(dim, 0, 1).expand(shape)
        else:
            edges = [
                torch.full((), FIXED).expand(*labels.shape[:dim], n, *labels.shape[dim + 1 :]) for n in (before, after)
            ]
            labels = torch.cat([edges[0], labels, edges[1]], dim)
    return labels


def complex_pairs(record: Record, call: Call) -> State:
    """A complex number and its two parts are one unit."""
    labels = record.labels(call["self"])
    if labels is None:
        return None
    if call.name == "view_as_complex":
        return record.ties.tie_along(labels, [labels.dim() - 1]).squeeze(-1).expand(call.shape)
    return labels.unsqueeze(-1).expand(call.shape)
