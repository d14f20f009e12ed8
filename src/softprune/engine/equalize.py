"""Channels that use the whole range of 16 bits: one scale serves all channels of a value, so they should be alike.

What ReLU makes of x / r is 1 / r of what it makes of x. So the row that makes a channel may be divided by r, if the
columns that read it are multiplied by r: the network computes the same. With r the reach of a channel over that of the
whole value, all channels reach equally far. Where weights are large and sums small, weights decide instead: in int16
a weight times the scale of its input must stay below the scale of its output.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from softprune.engine.calibrate import batches
from softprune.engine.graph import Activation, Convolution, Graph, Linear
from softprune.engine.run_torch import before, run

Layer = Convolution | Linear
LEAST = 2.0**-8  # r of a channel that hardly does anything


def equalize(graph: Graph, data: Any) -> Graph:
    """The same function, in other weights."""
    channels, whole = _reaches(graph, data)
    layers = {op.name: op for op in graph.operations if isinstance(op, Layer)}
    for name in layers:
        layer = layers[name]
        if not _is_free(graph, layer):
            continue
        reach = channels[name].max().clamp_min(1e-30)
        largest = layer.weight.double().flatten(1).abs().amax(1)
        r = torch.maximum(channels[name], 1.01 * largest * whole[layer.inputs[0]]).div(reach).clamp_min(LEAST)
        shape = (-1, *[1] * (layer.weight.dim() - 1))
        weight = (layer.weight.double() / r.view(shape)).to(layer.weight)
        layers[name] = replace(layer, weight=weight, bias=(layer.bias.double() / r).to(layer.bias))
        whole[name] = float((channels[name] / r).max())
        for reader in graph.readers(name):
            layers[reader.name] = _reading(layers[reader.name], r)
    return replace(graph, operations=tuple(layers.get(op.name, op) for op in graph.operations))


def _is_free(graph: Graph, layer: Layer) -> bool:
    """Whether only layers read what it makes, as what they multiply, and nothing but ReLU lies between."""
    readers = graph.readers(layer.name)
    return (
        len(layer.inputs) == 1
        and layer.activation in (Activation.NONE, Activation.RELU)
        and layer.name not in graph.outputs
        and all(isinstance(op, Layer) and layer.name not in op.inputs[1:] for op in readers)
    )


def _reading(layer: Layer, r: Tensor) -> Layer:
    """With the columns of its weight multiplied by r; of a grouped convolution, every group has its own."""
    groups = layer.groups if isinstance(layer, Convolution) else 1
    columns = r.view(groups, -1).repeat_interleave(len(layer.weight) // groups, 0)
    shape = (*columns.shape, *[1] * (layer.weight.dim() - 2))
    return replace(layer, weight=(layer.weight.double() * columns.view(shape)).to(layer.weight))


def _reaches(graph: Graph, data: Any) -> tuple[dict[str, Tensor], dict[str, float]]:
    """|x| at most: of every channel of the sums of layers, and of every value."""
    layers = {before(op.name): op for op in graph.operations if isinstance(op, Layer)}
    channels: dict[str, Tensor] = {}
    whole: dict[str, float] = {}

    def see(name: str, value: Tensor) -> None:
        if name in layers:
            op = layers[name]
            axis = 1 if isinstance(op, Convolution) else value.dim() - 1
            found = value.abs().amax([dim for dim in range(value.dim()) if dim != axis]).double()
            channels[op.name] = torch.maximum(channels[op.name], found) if op.name in channels else found
        elif value.is_floating_point():
            whole[name] = max(whole.get(name, 0.0), float(value.abs().max()))

    for inputs in batches(graph, data):
        run(graph, *inputs, see=see)
    return channels, whole
