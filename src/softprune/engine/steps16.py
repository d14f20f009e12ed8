"""Drafts in int16: unstructured weights, values with a scale and no zero point."""

from __future__ import annotations

from functools import partial

import torch

from softprune.engine import formats, integers
from softprune.engine.graph import Activation, Add, Convolution, GlobalMean, Linear, Operation, Pool
from softprune.engine.quantized import Integers, Precision, bounds16, is_table
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
    taps_of,
    window_of,
    window_of_layer,
)
from softprune.engine.windows import Shape, program


class Shorts(Dialect):
    """s16 values, Q15 weights."""

    precision = Precision.INT16
    lanes = 32

    def element(self, name: str) -> Element:
        return Element.SHORTS

    def layer(self, op: Operation) -> bool:
        return super().layer(op) and op.name in self.net.layers

    def knows(self, op: Operation) -> bool:
        if op.name not in self.net.scales or is_table(getattr(op, "activation", Activation.NONE)):
            return False
        if isinstance(op, Convolution | Linear):
            return self.layer(op)
        shapes = self.net.graph.shapes
        if isinstance(op, Add):
            return shapes[op.inputs[0]] == shapes[op.inputs[1]]
        return isinstance(op, Pool | GlobalMean)

    def drafts(self, op: Operation, value: Find) -> list[Draft]:
        x, y = value(op.inputs[0]), value(op.name)
        scales = [self.net.scales[name] for name in (*op.inputs, op.name)]
        if isinstance(op, Convolution | Linear):
            shape, groups, weight = window_of_layer(op, x)
            r = value(op.inputs[1]).name if len(op.inputs) > 1 else None
            return [_sparse(op.name, self.net.layers[op.name], shape, groups, weight, x, y, r)]
        if isinstance(op, Pool) and op.largest:
            window = program(x.grid, y.grid, Shape(op.kernel, op.stride, op.padding))
            numbers = {"inputs": x.deep, "taps": len(window.taps), "fill": -32768}
            taps = torch.tensor(window.taps, dtype=torch.int32)
            return [
                Draft(
                    op.name, "maxpool16", y.grid, y.name, x.name, numbers=numbers, arrays={"tap": taps}, window=window
                )
            ]
        if isinstance(op, Pool):
            layer = integers.mean_layer16(x.channels, op.kernel, scales[0], scales[1])
            shape = Shape(op.kernel, op.stride, op.padding)
            return [_sparse(op.name, layer, shape, x.channels, tuple(layer.weight.shape), x, y, None)]
        if isinstance(op, GlobalMean):
            ratio = integers.mean_ratio16(x.grid.height * x.grid.width, scales[0], scales[1])
            arrays = {"real": ratio.view(1), "lengths": masks(x.grid)}
            numbers = mean_numbers(x, y)
            shares = mean_shares(x)
            return [Draft(op.name, "globalmean16", x.grid, y.name, x.name, None, shares, numbers, arrays, alone=True)]
        a, b = integers.add_factors16(scales[0], scales[1], scales[2])
        low, high = bounds16(getattr(op, "activation", Activation.NONE), scales[2])
        numbers = {"inputs": x.deep, "other": a, "residual": b, "low": low, "high": high}
        return [Draft(op.name, "add16", y.grid, y.name, x.name, value(op.inputs[1]).name, numbers=numbers)]

    def enter(self, user: str, y: Value, shape: tuple[int, ...], name: str) -> Draft:
        numbers, arrays = elements(y.grid, shape, 0)
        arrays["real"] = torch.tensor([1.0 / self.net.scales[y.name].scale], dtype=torch.float32)
        return Draft(name, "input16", y.grid, y.name, user, numbers=numbers | {"inputs": y.channels}, arrays=arrays)

    def leave(self, x: Value, user: str, shape: tuple[int, ...], name: str) -> Draft:
        numbers, arrays = elements(x.grid, shape, -1)
        arrays["real"] = torch.tensor([self.net.scales[x.name].scale], dtype=torch.float32)
        return Draft(name, "output16", x.grid, user, x.name, numbers=numbers | {"inputs": x.channels}, arrays=arrays)


def _sparse(
    name: str, layer: Integers, shape: Shape, groups: int, weight: tuple[int, ...], x: Value, y: Value, r: str | None
) -> Draft:
    window = window_of(x, y.grid, shape)
    return Draft(
        name,
        "sparse16",
        y.grid,
        y.name,
        x.name,
        r,
        numbers={"inputs": x.deep, "residual": layer.residual, "low": layer.low, "high": layer.high},
        arrays={"bias": layer.bias.to(torch.int32)},
        window=window,
        entries=partial(formats.single, layer.weight.view(weight), groups, *taps_of(window, x)),
    )
