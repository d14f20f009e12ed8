"""Rules for operations that compute an element from elements at the same place, or from all along a dimension."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from softprune.structure.labels import changes_along, together, unflatten
from softprune.structure.record import Call, Record
from softprune.structure.state import Leaves, State

UNTAGGED = {"copy", "masked_fill", "_prelu_kernel", "hardswish", "log_sigmoid_forward"}
"""Element by element, though torch does not say so."""


def pointwise(record: Record, call: Call) -> State:
    """Operands that meet are one unit."""
    return meet(record, call.inputs, call.shape)


def meet(record: Record, operands: Sequence[Tensor], shape: torch.Size) -> State:
    """The units of operands that are combined element by element, broadcast to the shape.

    - Two activations: their units are the same. But one with a single unit, which is broadcast against many (a norm, a
      gate), is no partner of any of them: it must stay.
    - A parameter follows.
    - Constants do not change size: units that differ along a dimension which a constant has too must stay.
    """
    states = [(x, record.states[x]) for x in operands]
    leaves = [s for _, s in states if isinstance(s, Leaves)]
    active = [(x, s) for x, s in states if isinstance(s, Tensor)]
    constant = [x for x, s in states if s is None]
    if not active:
        if leaves and all(x.numel() == 1 for x in constant) and all(x.is_floating_point() for x in operands):
            return Leaves(tuple((leaf, labels.expand(shape)) for s in leaves for leaf, labels in s.axes))
        for x in operands:
            record.fix(x)
        return None
    many = [(x, s) for x, s in active if changes_along(s)]
    if many:
        for x, s in active:
            if not changes_along(s):
                record.ties.fix(s)
                constant.append(x)
    labels = together([s for _, s in many or active], shape)
    for other in labels[1:]:
        record.ties.tie(labels[0], other)
    units = labels[0].expand(shape)
    for parameters in leaves:
        record.meet(parameters.move(lambda x: x.expand(shape)), units)
    for x in constant:
        start = len(shape) - x.dim()
        record.ties.wall(units, [start + d for d, size in enumerate(x.shape) if size > 1])
    return units


def reduction(record: Record, call: Call) -> State:
    """What is summed, averaged or compared together stays or goes together."""
    x = call["self"]
    labels = record.labels(x)
    if labels is None:
        return None
    dims = call["dim"]
    dims = [dims] if isinstance(dims, int) else list(dims or range(x.dim()))
    dims = [dim % x.dim() for dim in dims]
    units = record.ties.tie_along(labels, dims)
    units = units.expand([1 if d in dims else size for d, size in enumerate(x.shape)])
    return units if call["keepdim"] else units.reshape(call.shape)


def softmax(record: Record, call: Call) -> State:
    """Each depends on all along a dimension, which stay or go together."""
    labels = record.labels(call["self"])
    if labels is not None:
        record.ties.tie_along(labels, [call["dim"] % labels.dim()])
    return labels


def spatial(record: Record, call: Call) -> State:
    """Pools, and operations that resize: every channel by itself, from all of its pixels."""
    x = call["self"] if call["self"] is not None else call["input"]
    labels = record.labels(x)
    if labels is None:
        return None
    space = next(int(number) for number in "123" if f"{number}d" in call.name)
    units = record.ties.tie_along(labels, range(x.dim() - space, x.dim()))
    return units.expand(call.shape)


def glu(record: Record, call: Call) -> State:
    """The first half times the sigmoid of the second."""
    labels = record.labels(call["self"])
    if labels is None:
        return None
    first, second = labels.chunk(2, call["dim"])
    record.ties.tie(*together([first, second], call.shape))
    return first


def batch_norm(record: Record, call: Call) -> State:
    """Every channel by itself; scale, shift and statistics follow."""
    x, *others = call.inputs
    labels = record.labels_or_fixed(x)
    units = record.ties.tie_along(labels, [d for d in range(x.dim()) if d != 1]).flatten()
    for parameter in others:
        record.follow(parameter, units.expand(x.shape[1]))
    return record.labels(x)


def layer_norm(record: Record, call: Call) -> State:
    """All that one norm is taken of stays or goes together."""
    x = call["input"]
    labels = record.labels(x)
    if labels is None:
        return None
    record.ties.tie_along(labels, range(x.dim() - len(call["normalized_shape"]), x.dim()))
    record.states[x] = labels
    return meet(record, [t for t in (x, call["weight"], call["bias"]) if t is not None], x.shape)


def group_norm(record: Record, call: Call) -> State:
    """The channels of a group stay or go together."""
    x = call["input"]
    labels = record.labels(x)
    if labels is not None:
        grouped = unflatten(labels, 1, call["group"])
        record.ties.tie_along(grouped, [d for d in range(grouped.dim()) if d != 1])
    units = record.labels_or_fixed(x)
    for parameter in (call["weight"], call["bias"]):
        record.follow(parameter, record.ties.tie_along(units, [d for d in range(x.dim()) if d != 1]).flatten())
    return labels
