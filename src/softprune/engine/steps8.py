"""Drafts in int8."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from softprune.engine import formats, integers, steps_tokens
from softprune.engine.graph import (
    Activation,
    Add,
    Apply,
    Attention,
    Concat,
    Convolution,
    GlobalMean,
    Linear,
    Multiply,
    Norm,
    Operation,
    Pool,
)
from softprune.engine.grids import Grid
from softprune.engine.quantized import Integers, Precision, Scale, bounds, is_table, table
from softprune.engine.steps import (
    Dialect,
    Draft,
    Element,
    Find,
    Value,
    elements,
    masks,
    mean_numbers,
    mean_shares,
    padded,
    size_of,
    taps_of,
    window_of,
    window_of_layer,
)
from softprune.engine.windows import Shape, program

FEW = 4  # pixels, at most, for which lanes may be rows; as in native/few8.c


class Bytes(Dialect):
    """u8 values, s8 weights; floats between the layers of a transformer."""

    precision = Precision.INT8

    def element(self, name: str) -> Element:
        return Element.FLOATS if name in self.net.floats else Element.BYTES

    def layer(self, op: Operation) -> bool:
        return super().layer(op) and op.name in self.net.layers

    def knows(self, op: Operation) -> bool:
        if isinstance(op, Convolution | Linear):
            return self.layer(op)
        shapes = self.net.graph.shapes
        if isinstance(op, Add):
            return not is_table(op.activation) and shapes[op.inputs[0]] == shapes[op.inputs[1]]
        if isinstance(op, Norm | Attention):
            return True
        if op.name not in self.net.scales:
            return False
        if isinstance(op, Multiply):
            return shapes[op.name] in (shapes[op.inputs[0]], shapes[op.inputs[1]]) and all(
                shapes[name] == shapes[op.name] or size_of(shapes[name])[1:] == (1, 1) for name in op.inputs
            )
        return isinstance(op, Pool | GlobalMean | Concat | Apply)

    def drafts(self, op: Operation, value: Find) -> list[Draft]:
        scale = self.net.scales
        element = Element.FLOATS if self.net.in_floats(op) else Element.BYTES
        x, *others = [value(name, element) for name in op.inputs]
        y = value(op.name)
        if isinstance(op, Norm):
            return [steps_tokens.norm(op, x, y)]
        if isinstance(op, Attention):
            return [steps_tokens.attention(op, x, y)]
        if isinstance(op, Add) and element is Element.FLOATS:
            return [steps_tokens.act(op, x, others[0], y)]
        if isinstance(op, Convolution | Linear):
            r = others[0].name if others else None
            return [_layer(op, self.net.layers[op.name], x, y, r, scale[op.inputs[0]].zero)]
        scales = tuple(scale[name] for name in (*op.inputs, op.name))
        if isinstance(op, Pool):
            return [_max_pool(op, x, y) if op.largest else _mean_pool(op, x, y, scales[0], scales[1])]
        if isinstance(op, GlobalMean):
            return [_global_mean(op, x, y, scales[0], scales[1])]
        if isinstance(op, Add):
            return [_add(op, x, others[0], y, (scales[0], scales[1], scales[2]))]
        if isinstance(op, Multiply):
            if x.grid == y.grid:
                return [_multiply(op, x, others[0], y, (scales[0], scales[1], scales[2]))]
            return [_multiply(op, others[0], x, y, (scales[1], scales[0], scales[2]))]
        if isinstance(op, Apply):
            return [_lookup(op.name, x, y, _activated(op.activation, scales[0], scales[1]))]
        found, channel = [], 0  # a concatenation
        for name, part in zip(op.inputs, (x, *others), strict=True):
            bytes_ = table(Activation.NONE, scale[name], scales[-1])
            found.append(_lookup(op.name, part, y, bytes_, channel))
            channel += part.channels
        return found

    def enter(self, user: str, y: Value, shape: tuple[int, ...], name: str) -> Draft:
        numbers, arrays = elements(y.grid, shape, 0)
        if y.element is Element.FLOATS:
            return Draft(name, "input32", y.grid, y.name, user, numbers=numbers, arrays=arrays)
        scale = self.net.scales[y.name]
        arrays["real"] = steps_tokens.rounding(scale)
        arrays["table"] = _lines(y, len(shape) == 3)
        numbers |= {"inputs": y.deep, "fill": scale.zero}
        return Draft(name, "input8", y.grid, y.name, user, numbers=numbers, arrays=arrays)

    def converted(self, x: Value, y: Value, value: str, name: str) -> Draft:
        to = steps_tokens.to_bytes if y.element is Element.BYTES else steps_tokens.to_floats
        return to(name, x, y, self.net.scales[value])

    def leave(self, x: Value, user: str, shape: tuple[int, ...], name: str) -> Draft:
        numbers, arrays = elements(x.grid, shape, -1)
        if x.element is Element.FLOATS:
            return Draft(name, "output32", x.grid, user, x.name, numbers=numbers, arrays=arrays)
        scale = self.net.scales[x.name]
        arrays["real"] = torch.tensor([scale.scale], dtype=torch.float32)
        return Draft(name, "output8", x.grid, user, x.name, numbers=numbers | {"fill": scale.zero}, arrays=arrays)


def _lines(y: Value, tokens: bool) -> Tensor:
    """For each panel, whether the pixels of its lanes follow one another in the user's array, up to none behind it."""
    grid = y.grid
    if tokens or grid.down:
        return torch.zeros(grid.panels, dtype=torch.uint8)
    _, row, column = grid.places()
    first = torch.where(grid.valid(), row * grid.width + column, 0)[:, 0]
    counts = torch.tensor(grid.counts)
    inside = first.amax(1) + counts <= grid.height * grid.width
    return (inside & (counts >= 4)).to(torch.uint8)


