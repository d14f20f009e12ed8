"""A graph and data become a graph in integers: scales and zero points are chosen here.

    wanted      which values are held in integers: those that end up in a layer
    choose      their scales, from ranges
    rows        one scale for the weights of each output channel
    corrected   biases that make up for the mean error of each channel
    quantize    all of it

Rounding weights shifts what a channel is on average, by the rounded weights times the mean of its inputs. The bias
takes that back: layer by layer, with everything before the layer already in integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from softprune.engine.calibrate import Extremes, LeastError, Ranges, Seen, batches, observe
from softprune.engine.equalize import equalize
from softprune.engine.graph import (
    Activation,
    Add,
    Apply,
    Concat,
    Convolution,
    Flatten,
    GlobalMean,
    Graph,
    Linear,
    Multiply,
    Operation,
    Pool,
)
from softprune.engine.quantized import (
    RESIDUAL_BITS,
    Integers,
    Precision,
    Quantized,
    Scale,
    is_table,
    whole_layer,
    whole_layer16,
)
from softprune.engine.run_torch import before, run
from softprune.errors import ArgumentError

Layer = Convolution | Linear
Finest = Callable[[Operation, dict[str, Scale], dict[str, tuple[int, ...]]], float]
CORRECTED_ON = 2**21  # numbers of the input, which are 14 photographs of 224 × 224 pixels; 16 to 256 samples
FACTOR = 7.99  # the largest of a residual's or a summand's scale to that of the sum
HEADROOM = 2.0  # of sums in 16 bits, which wrap


def quantize(
    graph: Graph,
    data: Any,
    precision: Precision = Precision.INT8,
    ranges: Ranges = LeastError(),
    correct: bool = True,
) -> Quantized:
    """The graph in integers.

    Args:
        graph: folded.
        data: for calibration: samples, or batches of them.
        precision: int8 or int16.
        ranges: how a range is chosen from the values seen; of int8 alone.
        correct: whether biases make up for mean errors; of int8 alone.
    """
    if precision is Precision.FP32:
        raise ArgumentError("`quantize(precision=...)` must be int8 or int16. fp32 has no integers.")
    if precision is Precision.INT16:
        graph = equalize(without_tables(graph), data)
        layers = [operation.name for operation in graph.operations if isinstance(operation, Layer)]
        scales = wide(graph, observe(graph, data, {*wanted(graph), *layers, *map(before, layers)}))
        whole = {op.name: _integers16(op, scales) for op in graph.operations if isinstance(op, Layer)}
        return Quantized(graph, scales, whole, precision)
    scales = choose(graph, observe(graph, data, {*wanted(graph), *tables(graph)}), ranges)
    weights = {op.name: rows(op, scales) for op in graph.operations if isinstance(op, Layer)}
    precise = corrected(graph, data, scales, weights) if correct else graph
    whole = {op.name: _integers(op, scales, weights[op.name]) for op in precise.operations if isinstance(op, Layer)}
    held = {name: scale for name, scale in scales.items() if name in graph.shapes}
    return Quantized(graph, held, whole, precision)


def wanted(graph: Graph) -> set[str]:
    """The values that are held in integers.

    A layer reads integers, and so do the operations between layers. What torch reads, and what the user gets, stays
    in floats; unless a layer has more to do than its sum, which it does in integers.
    """
    found: set[str] = set()
    for operation in reversed(graph.operations):
        if isinstance(operation, Layer):
            found.update(operation.inputs)
            if len(operation.inputs) > 1 or operation.activation is not Activation.NONE:
                found.add(operation.name)
        elif operation.name in found and isinstance(
            operation, Pool | GlobalMean | Add | Multiply | Concat | Apply | Flatten
        ):
            found.update(operation.inputs)
    return found


def tables(graph: Graph) -> list[str]:
    """What comes before those activations of layers that are tables."""
    layers = [operation for operation in graph.operations if isinstance(operation, Layer)]
    return [before(layer.name) for layer in layers if is_table(layer.activation)]


def choose(graph: Graph, seen: dict[str, Seen], ranges: Ranges) -> dict[str, Scale]:
    """The scales of the values in integers, and of what comes before an activation that is a table."""
    names = wanted(graph)
    scales: dict[str, Scale] = {}
    for group in _shared(graph, names):
        together = seen[group[0]]
        for name in group[1:]:
            together = together | seen[name]
        scales |= dict.fromkeys(group, _scale(*ranges(together)))
    scales |= {name: _scale(*ranges(seen[name])) for name in tables(graph)}
    return _coarse_enough(graph, scales, _finest)


def _coarse_enough(graph: Graph, scales: dict[str, Scale], finest: Finest) -> dict[str, Scale]:
    """Scales that the fixed-point factors of every operation can make, each as fine as that allows."""
    groups = {name: group for group in _shared(graph, {*scales}) for name in group}
    changed = True
    while changed:
        changed = False
        for operation in graph.operations:
            name = before(operation.name) if before(operation.name) in scales else operation.name
            if name in scales and scales[name].scale < (least := finest(operation, scales, graph.shapes)):
                scales = {**scales, **dict.fromkeys(groups.get(name, [name]), Scale(least, scales[name].zero))}
                changed = True
    return scales


def _finest(operation: Operation, scales: dict[str, Scale], shapes: dict[str, tuple[int, ...]]) -> float:
    """The finest scale in 8 bits of what an operation makes; before its activation, if that is a table."""
    x, *others = [scales[name].scale for name in operation.inputs if name in scales] or [0.0]
    if isinstance(operation, Layer):  # a unit of the sum is at most one level; with a residual, a fraction of one
        unit = x * float(_largest(operation.weight).max()) / 127
        return max(unit * 2**RESIDUAL_BITS, others[0] / FACTOR) if others else unit
    if isinstance(operation, Add):
        return max(x, *others) / FACTOR
    if isinstance(operation, Multiply):
        return 4.01 * x * others[0]
    if isinstance(operation, GlobalMean):
        return x / math.prod(shapes[operation.inputs[0]][2:])
    if isinstance(operation, Pool) and not operation.largest:
        return x / math.prod(operation.kernel)
    return 0.0


def _shared(graph: Graph, names: set[str]) -> list[list[str]]:
    """Values in groups that must have one scale: where numbers are moved or left out, not changed."""
    group = {name: [name] for name in graph.shapes if name in names}
    for operation in graph.operations:
        moves = isinstance(operation, Flatten) or (isinstance(operation, Pool) and operation.largest)
        if operation.name in names and moves:
            for name in operation.inputs:
                if group[name] is not group[operation.name]:
                    merged = group[operation.name] + group[name]
                    group |= dict.fromkeys(merged, merged)
    return list({id(members): members for members in group.values()}.values())


def _scale(low: float, high: float) -> Scale:
    """256 levels from low to high; zero is one of them, the first where nothing is negative."""
    if high - low < 1e-30:
        return Scale(1.0)
    scale = (high - low) / 255
    return Scale(scale, min(255, max(0, round(-low / scale))))


def rows(layer: Layer, scales: dict[str, Scale]) -> Tensor:
    """One scale for the weights of each output channel, in float64.

    The largest weight is 127. Where all are zero or tiny, the bias must still fit: 2²⁹ units at most.
    """
    largest = _largest(layer.weight)
    x, y = scales[layer.inputs[0]], scales.get(layer.name)
    reach = layer.bias.double().abs() + (256 * y.scale if y else 0.0)
    return torch.maximum(largest / 127, reach / (2**29 * x.scale)).clamp_min(1e-30)


def _largest(weight: Tensor) -> Tensor:
    return weight.double().reshape(len(weight), -1).abs().amax(1)


def rounded(layer: Layer, scale: Tensor) -> Layer:
    """The layer with weights that are whole multiples of their scales."""
    shape = (-1, *[1] * (layer.weight.dim() - 1))
    whole = torch.round(layer.weight.double() / scale.view(shape)).clamp(-127, 127)
    return replace(layer, weight=(whole * scale.view(shape)).to(layer.weight))


def simulated(graph: Graph, scales: dict[str, Scale], weights: dict[str, Tensor]) -> tuple[Graph, Callable[..., Any]]:
    """A graph and a ``see`` for it: run in floats, with the values and the weights that there are in integers."""

    def each(operation: Operation) -> Operation:
        return rounded(operation, weights[operation.name]) if isinstance(operation, Layer) else operation

    def see(name: str, value: Tensor) -> Tensor:
        scale = scales.get(name)
        if scale is None:
            return value
        return (torch.round(value / scale.scale) + scale.zero).clamp_(0, 255).sub_(scale.zero).mul_(scale.scale)

    return replace(graph, operations=tuple(map(each, graph.operations))), see


def corrected(graph: Graph, data: Any, scales: dict[str, Scale], weights: dict[str, Tensor]) -> Graph:
    """The graph with biases that make up for the mean error of every channel on the first samples."""
    inputs = _first(graph, data)
    layers = {before(op.name): op for op in graph.operations if isinstance(op, Layer)}
    means: dict[str, Tensor] = {}

    def note(name: str, value: Tensor) -> None:
        if name in layers:
            means[name] = _channel_means(layers[name], value)

    run(graph, *inputs, see=note)
    integers, see = simulated(graph, scales, weights)

    def shift(name: str, value: Tensor) -> Tensor:
        if name in layers:
            means[name] = means[name] - _channel_means(layers[name], value)
            tail = (1, 1) if isinstance(layers[name], Convolution) else ()
            value = value + means[name].to(value).view(-1, *tail)
        result: Tensor = see(name, value)
        return result

    run(integers, *inputs, see=shift)

    def each(operation: Operation) -> Operation:
        if not isinstance(operation, Layer):
            return operation
        return replace(operation, bias=(operation.bias.double() + means[before(operation.name)]).to(operation.bias))

    return replace(graph, operations=tuple(map(each, graph.operations)))


def _channel_means(layer: Layer, value: Tensor) -> Tensor:
    axis = 1 if isinstance(layer, Convolution) else value.dim() - 1
    return value.mean([dim for dim in range(value.dim()) if dim != axis]).double()


def _first(graph: Graph, data: Any) -> list[Tensor]:
    """The first samples as one batch; what the network takes at once, where that is fixed."""
    count = min(256, max(16, CORRECTED_ON // math.prod(graph.shapes[graph.inputs[0]][1:])))
    parts: list[tuple[Tensor, ...]] = []
    for part in batches(graph, data):
        parts.append(part)
        if graph.batch is not None or sum(len(p[0]) for p in parts) >= count:
            break
    return [torch.cat(same) for same in zip(*parts, strict=True)]


def _integers(layer: Layer, scales: dict[str, Scale], weight: Tensor) -> Integers:
    residual = scales[layer.inputs[1]] if len(layer.inputs) > 1 else None
    x, y, between = scales[layer.inputs[0]], scales.get(layer.name), scales.get(before(layer.name))
    return whole_layer(layer.weight, layer.bias, weight, x, y, residual, layer.activation, between)


def wide(graph: Graph, seen: dict[str, Seen]) -> dict[str, Scale]:
    """Scales in 16 bits, with headroom: sums wrap before the clamp, and weights are fractions of a value's scale."""
    names = wanted(graph) | {operation.name for operation in graph.operations if isinstance(operation, Layer)}
    scales: dict[str, Scale] = {}
    for group in _shared(graph, names):
        parts = [seen[part] for name in group for part in (name, before(name)) if part in seen]
        reach = max(abs(end) for part in parts for end in Extremes()(part))
        scales |= dict.fromkeys(group, Scale(max(reach * HEADROOM, 1e-30) / 32767))
    return _coarse_enough(graph, scales, _finest16)


