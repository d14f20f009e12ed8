"""Rules for products: with a parameter, which reads the units of one side and makes new ones; of two activations."""

from __future__ import annotations

import torch
from torch import Tensor

from softprune.structure.labels import FIXED, broadcast
from softprune.structure.pointwise import meet
from softprune.structure.record import Call, Kind, Record, along
from softprune.structure.state import Leaves, State


def matrix_product(record: Record, call: Call) -> State:
    """mm, bmm, mv, and the same with something added."""
    added, a, b = call["self"], call["mat2"], call["vec"]
    if call.name in ("addmm", "_addmm_activation"):
        a, b = call["mat1"], call["mat2"]
    elif call.name == "baddbmm":
        a, b = call["batch1"], call["batch2"]
    elif call.name == "addmv":
        a, b = call["mat"], call["vec"]
    else:
        added, a, b = None, call["self"], b if a is None else a
    units = product(record, a, b, call.shape)
    if added is None:
        return units
    if units is not None:
        record.states[call.out] = units
        return meet(record, [call.out, added], call.shape)
    record.fix(added)
    return None


def product(record: Record, a: Tensor, b: Tensor, shape: torch.Size) -> State:
    """The units of a @ b."""
    left, right = record.states[a], record.states[b]
    if isinstance(right, Leaves) and right.weight and not isinstance(left, Leaves):
        read, make = (-2, -1) if b.dim() > 1 else (0, None)
        return with_weight(record, a, a.dim() - 1, right, read, make, shape, -1)
    if isinstance(left, Leaves) and left.weight and not isinstance(right, Leaves):
        return with_weight(record, b, max(b.dim() - 2, 0), left, -1, -2, shape, -2 if b.dim() > 1 else -1)
    for x, s in ((a, left), (b, right)):
        if isinstance(s, Leaves):
            record.fix(x)
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return attend(record, [left, right], shape)
    if isinstance(left, Tensor):
        record.ties.wall(left, [d for d in range(a.dim()) if d != a.dim() - 2])
        units = record.ties.tie_along(left, [a.dim() - 1])
        return (units if b.dim() > 1 else units.squeeze(-1)).expand(shape)
    if isinstance(right, Tensor):
        record.ties.wall(right, [d for d in range(b.dim()) if d != b.dim() - 1 or b.dim() == 1])
        units = record.ties.tie_along(right, [max(b.dim() - 2, 0)])
        return units.expand(shape)
    return None


def with_weight(
    record: Record, x: Tensor, summed: int, weight: Leaves, read: int, make: int | None, shape: torch.Size, out: int
) -> State:
    """A linear layer: ``x`` is summed over along one of its dimensions, ``out`` is the one that is made."""
    labels = record.labels_or_fixed(x)
    units = record.ties.tie_along(labels, [d for d in range(x.dim()) if d != summed]).flatten()
    reads, makes = weight.along(read), [] if make is None else weight.along(make)
    record.fix_others(weight, [*reads, *makes])
    record.read(reads, units)
    return along(record.make(makes, Kind.NEURON), out, shape)


def attend(record: Record, sides: list[Tensor], shape: torch.Size) -> Tensor:
    """All that is multiplied within one element of the batch is one unit: a head."""
    units = [record.ties.tie_along(labels, [labels.dim() - 2, labels.dim() - 1]) for labels in sides]
    units = broadcast(units)
    for other in units[1:]:
        record.ties.tie(units[0], other)
    if units[0].dim() > 2:
        record.heads.append(torch.unique(units[0]))
    return units[0].expand(shape)


def attention(record: Record, call: Call) -> list[State]:
    """softmax(q kᵀ + mask) v. A key and value that several queries share is one unit with them."""
    q, k, v = call["query"], call["key"], call["value"]
    labels = [record.labels(x) for x in (q, k, v)]
    known = []
    for x, s in zip((q, k, v), labels, strict=True):
        if s is not None:
            known.append(s.repeat_interleave(q.size(-3) // x.size(-3), -3) if q.dim() > 3 else s)
    if not known:
        return [None]
    units = attend(record, known, call.shape)
    if len(known) < 3:
        record.ties.wall(units, range(units.dim()))
    mask = call["attn_mask"] if call["attn_bias"] is None else call["attn_bias"]
    if mask is not None:
        shape = torch.Size([*q.shape[:-1], k.shape[-2]])
        scores = torch.empty(shape, device="meta")
        record.states[scores] = units[..., :1].expand(shape)
        meet(record, [scores, mask], shape)
    return [units]


def convolution(record: Record, call: Call) -> State:
    """An input channel is read, an output channel is made.

    The groups of a grouped convolution must stay equally large, so the channels at the same place of all groups are
    one unit. In a depthwise convolution the output is the unit of its input.
    """
    x, weight, groups, transposed = call["input"], call["weight"], call["groups"], call["transposed"]
    state = record.states[weight]
    if not isinstance(state, Leaves) or not state.weight:
        for tensor in call.inputs:
            record.fix(tensor)
        return None
    units = record.ties.tie_along(record.labels_or_fixed(x), [d for d in range(x.dim()) if d != 1]).flatten()
    units = units.expand(x.shape[1])
    reads, makes = (state.along(dim) for dim in ((0, 1) if transposed else (1, 0)))
    record.fix_others(state, [*reads, *makes])
    made: Tensor | None
    if groups == x.shape[1] and groups > 1:
        made = units.repeat_interleave(call.shape[1] // groups)
        for leaf, labels in state.along(0):
            record.ties.tie(labels, units if transposed else made)
            record.followers.add(leaf)
    else:
        if groups > 1:
            units = record.ties.tie_along(units.view(groups, -1), [0]).flatten()
            units = units.repeat(groups) if transposed else units
        record.read(reads, units)
        made = record.make(makes, Kind.CHANNEL)
        if made is not None and groups > 1:
            if transposed:
                made = made.repeat(groups)
            else:
                record.ties.tie_along(made.view(groups, -1), [0])
    if made is None:
        made = torch.full((1,), FIXED).expand(call.shape[1])
    record.follow(call["bias"], made)
    return along(made, 1, call.shape) if bool((made != FIXED).any()) else None


def embedding(record: Record, call: Call) -> State:
    """The columns of the table are units; its rows are chosen by number, so they stay."""
    record.fix(call["indices"])
    state = record.states[call["weight"]]
    if isinstance(state, Leaves) and state.weight:
        makes = state.along(1)
        record.fix_others(state, makes)
        return along(record.make(makes, Kind.NEURON), -1, call.shape)
    record.fix(call["weight"])
    return None