def _requantization(layer: Integers) -> dict[str, Tensor]:
    arrays = {"bias": padded(layer.bias)}
    if layer.real is not None:
        arrays["real"] = padded(layer.real)
    elif layer.shift is not None and layer.multiplier is not None:
        # Multipliers four times each, as two packed rows want them.
        arrays |= {"shift": padded(layer.shift), "multiplier": padded(layer.multiplier).repeat_interleave(4)}
    if layer.table is not None:
        arrays["table"] = layer.table
    return arrays


def _layer(op: Convolution | Linear, layer: Integers, x: Value, y: Value, r: str | None, zero: int) -> Draft:
    shape, groups, weight = window_of_layer(op, x)
    layer = replace(layer, weight=layer.weight.view(weight))
    if groups > 1 and groups == x.channels == y.channels and layer.real is None:
        return _depthwise(op, layer, shape, x, y, r, zero)
    window = window_of(x, y.grid, shape)
    numbers = {"inputs": x.deep, "fill": 0x01010101 * zero, "residual": layer.residual}
    arrays = _requantization(layer)
    lanes = _few_lanes(y.grid)
    taps, _ = taps_of(window, x)
    if lanes:
        width = formats.places(layer.weight, groups, len(taps))
        numbers |= {"taps": len(taps), "width": width, "other": sum(1 << lane for lane in lanes)}
        arrays["tap"] = torch.tensor(taps, dtype=torch.int32)
    return Draft(
        op.name,
        "sparse8",
        y.grid,
        y.name,
        x.name,
        r,
        numbers=numbers | {"low": layer.low, "high": layer.high, "outputs": y.deep},
        arrays=arrays,
        window=window,
        entries=partial(formats.int8, layer.weight, groups, *taps_of(window, x)),
        few=bool(lanes),
        room=4 * len(lanes) * numbers.get("width", 0),
    )


def _few_lanes(grid: Grid) -> list[int]:
    """The pixels of a group, if they are so few that lanes may be rows instead."""
    if grid.vectors > 1:
        return []
    lanes: list[int] = grid.valid()[0, 0].nonzero().flatten().tolist()
    return lanes if len(lanes) <= FEW else []


