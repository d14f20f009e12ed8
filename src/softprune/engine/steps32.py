"""Drafts in fp32: unstructured weights, those of the graph."""

from __future__ import annotations

import math
import struct
from functools import partial

import torch
from torch import Tensor

from softprune.engine import formats, steps_tokens
from softprune.engine.graph import (
    Activation,
    Add,
    Apply,
    Attention,
    Convolution,
    GlobalMean,
    Linear,
    Norm,
    Operation,
    Pool,
)
from softprune.engine.quantized import Precision
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
from softprune.engine.steps_tokens import curve, limits
from softprune.engine.windows import Shape, program


class Floats(Dialect):
    """fp32 everywhere."""

    precision = Precision.FP32

    def element(self, name: str) -> Element:
        return Element.FLOATS

    def held(self, name: str) -> bool:
        return True

    def knows(self, op: Operation) -> bool:
        if isinstance(op, Convolution | Linear):
            return self.layer(op)
        shapes = self.net.graph.shapes
        if isinstance(op, Add):
            return shapes[op.inputs[0]] == shapes[op.inputs[1]]
        return isinstance(op, Apply | Pool | GlobalMean | Norm | Attention)

    def drafts(self, op: Operation, value: Find) -> list[Draft]:
        x, y = value(op.inputs[0]), value(op.name)
        if isinstance(op, Convolution | Linear):
            shape, groups, weight = window_of_layer(op, x)
            r = value(op.inputs[1]).name if len(op.inputs) > 1 else None
            return [_sparse(op.name, op.weight.view(weight), op.bias, shape, groups, op.activation, x, y, r)]
        if isinstance(op, Pool):
            shape = Shape(op.kernel, op.stride, op.padding)
            if not op.largest:
                mean = torch.full((x.channels, 1, *op.kernel), 1.0 / math.prod(op.kernel))
                bias = torch.zeros(x.channels)
                return [_sparse(op.name, mean, bias, shape, x.channels, Activation.NONE, x, y, None)]
            window = program(x.grid, y.grid, shape)
            numbers = {"inputs": x.deep, "taps": len(window.taps), "fill": _bits(-math.inf)}
            taps = torch.tensor(window.taps, dtype=torch.int32)
            return [
                Draft(
                    op.name, "maxpool32", y.grid, y.name, x.name, numbers=numbers, arrays={"tap": taps}, window=window
                )
            ]
        if isinstance(op, GlobalMean):
            count = x.grid.height * x.grid.width
            arrays = {"real": torch.tensor([1.0 / count]), "lengths": masks(x.grid)}
            shares = mean_shares(x)
            return [
                Draft(
                    op.name,
                    "globalmean32",
                    x.grid,
                    y.name,
                    x.name,
                    None,
                    shares,
                    mean_numbers(x, y),
                    arrays,
                    alone=True,
                )
            ]
        if isinstance(op, Norm):
            return [steps_tokens.norm(op, x, y)]
        if isinstance(op, Attention):
            return [steps_tokens.attention(op, x, y)]
        assert isinstance(op, Add | Apply)
        return [steps_tokens.act(op, x, value(op.inputs[1]) if isinstance(op, Add) else None, y)]

    def enter(self, user: str, y: Value, shape: tuple[int, ...], name: str) -> Draft:
        numbers, arrays = elements(y.grid, shape, 0)
        return Draft(name, "input32", y.grid, y.name, user, numbers=numbers, arrays=arrays)

    def leave(self, x: Value, user: str, shape: tuple[int, ...], name: str) -> Draft:
        numbers, arrays = elements(x.grid, shape, -1)
        return Draft(name, "output32", x.grid, user, x.name, numbers=numbers, arrays=arrays)


def _bits(x: float) -> int:
    """The bits of a float, as an int32."""
    return int(struct.unpack("<i", struct.pack("<f", x))[0])


def _sparse(
    name: str,
    weight: Tensor,
    bias: Tensor,
    shape: Shape,
    groups: int,
    activation: Activation,
    x: Value,
    y: Value,
    r: str | None,
) -> Draft:
    window = window_of(x, y.grid, shape)
    low, high = map(_bits, limits(activation))
    return Draft(
        name,
        "sparse32",
        y.grid,
        y.name,
        x.name,
        r,
        numbers={"inputs": x.deep, "low": low, "high": high, "other": curve(activation)},
        arrays={"real": bias.float()},
        window=window,
        entries=partial(formats.single, weight.float(), groups, *taps_of(window, x)),
    )
