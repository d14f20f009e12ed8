"""A graph run by torch: the reference of every other way, and what runs where no kernel is built.

>>> from softprune.engine.export import graph
>>> half = graph(torch.nn.Linear(1, 1, bias=False), torch.ones(1, 1))
>>> [y.shape for y in run(half, torch.ones(5, 1))]
[torch.Size([5, 1])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from softprune.engine.activations import FUNCTIONS
from softprune.engine.graph import (
    Activation,
    Add,
    Affine,
    Apply,
    Attention,
    Concat,
    Convolution,
    Flatten,
    GlobalMean,
    Graph,
    Linear,
    Multiply,
    Norm,
    Opaque,
    Operation,
    Pool,
    Softmax,
)
from softprune.engine.opaque import Program
from softprune.errors import ArgumentError

See = Callable[[str, Tensor], Tensor | None]


def run(graph: Graph, *inputs: Tensor, see: See | None = None) -> tuple[Tensor, ...]:
    """The outputs, in the precision of the graph.

    ``see`` is told every value by its name as soon as it is there, and what comes before the activation of a layer,
    even if that is none. It may give back another value to go on with.
    """
    if len(inputs) != len(graph.inputs):
        raise ArgumentError(f"This network takes {len(graph.inputs)} tensors. Got {len(inputs)}.")

    def look(name: str, value: Tensor) -> Tensor:
        changed = see(name, value) if see else None
        return value if changed is None else changed

    with torch.no_grad():
        values = {name: look(name, value) for name, value in zip(graph.inputs, inputs, strict=True)}
        for operation, finished in steps(graph):
            value = KINDS[type(operation)](operation, *(values[name] for name in operation.inputs))
            if hasattr(operation, "activation"):
                value = FUNCTIONS[operation.activation](look(before(operation.name), value))
            values[operation.name] = look(operation.name, value)
            for name in finished:
                del values[name]
    return tuple(values[name] for name in graph.outputs)


def before(name: str) -> str:
    """The name of what comes before the activation of an operation."""
    return f"{name}:before"


def steps(graph: Graph) -> Iterator[tuple[Operation, list[str]]]:
    """Each operation, and the values that nobody reads after it."""
    last = {name: operation.name for operation in graph.operations for name in (operation.name, *operation.inputs)}
    finished: dict[str, list[str]] = {operation.name: [] for operation in graph.operations}
    for name, operation in last.items():
        if name not in graph.outputs:
            finished[operation].append(name)
    for op in graph.operations:
        yield op, finished[op.name]


def compute(operation: Operation, *inputs: Tensor) -> Tensor:
    """The value that one operation makes."""
    activation: Activation = getattr(operation, "activation", Activation.NONE)
    return FUNCTIONS[activation](KINDS[type(operation)](operation, *inputs))


def _convolution(op: Convolution, x: Tensor, *residual: Tensor) -> Tensor:
    left, right, top, bottom = op.padding
    padding: tuple[int, int] = (top, left)
    if (left, top) != (right, bottom):
        x, padding = functional.pad(x, op.padding), (0, 0)
    y = functional.conv2d(x, op.weight, op.bias, op.stride, padding, op.dilation, op.groups)
    return y + residual[0] if residual else y


def _linear(op: Linear, x: Tensor, *residual: Tensor) -> Tensor:
    y = functional.linear(x, op.weight, op.bias)
    return y + residual[0] if residual else y


def _affine(op: Affine, x: Tensor) -> Tensor:
    shape = (-1, 1, 1) if x.dim() == 4 else (-1,)
    return x * op.weight.to(x).view(shape) + op.bias.to(x).view(shape)


def _pool(op: Pool, x: Tensor) -> Tensor:
    if op.largest:
        return functional.max_pool2d(functional.pad(x, op.padding, value=-torch.inf), op.kernel, op.stride)
    sums = functional.avg_pool2d(functional.pad(x, op.padding), op.kernel, op.stride)
    if op.counts_padding or not any(op.padding):
        return sums
    return sums / functional.avg_pool2d(functional.pad(torch.ones_like(x[:1, :1]), op.padding), op.kernel, op.stride)


def _attention(op: Attention, x: Tensor) -> Tensor:
    q, k, v = x[..., op.channels].permute(2, 0, 3, 1, 4)  # N, heads, T, D of each
    y = functional.scaled_dot_product_attention(q, k, v, op.seen, scale=op.scale)
    return y.transpose(1, 2).flatten(2)


KINDS: dict[type[Operation], Callable[..., Tensor]] = {
    Convolution: _convolution,
    Linear: _linear,
    Affine: _affine,
    Pool: _pool,
    GlobalMean: lambda op, x: x.mean((2, 3), keepdim=True),
    Add: lambda op, x, y: x + y,
    Multiply: lambda op, x, y: x * y,
    Concat: lambda op, *parts: torch.cat(parts, 1),
    Apply: lambda op, x: x,
    Flatten: lambda op, x: x.flatten(1),
    Norm: lambda op, x: functional.layer_norm(x, op.weight.shape, op.weight, op.bias, op.eps),
    Attention: _attention,
    Softmax: lambda op, x: x.softmax(op.dim),
    Opaque: lambda op, *inputs: op.run(*inputs),
}


def to(graph: Graph, dtype: torch.dtype) -> Graph:
    """The same graph in another precision."""

    def cast(value: Any) -> Any:
        if isinstance(value, Program) or (isinstance(value, Tensor) and value.is_floating_point()):
            return value.to(dtype)
        return value

    def each(op: Operation) -> Operation:
        if isinstance(op, Affine):
            return replace(op, dtype=dtype)
        return replace(op, **{field.name: cast(getattr(op, field.name)) for field in fields(op)})

    return replace(graph, operations=tuple(map(each, graph.operations)))
