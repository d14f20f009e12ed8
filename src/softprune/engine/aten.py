"""What a call of aten is in a graph: one table. A function returns the operation, or None: then torch runs the call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from softprune.engine.graph import (
    Activation,
    Add,
    Affine,
    Apply,
    Concat,
    Convolution,
    Flatten,
    GlobalMean,
    Linear,
    Multiply,
    Norm,
    Operation,
    Pool,
    Softmax,
)

aten = torch.ops.aten
Sides = tuple[int, int, int, int]  # left, right, top, bottom
Built = Operation | tuple[Operation, ...] | None  # several, one after the other: the last makes the value


@dataclass(frozen=True)
class Aten:
    """A call: its arguments by name, where constants are tensors and numbers, and computed values are nodes.

    Args:
        name: of the value that it makes.
        arguments: those of the schema, defaults included.
        shape: of the value; the batch may be symbolic.
        dtype: of the value.
        names: of computed values.
        makers: the operations that make them, of those that have one.
    """

    name: str
    arguments: dict[str, Any]
    shape: tuple[Any, ...]
    dtype: torch.dtype
    names: Mapping[Node, str]
    makers: Mapping[Node, Operation]

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    def first(self) -> Any:
        return next(iter(self.arguments.values()))


def _convolution(call: Aten) -> Operation | None:
    x, weight, bias = call["input"], call["weight"], call["bias"]
    if not (_rank(x) == 4 and isinstance(weight, Tensor) and weight.dim() == 4 and _constant_or_none(bias)):
        return None
    if call.arguments.get("transposed"):
        return None
    stride, dilation = _pair(call["stride"]), _pair(call["dilation"])
    padding = call["padding"]
    if padding == "same":
        spare = [d * (k - 1) for k, d in zip(weight.shape[2:], dilation, strict=True)]
        sides = (spare[1] // 2, spare[1] - spare[1] // 2, spare[0] // 2, spare[0] - spare[0] // 2)
    else:
        rows, columns = (0, 0) if padding == "valid" else _pair(padding)
        sides = (columns, columns, rows, rows)
    x, around = _unpadded(x, call, value=0)
    bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
    return Convolution(call.name, (call.names[x],), weight, bias, stride, _sum(sides, around), dilation, call["groups"])


def _linear(call: Aten) -> Operation | None:
    return _product(call, call["input"], call["weight"], call["bias"])


def _addmm(call: Aten) -> Operation | None:
    if not isinstance(call["mat2"], Tensor) or call["beta"] != 1 or call["alpha"] != 1:
        return None
    return _product(call, call["mat1"], call["mat2"].t(), call["self"])


def _matmul(call: Aten) -> Operation | None:
    x, matrix = list(call.arguments.values())[:2]
    return _product(call, x, matrix.t(), None) if isinstance(matrix, Tensor) and matrix.dim() == 2 else None


def _bmm(call: Aten) -> Operation | None:
    """With one matrix for all of the batch."""
    matrix = call["mat2"]
    same = isinstance(matrix, Tensor) and (matrix.stride(0) == 0 or len(matrix) == 1)
    return _product(call, call["self"], matrix[0].t(), None) if same else None


def _product(call: Aten, x: Any, weight: Any, bias: Any) -> Operation | None:
    if not (_rank(x) >= 2 and isinstance(weight, Tensor) and weight.dim() == 2 and _constant_or_none(bias)):
        return None
    if bias is None:
        bias = weight.new_zeros(weight.shape[0])
    if bias.dim() > 1:
        return None
    return Linear(call.name, (call.names[x],), weight.contiguous(), bias.expand(weight.shape[0]).contiguous())


def _batch_norm(call: Aten) -> Operation | None:
    x, mean, variance = call["input"], call["running_mean"], call["running_var"]
    weight, bias = call["weight"], call["bias"]
    if call.arguments.get("training") or _rank(x) not in (2, 4) or not isinstance(mean, Tensor):
        return None
    if not (isinstance(variance, Tensor) and _constant_or_none(weight) and _constant_or_none(bias)):
        return None
    scale = (variance.double() + call["eps"]).rsqrt()
    scale = scale if weight is None else scale * weight.double()
    shift = -mean.double() * scale
    shift = shift if bias is None else shift + bias.double()
    return _affine(call, x, scale, shift)


def _layer_norm(call: Aten) -> Operation | None:
    x, weight, bias, sizes = call["input"], call["weight"], call["bias"], call["normalized_shape"]
    if len(sizes) != 1 or _rank(x) not in (2, 3) or not (_constant_or_none(weight) and _constant_or_none(bias)):
        return None
    weight = torch.ones(sizes, dtype=call.dtype) if weight is None else weight
    bias = torch.zeros(sizes, dtype=call.dtype) if bias is None else bias
    return Norm(call.name, (call.names[x],), weight, bias, call["eps"])


def _activation(activation: Activation) -> Callable[[Aten], Operation | None]:
    return lambda call: Apply(call.name, (call.names[call.first()],), activation)


def _gelu(call: Aten) -> Operation | None:
    activation = Activation.GELU_TANH if call["approximate"] == "tanh" else Activation.GELU
    return Apply(call.name, (call.names[call["self"]],), activation)


def _clamp(low: str, high: str) -> Callable[[Aten], Operation | None]:
    """ReLU and ReLU6, as bounds."""

    def build(call: Aten) -> Operation | None:
        known = {(0, 6): Activation.RELU6, (0, None): Activation.RELU}
        activation = known.get((call.arguments.get(low), call.arguments.get(high)))  # type: ignore[arg-type]
        return Apply(call.name, (call.names[call["self"]],), activation) if activation else None

    return build


def _max_pool(call: Aten) -> Operation | None:
    x, kernel, padding = call["self"], _pair(call["kernel_size"]), _pair(call["padding"])
    if _rank(x) != 4 or _pair(call["dilation"]) != (1, 1):
        return None
    stride = _pair(call["stride"] or kernel)
    sides = (padding[1], padding[1], padding[0], padding[0])
    if call["ceil_mode"]:  # a window may end after the border, in what counts as -inf
        sizes = zip(_image(x), call.shape[2:], kernel, stride, padding, strict=True)
        down, right = ((n - 1) * s + k - size - p for size, n, k, s, p in sizes)
        sides = (padding[1], max(right, padding[1]), padding[0], max(down, padding[0]))
    x, around = _unpadded(x, call, value=-math.inf)
    return Pool(call.name, (call.names[x],), True, kernel, stride, _sum(sides, around))


def _mean_pool(call: Aten) -> Operation | None:
    x, kernel, padding = call["self"], _pair(call["kernel_size"]), _pair(call["padding"])
    stride = _pair(call["stride"] or kernel)
    if _rank(x) != 4 or call["divisor_override"] is not None:
        return None
    whole = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(_image(x), padding, kernel, stride, strict=True)]
    if list(call.shape[2:]) != whole:  # ceil_mode, where a window that ends outside has fewer pixels
        return None
    sides = (padding[1], padding[1], padding[0], padding[0])
    return Pool(call.name, (call.names[x],), False, kernel, stride, sides, call["count_include_pad"])


def _adaptive_pool(largest: bool) -> Callable[[Aten], Operation | None]:
    """Windows that do not overlap, where the sizes divide."""

    def build(call: Aten) -> Operation | None:
        x = call["self"]
        if _rank(x) != 4:
            return None
        sizes = list(zip(_image(x), call.shape[2:], strict=True))
        if any(before % after for before, after in sizes):
            return None
        if not largest and call.shape[2:] == (1, 1):
            return GlobalMean(call.name, (call.names[x],))
        kernel = (sizes[0][0] // sizes[0][1], sizes[1][0] // sizes[1][1])
        return Pool(call.name, (call.names[x],), largest, kernel, kernel)

    return build


def _mean(call: Aten) -> Built:
    x, dims = call["self"], call["dim"]
    if _rank(x) != 4 or dims is None or sorted(d % 4 for d in dims) != [2, 3] or call["dtype"] is not None:
        return None
    if call["keepdim"]:
        return GlobalMean(call.name, (call.names[x],))
    mean = GlobalMean(f"{call.name}.pixels", (call.names[x],))
    return mean, Flatten(call.name, (mean.name,))


def _add(call: Aten) -> Operation | None:
    x, y = call["self"], call["other"]
    if call["alpha"] != 1:
        return None
    if isinstance(x, Node) and isinstance(y, Node):
        return Add(call.name, (call.names[x], call.names[y])) if _shape(x) == _shape(y) else None
    x, y = (x, y) if isinstance(x, Node) else (y, x)
    channels = _per_channel(call, x, y)
    return None if channels is None else _affine(call, x, torch.ones_like(channels), channels)


def _multiply(call: Aten) -> Operation | None:
    x, y = call["self"], call["other"]
    if isinstance(x, Node) and isinstance(y, Node):
        if _shape(x) != call.shape:
            x, y = y, x
        gate = (*call.shape[:2], 1, 1)
        same = _shape(x) == call.shape and (_shape(y) == call.shape or (len(call.shape) == 4 and _shape(y) == gate))
        return Multiply(call.name, (call.names[x], call.names[y])) if same else None
    x, y = (x, y) if isinstance(x, Node) else (y, x)
    channels = _per_channel(call, x, y)
    return None if channels is None else _affine(call, x, channels, torch.zeros_like(channels))


def _affine(call: Aten, x: Node, weight: Tensor, bias: Tensor) -> Affine:
    return Affine(call.name, (call.names[x],), weight, bias, call.dtype)


def _per_channel(call: Aten, x: Node, constant: Any) -> Tensor | None:
    """A constant with one number for each channel that a layer makes, in float64; None if it is not one."""
    maker = call.makers.get(x)
    if not isinstance(maker, Convolution | Linear | Affine) or _shape(x) != call.shape:
        return None
    image = len(call.shape) == 4 and not isinstance(maker, Linear)
    if len(call.shape) == 4 and not image:
        return None
    constant = torch.as_tensor(constant).double()
    assert isinstance(constant, Tensor)
    channels = call.shape[1] if image else call.shape[-1]
    full = (1, channels, 1, 1) if image else (channels,)
    if constant.numel() == 1:
        return constant.reshape(1).expand(channels)
    while constant.dim() > len(full) and constant.shape[0] == 1:
        constant = constant[0]
    padded = (1,) * (len(full) - constant.dim()) + tuple(constant.shape)
    return constant.reshape(channels) if padded == full else None


def _concat(call: Aten) -> Operation | None:
    parts, dim = call["tensors"], call["dim"]
    if not all(isinstance(part, Node) for part in parts) or dim % len(call.shape) != 1 or len(call.shape) not in (2, 4):
        return None
    return Concat(call.name, tuple(call.names[part] for part in parts))


def _flatten(call: Aten) -> Operation | None:
    x = call["self"]
    same = _rank(x) == 4 and len(call.shape) == 2 and _shape(x)[0] == call.shape[0]
    return Flatten(call.name, (call.names[x],)) if same else None


def _softmax(call: Aten) -> Operation | None:
    plain = call.arguments.get("dtype") is None and not call.arguments.get("half_to_float")
    return Softmax(call.name, (call.names[call["self"]],), call["dim"]) if plain else None


TABLE: dict[Any, Callable[[Aten], Built]] = {
    aten.conv2d.default: _convolution,
    aten.conv2d.padding: _convolution,
    aten.convolution.default: _convolution,
    aten.linear.default: _linear,
    aten.addmm.default: _addmm,
    aten.mm.default: _matmul,
    aten.matmul.default: _matmul,
    aten.bmm.default: _bmm,
    aten.batch_norm.default: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten.relu.default: _activation(Activation.RELU),
    aten.relu6.default: _activation(Activation.RELU6),
    aten.silu.default: _activation(Activation.SILU),
    aten.hardswish.default: _activation(Activation.HARDSWISH),
    aten.hardsigmoid.default: _activation(Activation.HARDSIGMOID),
    aten.sigmoid.default: _activation(Activation.SIGMOID),
    aten.tanh.default: _activation(Activation.TANH),
    aten.gelu.default: _gelu,
    aten.hardtanh.default: _clamp("min_val", "max_val"),
    aten.clamp.default: _clamp("min", "max"),
    aten.clamp_min.default: _clamp("min", "max"),
    aten.max_pool2d.default: _max_pool,
    aten.max_pool2d_with_indices.default: _max_pool,
    aten.avg_pool2d.default: _mean_pool,
    aten.adaptive_avg_pool2d.default: _adaptive_pool(largest=False),
    aten._adaptive_avg_pool2d.default: _adaptive_pool(largest=False),
    aten.adaptive_max_pool2d.default: _adaptive_pool(largest=True),
    aten.mean.dim: _mean,
    aten.add.Tensor: _add,
    aten.mul.Tensor: _multiply,
    aten.cat.default: _concat,
    aten.flatten.using_ints: _flatten,
    aten.view.default: _flatten,
    aten.reshape.default: _flatten,
    aten._unsafe_view.default: _flatten,
    aten.layer_norm.default: _layer_norm,
    aten.softmax.int: _softmax,
    aten._softmax.default: _softmax,
}

COPIES = {
    aten.clone.default,
    aten.contiguous.default,
    aten.alias.default,
    aten.detach.default,
    aten.detach_.default,
    aten.lift_fresh_copy.default,
    aten.dropout.default,
    aten.feature_dropout.default,
}
RESHAPES = {  # of any strides, not only of those that were there at the export
    aten.view.default: aten.reshape.default,
    aten._unsafe_view.default: aten.reshape.default,
}
SAME_IF_SHAPE = {*RESHAPES, aten.reshape.default, aten.flatten.using_ints, aten.expand.default, aten.slice.Tensor}


def is_copy(target: Any, x: Node, shape: tuple[Any, ...], dtype: torch.dtype) -> bool:
    """Whether a call gives back its first argument x."""
    if target in COPIES:
        return True
    if target in SAME_IF_SHAPE:
        return _shape(x) == shape
    return target in (aten._to_copy.default, aten.to.dtype) and bool(value_of(x).dtype == dtype)


def _unpadded(x: Node, call: Aten, value: float) -> tuple[Node, Sides]:
    """What a padding of the image reads, and its sides; x and none where x is something else."""
    if x.target not in (aten.constant_pad_nd.default, aten.pad.default):
        return x, (0, 0, 0, 0)
    source, sides, *rest = x.args
    given = {"mode": "constant", "value": None, **x.kwargs}
    if x.target is aten.pad.default and rest:
        given["mode"], rest = rest[0], rest[1:]
    filled = (rest[0] if rest else given["value"]) or 0
    assert isinstance(sides, Sequence)
    whole = all(isinstance(side, int) and side >= 0 for side in sides) and len(sides) <= 4
    if given["mode"] != "constant" or filled != value or not whole or source not in call.names:
        return x, (0, 0, 0, 0)
    left, right, top, bottom = (*sides, 0, 0, 0, 0)[:4]
    assert isinstance(source, Node)
    return source, (left, right, top, bottom)  # type: ignore[return-value]


def _sum(a: Sides, b: Sides) -> Sides:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def _pair(sizes: Any) -> tuple[int, int]:
    sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    return (sizes[0], sizes[-1])


def shape_of(value: Tensor) -> tuple[Any, ...]:
    """Sizes as numbers; a symbolic one as its expression, which compares without a guess."""
    sizes = (size if isinstance(size, int) else size.node.expr for size in value.shape)
    return tuple(int(size) if isinstance(size, int) or size.is_number else size for size in sizes)


def value_of(node: Node) -> Any:
    """What stands for its value at the export; the first of several."""
    value = node.meta.get("val")
    return value[0] if isinstance(value, list | tuple) and value else value


def _shape(x: Node) -> tuple[Any, ...]:
    return shape_of(value_of(x))


def _image(x: Node) -> tuple[Any, ...]:
    return _shape(x)[2:]


def _rank(x: Any) -> int:
    return len(_shape(x)) if isinstance(x, Node) else -1


def _constant_or_none(x: Any) -> bool:
    return x is None or isinstance(x, Tensor)