def _finest16(operation: Operation, scales: dict[str, Scale], shapes: dict[str, tuple[int, ...]]) -> float:
    """The finest scale in 16 bits of what a layer makes: weights are below 1, the residual's factor below 2."""
    if not isinstance(operation, Layer):
        return 0.0
    x, *others = [scales[name].scale for name in operation.inputs]
    bias = float(operation.bias.double().abs().max()) / 32767
    return max(x * float(_largest(operation.weight).max()) * 1.0001, bias, *(other / 1.999 for other in others))


def _integers16(layer: Layer, scales: dict[str, Scale]) -> Integers:
    residual = scales[layer.inputs[1]] if len(layer.inputs) > 1 else None
    x, y = scales[layer.inputs[0]], scales[layer.name]
    return whole_layer16(layer.weight, layer.bias, x, y, residual, layer.activation)


def without_tables(graph: Graph) -> Graph:
    """Activations that are no clamps become operations of their own."""
    operations: list[Operation] = []
    shapes = dict(graph.shapes)
    for operation in graph.operations:
        if isinstance(operation, Layer) and is_table(operation.activation):
            name = before(operation.name)
            operations.append(replace(operation, name=name, activation=Activation.NONE))
            operations.append(Apply(operation.name, (name,), operation.activation))
            shapes[name] = shapes[operation.name]
        else:
            operations.append(operation)
    return replace(graph, operations=tuple(operations), shapes=shapes)