def _depthwise(op: Operation, layer: Integers, shape: Shape, x: Value, y: Value, r: str | None, zero: int) -> Draft:
    window = program(x.grid, y.grid, shape)
    taps = (*window.taps, *[0] * (-len(window.taps) % 4))
    numbers = {"inputs": x.deep, "fill": 0x01010101 * zero, "residual": layer.residual, "taps": len(taps)}
    arrays = {"entries": formats.depthwise(layer.weight), "tap": torch.tensor(taps, dtype=torch.int32)}
    return Draft(
        op.name,
        "depthwise8",
        y.grid,
        y.name,
        x.name,
        r,
        numbers=numbers | {"low": layer.low, "high": layer.high},
        arrays=_requantization(layer) | arrays,
        window=window,
    )


def _max_pool(op: Pool, x: Value, y: Value) -> Draft:
    window = program(x.grid, y.grid, Shape(op.kernel, op.stride, op.padding))
    numbers = {"inputs": x.deep, "taps": len(window.taps)}
    arrays = {"tap": torch.tensor(window.taps, dtype=torch.int32)}
    return Draft(op.name, "maxpool8", y.grid, y.name, x.name, numbers=numbers, arrays=arrays, window=window)


def _mean_pool(op: Pool, x: Value, y: Value, before: Scale, after: Scale) -> Draft:
    layer = integers.mean_layer(x.channels, op.kernel, before, after)
    return _depthwise(op, layer, Shape(op.kernel, op.stride, op.padding), x, y, None, before.zero)


def _global_mean(op: Operation, x: Value, y: Value, before: Scale, after: Scale) -> Draft:
    layer = integers.mean_layer(1, (x.grid.height, x.grid.width), before, after)
    numbers = mean_numbers(x, y) | {"low": layer.low, "high": layer.high}
    arrays = _requantization(layer) | {"lengths": masks(x.grid)}
    shares = mean_shares(x)
    return Draft(
        op.name, "globalmean8", x.grid, y.name, x.name, panels=shares, numbers=numbers, arrays=arrays, alone=True
    )


def _add(op: Add, x: Value, r: Value, y: Value, scales: tuple[Scale, Scale, Scale]) -> Draft:
    a, b, constant = integers.add_factors(*scales)
    low, high = bounds(op.activation, scales[2])
    numbers = {"inputs": x.deep, "other": a, "residual": b, "fill": constant, "low": low, "high": high}
    return Draft(op.name, "add8", y.grid, y.name, x.name, r.name, numbers=numbers)


def _multiply(op: Operation, x: Value, gate: Value, y: Value, scales: tuple[Scale, Scale, Scale]) -> Draft:
    """``gate`` has x's shape, or one pixel for each image: a window with stride 0."""
    factor, constant, bits = integers.multiply_factors(*scales)
    window = None if gate.grid == x.grid else program(gate.grid, x.grid, Shape((1, 1), (0, 0)))
    numbers = {"inputs": x.deep, "images": scales[1].zero, "taps": scales[0].zero, "residual": factor}
    numbers |= {"other": constant, "width": 1 << (15 - bits)}
    return Draft(op.name, "multiply8", y.grid, y.name, gate.name, x.name, numbers=numbers, window=window)


def _lookup(name: str, x: Value, y: Value, bytes_: Tensor, channel: int = 0) -> Draft:
    """y = table[x], into the channels of y from ``channel`` on."""
    numbers = {"inputs": x.deep, "other": channel, "width": x.channels}
    return Draft(name, "table8", y.grid, y.name, x.name, numbers=numbers, arrays={"table": bytes_})


def _activated(activation: Activation, before: Scale, after: Scale) -> Tensor:
    bytes_ = table(activation, before, after)
    return bytes_ if is_table(activation) else bytes_.clamp(*bounds(activation, after))
