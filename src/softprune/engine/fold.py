"""A smaller graph that computes the same: what follows a layer becomes part of it.

    layer, affine                     the layer with other weights (batch normalisation)
    affine, layer without padding     the layer with other weights
    layer or sum, activation          the layer or the sum with an activation
    layer, sum [, activation]         the layer with a residual, which is its second input
    pool of single pixels             nothing
    attention among calls of torch    one operation (``attention``)

All of this only where nobody else reads what lies between. An affine that is left is a depthwise convolution of one
pixel, or torch's. New weights are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from softprune.engine.attention import find_attention
from softprune.engine.graph import (
    Activation,
    Add,
    Affine,
    Apply,
    Convolution,
    Graph,
    Linear,
    Opaque,
    Operation,
    Pool,
)
from softprune.engine.opaque import Call, Program, Slot

Layer = Convolution | Linear


def fold(graph: Graph) -> Graph:
    """The graph with fewer operations."""
    rules = (_single_pixels, _affine_after, _affine_before, _lone_affine, _activation, _residual, _activation)
    for rule in (*rules, find_attention):
        graph = rule(graph)
    return graph


def _pairs(graph: Graph, merge: Callable[[Operation, Operation], Operation | None]) -> Graph:
    """Replace an operation and its only reader by what ``merge`` makes of them, at the reader's place, where it can.

    What a layer is part of has the layer's name.
    """
    operations = {operation.name: operation for operation in graph.operations}
    readers = _readers(graph)
    names: dict[str, str] = {}
    for second in graph.operations:
        for name in dict.fromkeys(second.inputs):
            first = operations.get(name)
            if first is None or readers[name] != [second.name]:
                continue
            merged = merge(first, operations[second.name])
            if merged is None:
                continue
            del operations[name]
            operations[second.name] = merged
            if isinstance(first, Layer):
                names[second.name] = names.pop(name, name)
            for read in merged.inputs:
                readers[read] = [second.name if reader == name else reader for reader in readers[read]]
    return _renamed(_with(graph, list(operations.values())), names)


def _renamed(graph: Graph, names: dict[str, str]) -> Graph:
    def name(old: str) -> str:
        return names.get(old, old)

    operations = tuple(
        replace(operation, name=name(operation.name), inputs=tuple(map(name, operation.inputs)))
        for operation in graph.operations
    )
    shapes = {name(old): shape for old, shape in graph.shapes.items()}
    return replace(graph, operations=operations, outputs=tuple(map(name, graph.outputs)), shapes=shapes)


def _readers(graph: Graph) -> dict[str, list[str]]:
    """Who reads each value; the user reads the outputs."""
    readers: dict[str, list[str]] = {name: [] for name in graph.shapes}
    for operation in graph.operations:
        for name in dict.fromkeys(operation.inputs):
            readers[name].append(operation.name)
    for name in graph.outputs:
        readers[name].append("")
    return readers


def _with(graph: Graph, operations: list[Operation]) -> Graph:
    names = {*graph.inputs, *(operation.name for operation in operations)}
    shapes = {name: shape for name, shape in graph.shapes.items() if name in names}
    return replace(graph, operations=tuple(operations), shapes=shapes)


def _single_pixels(graph: Graph) -> Graph:
    """Without pools of windows of one pixel."""
    same: dict[str, str] = {}
    kept: list[Operation] = []
    for operation in graph.operations:
        operation = replace(operation, inputs=tuple(same.get(name, name) for name in operation.inputs))
        if (
            isinstance(operation, Pool)
            and operation.kernel == operation.stride == (1, 1)
            and not any(operation.padding)
        ):
            same[operation.name] = operation.inputs[0]
        else:
            kept.append(operation)
    outputs = tuple(same.get(name, name) for name in graph.outputs)
    return _with(replace(graph, outputs=outputs), kept)


def _affine_after(graph: Graph) -> Graph:
    def merge(first: Operation, second: Operation) -> Operation | None:
        if isinstance(second, Affine) and isinstance(first, Affine):
            bias = first.bias * second.weight + second.bias
            return replace(second, inputs=first.inputs, weight=first.weight * second.weight, bias=bias)
        if not (isinstance(second, Affine) and isinstance(first, Layer)) or len(first.inputs) > 1:
            return None
        if first.activation is not Activation.NONE:
            return None
        weight = first.weight.double() * _rows(second.weight, first.weight)
        bias = first.bias.double() * second.weight + second.bias
        return replace(first, name=second.name, weight=weight.to(first.weight), bias=bias.to(first.bias))

    return _pairs(graph, merge)


def _affine_before(graph: Graph) -> Graph:
    def merge(first: Operation, second: Operation) -> Operation | None:
        if not (isinstance(first, Affine) and isinstance(second, Layer)) or second.inputs[0] != first.name:
            return None
        if second.inputs.count(first.name) > 1:
            return None
        if isinstance(second, Convolution) and any(second.padding) and bool(first.bias.any()):
            return None  # at the border a zero is a zero, not the bias
        weight = second.weight.double()
        outputs, inputs = weight.shape[:2]
        groups = second.groups if isinstance(second, Convolution) else 1
        tail = [1] * (weight.dim() - 2)
        per = [tensor.view(groups, 1, inputs, *tail) for tensor in (first.weight, first.bias)]
        split = weight.view(groups, outputs // groups, *weight.shape[1:])
        bias = second.bias.double() + (split * per[1]).reshape(outputs, -1).sum(1)
        return replace(
            second,
            inputs=(*first.inputs, *second.inputs[1:]),
            weight=(split * per[0]).reshape(weight.shape).to(second.weight),
            bias=bias.to(second.bias),
        )

    return _pairs(graph, merge)


def _lone_affine(graph: Graph) -> Graph:
    """A depthwise convolution of one pixel for images, torch for the rest."""

    def change(operation: Operation) -> Operation:
        if not isinstance(operation, Affine):
            return operation
        weight, bias = operation.weight.to(operation.dtype), operation.bias.to(operation.dtype)
        if len(graph.shapes[operation.name]) == 4:
            channels = len(weight)
            return Convolution(operation.name, operation.inputs, weight.view(-1, 1, 1, 1), bias, groups=channels)
        aten = torch.ops.aten
        calls = (Call(aten.mul.Tensor, (Slot(0), Slot(1)), {}), Call(aten.add.Tensor, (Slot(3), Slot(2)), {}))
        return Opaque(operation.name, operation.inputs, "batch_norm", Program(1, (weight, bias), calls, Slot(4)))

    return _with(graph, [change(operation) for operation in graph.operations])


def _activation(graph: Graph) -> Graph:
    def merge(first: Operation, second: Operation) -> Operation | None:
        if not (isinstance(second, Apply) and isinstance(first, Layer | Add)):
            return None
        if first.activation is not Activation.NONE:
            return None
        return replace(first, name=second.name, activation=second.activation)

    return _pairs(graph, merge)


def _residual(graph: Graph) -> Graph:
    """The layer that comes last takes the sum. Tokens stay in floats between layers: there a sum remains a sum."""
    order = {operation.name: number for number, operation in enumerate(graph.operations)}

    def merge(first: Operation, second: Operation) -> Operation | None:
        if not (isinstance(second, Add) and isinstance(first, Layer)) or len(first.inputs) > 1:
            return None
        if first.activation is not Activation.NONE or len(graph.shapes[first.name]) == 3:
            return None
        if len(set(second.inputs)) < 2:
            return None
        (other,) = (name for name in second.inputs if name != first.name)
        last = max((name for name in second.inputs if candidate(name)), key=order.__getitem__)
        if last != first.name:
            return None
        return replace(first, name=second.name, inputs=(first.inputs[0], other), activation=second.activation)

    operations = {operation.name: operation for operation in graph.operations}
    readers = _readers(graph)

    def candidate(name: str) -> bool:
        layer = operations.get(name)
        plain = isinstance(layer, Layer) and len(layer.inputs) == 1 and layer.activation is Activation.NONE
        return plain and len(readers[name]) == 1

    return _pairs(graph, merge)


def _rows(scale: Tensor, weight: Tensor) -> Tensor:
    return scale.view(-1, *[1] * (weight.dim() - 1))
