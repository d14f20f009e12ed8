"""What a network computes: a list of operations on named values, and nothing about how.

    Graph = inputs, operations in order, outputs
    Operation = the values it reads, and the one that it makes, which has its name

``export`` makes a graph from a module, ``fold`` makes it smaller, ``plan`` makes steps of it. Whatever has no
operation here is an ``Opaque`` one, which torch runs. The first dimension of every value is the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor


class Activation(Enum):
    """A function of one number; ``NONE`` is the identity."""

    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SILU = "silu"
    HARDSWISH = "hardswish"
    HARDSIGMOID = "hardsigmoid"
    SIGMOID = "sigmoid"
    TANH = "tanh"


@dataclass(frozen=True, eq=False)
class Operation:
    """``name`` is that of the value it makes; ``inputs`` are names of values."""

    name: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Convolution(Operation):
    """y = act(weight * x + bias [+ residual]); the residual is the second input, where there is one."""

    weight: Tensor  # outputs, inputs / groups, height, width
    bias: Tensor
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # left, right, top, bottom
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    activation: Activation = Activation.NONE


@dataclass(frozen=True, eq=False)
class Linear(Operation):
    """y = act(x weightᵀ + bias [+ residual]) over the last dimension of x."""

    weight: Tensor  # outputs, inputs
    bias: Tensor
    activation: Activation = Activation.NONE


@dataclass(frozen=True, eq=False)
class Affine(Operation):
    """y = weight · x + bias for each channel: the second dimension of an image, else the last. ``fold`` leaves none."""

    weight: Tensor  # channels, in float64
    bias: Tensor
    dtype: torch.dtype  # of the value


@dataclass(frozen=True, eq=False)
class Pool(Operation):
    """The largest or the mean of each window."""

    largest: bool
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    counts_padding: bool = True  # of a mean


@dataclass(frozen=True, eq=False)
class GlobalMean(Operation):
    """The mean over all pixels: N, C, 1, 1."""


@dataclass(frozen=True, eq=False)
class Add(Operation):
    """act(x + y) of two values of one shape."""

    activation: Activation = Activation.NONE


@dataclass(frozen=True, eq=False)
class Multiply(Operation):
    """x · y, of one shape, or y is N, C, 1, 1 (a gate for each channel)."""


@dataclass(frozen=True, eq=False)
class Concat(Operation):
    """Along the channels."""


@dataclass(frozen=True, eq=False)
class Apply(Operation):
    """An activation alone."""

    activation: Activation


@dataclass(frozen=True, eq=False)
class Flatten(Operation):
    """N, C, H, W -> N, C·H·W."""


@dataclass(frozen=True, eq=False)
class Norm(Operation):
    """(x − mean) / √(variance + eps) · weight + bias, over the last dimension."""

    weight: Tensor
    bias: Tensor
    eps: float


@dataclass(frozen=True, eq=False)
class Attention(Operation):
    """softmax(scale · q kᵀ) v for each head, where q, k and v are channels of one value: N, T, C -> N, T, heads · D."""

    channels: Tensor  # which of C are q, k and v: 3, heads, D
    scale: float
    seen: Tensor | None = None  # T, T: which tokens (columns) each token sees; None: all


@dataclass(frozen=True, eq=False)
class Softmax(Operation):
    """Over a dimension."""

    dim: int


@dataclass(frozen=True, eq=False)
class Opaque(Operation):
    """Anything else: ``run`` takes the inputs as torch tensors; ``what`` says it in the user's words."""

    what: str
    run: Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class Graph:
    """Operations in the order in which they run. ``shapes`` are those for the example, of every value."""

    inputs: tuple[str, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    batch: int | None = None  # the only one that it takes; None: any
    whole: tuple[str, ...] = ()  # inputs that are no floats, such as tokens
    flags: tuple[str, ...] = ()  # those of them that are true or false, such as masks

    def zeros(self, batch: int) -> tuple[Tensor, ...]:
        """Inputs of the right shapes and types."""
        kinds = dict.fromkeys(self.inputs, torch.float32) | dict.fromkeys(self.whole, torch.int64)
        kinds |= dict.fromkeys(self.flags, torch.bool)
        return tuple(torch.zeros(batch, *self.shapes[name][1:], dtype=kind) for name, kind in kinds.items())

    def typed(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The inputs, floats in float32."""
        return tuple(x if name in self.whole else x.float() for name, x in zip(self.inputs, inputs, strict=True))

    def readers(self, name: str) -> list[Operation]:
        """The operations that read a value."""
        return [operation for operation in self.operations if name in operation.inputs]
