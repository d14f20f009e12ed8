"""A quantized graph run in whole numbers by torch: slow, and equal to the kernels bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from softprune.engine import integers
from softprune.engine.graph import (
    Activation,
    Add,
    Apply,
    Concat,
    Convolution,
    Flatten,
    GlobalMean,
    Linear,
    Multiply,
    Operation,
    Pool,
)
from softprune.engine.quantized import Precision, Quantized, bounds, is_table

Fallback = Callable[..., Tensor]  # of an operation and its inputs, in floats


def pixels(x: Tensor) -> Tensor:
    """N, C, H, W of any value."""
    if x.dim() == 3:
        return x.transpose(1, 2).unsqueeze(2)
    return x if x.dim() == 4 else x.view(*x.shape, 1, 1)


def shaped(x: Tensor, like: tuple[int, ...]) -> Tensor:
    """Back from N, C, H, W; the batch may be another."""
    if len(like) == 3:
        return x.squeeze(2).transpose(1, 2)
    return x if len(like) == 4 else x.flatten(1)


def run(net: Quantized, *inputs: Tensor, fallback: Fallback | None = None) -> dict[str, Tensor]:
    """All values: whole numbers where they have a scale, else floats."""
    values: dict[str, Tensor] = {}
    exact: dict[str, Tensor] = {}  # those that were made in floats

    def put(name: str, x: Tensor) -> None:
        integer = x.dtype is torch.int64 or name not in net.scales
        if x.dtype is not torch.int64:
            exact[name] = x
        quantize = integers.quantize16 if net.precision is Precision.INT16 else integers.quantize
        values[name] = x if integer else quantize(x, net.scales[name])

    for name, x in zip(net.graph.inputs, inputs, strict=True):
        put(name, x)
    for op in net.graph.operations:
        if isinstance(op, Flatten):
            values[op.name] = values[op.inputs[0]].flatten(1)
            continue
        given = [values[name] for name in op.inputs]
        known = all(x.dtype is torch.int64 for x in given)
        do = step16 if net.precision is Precision.INT16 else step
        y = do(net, op, [pixels(x) for x in given]) if known else None
        if y is not None:
            put(op.name, shaped(y, net.graph.shapes[op.name]))
        elif fallback is not None:
            floats = [
                exact[name] if name in exact else integers.dequantize(x, net.scales[name])
                for name, x in zip(op.inputs, given, strict=True)
            ]
            put(op.name, fallback(op, *floats))
        else:
            raise ValueError(f"{op.name} has no integers, and there is no fallback.")
    return values


def step(net: Quantized, op: Operation, x: list[Tensor]) -> Tensor | None:
    """One operation on N, C, H, W; None where it has no integers."""
    scale = net.scales
    if isinstance(op, Convolution | Linear) and op.name in net.layers:
        layer, zero = net.layers[op.name], scale[op.inputs[0]].zero
        residual = x[1] if len(x) > 1 else None
        if isinstance(op, Convolution):
            return integers.convolution(x[0], layer, op.stride, op.padding, op.dilation, op.groups, zero, residual)
        kernel = layer.weight.view(*layer.weight.shape, 1, 1)
        return integers.convolution(x[0], replace(layer, weight=kernel), zero=zero, residual=residual)
    if op.name not in scale:
        return None
    first, out = scale[op.inputs[0]], scale[op.name]
    if isinstance(op, Pool) and op.largest:
        return integers.largest(x[0], op.kernel, op.stride, op.padding)
    if isinstance(op, Pool) and (op.counts_padding or not any(op.padding)):
        layer = integers.mean_layer(x[0].shape[1], op.kernel, first, out)
        return integers.convolution(x[0], layer, op.stride, op.padding, groups=x[0].shape[1], zero=first.zero)
    if isinstance(op, GlobalMean):
        return integers.global_mean(x[0], first, out)
    if isinstance(op, Add) and not is_table(op.activation):
        return integers.add(x[0], x[1], (first, scale[op.inputs[1]], out), op.activation)
    if isinstance(op, Multiply):
        return integers.multiply(x[0], x[1], (first, scale[op.inputs[1]], out))
    if isinstance(op, Concat):
        return torch.cat([integers.rescale(t, scale[n], out) for n, t in zip(op.inputs, x, strict=True)], 1)
    if isinstance(op, Apply):
        y = integers.rescale(x[0], first, out, op.activation)
        return y if is_table(op.activation) else y.clamp(*bounds(op.activation, out))
    return None


def step16(net: Quantized, op: Operation, x: list[Tensor]) -> Tensor | None:
    """The same in int16."""
    scale = net.scales
    if op.name not in scale or is_table(getattr(op, "activation", Activation.NONE)):
        return None
    first, out = scale[op.inputs[0]], scale[op.name]
    residual = x[1] if len(x) > 1 else None
    if isinstance(op, Convolution) and op.name in net.layers:
        layer = net.layers[op.name]
        return integers.convolution16(x[0], layer, op.stride, op.padding, op.dilation, op.groups, residual)
    if isinstance(op, Linear) and op.name in net.layers:
        layer = net.layers[op.name]
        kernel = layer.weight.view(*layer.weight.shape, 1, 1)
        return integers.convolution16(x[0], replace(layer, weight=kernel), residual=residual)
    if isinstance(op, Pool) and op.largest:
        return integers.largest16(x[0], op.kernel, op.stride, op.padding)
    if isinstance(op, Pool) and (op.counts_padding or not any(op.padding)):
        layer = integers.mean_layer16(x[0].shape[1], op.kernel, first, out)
        return integers.convolution16(x[0], layer, op.stride, op.padding, groups=x[0].shape[1])
    if isinstance(op, GlobalMean):
        return integers.global_mean16(x[0], first, out)
    if isinstance(op, Add):
        return integers.add16(x[0], x[1], (first, scale[op.inputs[1]], out), op.activation)
    return None
