"""What every step computes, bit by bit, in torch's int64: the specification of the kernels.

Values are whole numbers in int64, N, C, H, W (tokens N, T, C are N, C, 1, T here). Sums are exact; the kernels' 32 bits
hold them as long as a row has at most 33,000 weights, since biases are at most 2³⁰.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from softprune.engine.graph import Activation
from softprune.engine.quantized import (
    RESIDUAL_BITS,
    Integers,
    Scale,
    bounds,
    bounds16,
    table,
    whole_layer,
    whole_layer16,
)


def clamp16(x: Tensor) -> Tensor:
    return x.clamp(-32768, 32767)


def wrap16(x: Tensor) -> Tensor:
    return (x + 32768) % 65536 - 32768


def mulhrs(x: Tensor, y: Tensor | int) -> Tensor:
    """The product of two Q15 numbers, rounded."""
    return (x * y + 16384) >> 15


def scaled(q: Tensor, factor: int) -> Tensor:
    """A byte times a factor in 1/4096, with 4 fractional bits."""
    return (q * factor) >> 8


def quantize(x: Tensor, scale: Scale) -> Tensor:
    """Floats -> bytes. All arithmetic is in float32; what is no number becomes 0."""
    low, high = torch.tensor(0.0 - scale.zero), torch.tensor(255.0 - scale.zero)
    t = x.float() * torch.tensor(1.0 / scale.scale, dtype=torch.float32)
    t = torch.where(t > low, t, low)
    return torch.where(t < high, t, high).round().long() + scale.zero


def dequantize(q: Tensor, scale: Scale) -> Tensor:
    return (q - scale.zero).float() * torch.tensor(scale.scale, dtype=torch.float32)


def quantize16(x: Tensor, scale: Scale) -> Tensor:
    """Floats -> shorts, as ``quantize``."""
    return whole16(x.float() * torch.tensor(1.0 / scale.scale, dtype=torch.float32))


def whole16(x: Tensor) -> Tensor:
    x = torch.where(x > -32768.0, x, -32768.0)
    return torch.where(x < 32767.0, x, 32767.0).round().long()


def pad(x: Tensor, padding: tuple[int, int, int, int], value: int) -> Tensor:
    return functional.pad(x, padding, value=value)


def sums(
    x: Tensor,
    layer: Integers,
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
    zero: int,
) -> Tensor:
    """a = Σ weight · q + bias, exact: float64 holds whole numbers up to 2⁵³."""
    x = pad(x, padding, zero).double()
    a = functional.conv2d(x, layer.weight.double(), layer.bias.double(), stride, 0, dilation, groups)
    return a.round().long()


def requantize(a: Tensor, layer: Integers, residual: Tensor | None = None) -> Tensor:
    """From sums to bytes; with ``real`` to floats."""
    if layer.real is not None:
        return a.float() * layer.real.view(1, -1, 1, 1)
    if layer.shift is None or layer.multiplier is None:
        raise ValueError("A layer in int8 has shifts and multipliers.")
    v = clamp16(a >> layer.shift.long().view(1, -1, 1, 1))
    v = mulhrs(v, layer.multiplier.long().view(1, -1, 1, 1))
    if residual is not None:
        v = mulhrs(clamp16(v + scaled(residual, layer.residual)), 1 << (15 - RESIDUAL_BITS))
    q = v.clamp(layer.low, layer.high)
    return q if layer.table is None else layer.table.long()[q]


def convolution(
    x: Tensor,
    layer: Integers,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    zero: int = 0,
    residual: Tensor | None = None,
) -> Tensor:
    """A convolution in int8; ``zero`` is the zero point of x."""
    return requantize(sums(x, layer, stride, padding, dilation, groups, zero), layer, residual)


def convolution16(
    x: Tensor,
    layer: Integers,
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    residual: Tensor | None = None,
) -> Tensor:
    """A convolution in int16: every product is rounded to y's scale, the sum wraps."""
    rows, each, kh, kw = layer.weight.shape
    x = pad(x, padding, 0)
    tall = (x.shape[2] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    wide = (x.shape[3] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    a = layer.bias.long().view(1, -1, 1, 1).expand(len(x), rows, tall, wide).clone()
    for row, c, y0, x0 in layer.weight.nonzero().tolist():
        channel = row // (rows // groups) * each + c
        top, left = y0 * dilation[0], x0 * dilation[1]
        seen = x[:, channel, top : top + stride[0] * tall : stride[0], left : left + stride[1] * wide : stride[1]]
        a[:, row] += mulhrs(seen[:, :tall, :wide], int(layer.weight[row, c, y0, x0]))
    a = wrap16(a)
    if residual is not None:
        a = clamp16(a + clamp16(2 * mulhrs(residual, layer.residual)))
    return a.clamp(layer.low, layer.high)


def largest(x: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int, int, int]) -> Tensor:
    """A max pool; y has the scale of x."""
    return functional.max_pool2d(pad(x, padding, 0).double(), kernel, stride).long()


def mean_layer(channels: int, kernel: tuple[int, int], x: Scale, y: Scale) -> Integers:
    """The mean of a window: a depthwise convolution whose weights are 1."""
    count = kernel[0] * kernel[1]
    weight = torch.full((channels, 1, *kernel), 1.0 / count, dtype=torch.float64)
    return whole_layer(weight, torch.zeros(channels), torch.full((channels,), 1.0 / count, dtype=torch.float64), x, y)


def global_mean(x: Tensor, scale: Scale, y: Scale) -> Tensor:
    layer = mean_layer(1, (x.shape[2], x.shape[3]), scale, y)
    return requantize(x.sum((2, 3), keepdim=True) + layer.bias.long(), layer)


def add_factors(x: Scale, y: Scale, out: Scale) -> tuple[int, int, int]:
    """Factors of x and y in 1/4096, and the constant in 1/16."""
    a, b = (min(32767, round(value.scale / out.scale * 4096)) for value in (x, y))
    constant = 16 * out.zero - (x.zero * a + y.zero * b) / 256 + 1
    return a, b, max(-32768, min(32767, round(constant)))


def add(x: Tensor, y: Tensor, scales: tuple[Scale, Scale, Scale], activation: Activation = Activation.NONE) -> Tensor:
    """``scales``: of x, y and the sum. An activation is a clamp here."""
    a, b, constant = add_factors(*scales)
    low, high = bounds(activation, scales[2])
    t = clamp16(clamp16(scaled(x, a) + scaled(y, b)) + constant)
    return mulhrs(t, 1 << 11).clamp(low, high)


def multiply_factors(x: Scale, y: Scale, out: Scale) -> tuple[int, int, int]:
    """The factor of the product, the constant, and the number of fractional bits."""
    ratio = x.scale * y.scale / out.scale
    bits = RESIDUAL_BITS
    while bits > 1 and ratio * 2.0 ** (16 + bits) > 32767:
        bits -= 1
    return min(32767, round(ratio * 2.0 ** (16 + bits))), out.zero << bits, bits


def multiply(x: Tensor, y: Tensor, scales: tuple[Scale, Scale, Scale]) -> Tensor:
    """x · y; y may be N, C, 1, 1."""
    factor, constant, bits = multiply_factors(*scales)
    p = mulhrs((x - scales[0].zero) * 128, (y - scales[1].zero) * 128)
    return mulhrs(clamp16(mulhrs(p, factor) + constant), 1 << (15 - bits)).clamp(0, 255)


def rescale(x: Tensor, before: Scale, after: Scale, activation: Activation = Activation.NONE) -> Tensor:
    """An activation alone, or another scale: a table."""
    return table(activation, before, after).long()[x]


def mean_ratio16(count: int, x: Scale, y: Scale) -> Tensor:
    return torch.tensor(x.scale / y.scale / count, dtype=torch.float32)


def global_mean16(x: Tensor, scale: Scale, y: Scale) -> Tensor:
    return whole16(x.sum((2, 3), keepdim=True).float() * mean_ratio16(x.shape[2] * x.shape[3], scale, y))


def mean_layer16(channels: int, kernel: tuple[int, int], x: Scale, y: Scale) -> Integers:
    """The mean of a window: a depthwise convolution."""
    weight = torch.full((channels, 1, *kernel), 1.0 / (kernel[0] * kernel[1]))
    return whole_layer16(weight, torch.zeros(channels), x, y)


def add_factors16(x: Scale, y: Scale, out: Scale) -> tuple[int, int]:
    """In Q14."""
    return min(32767, round(x.scale / out.scale * 16384)), min(32767, round(y.scale / out.scale * 16384))


def add16(x: Tensor, y: Tensor, scales: tuple[Scale, Scale, Scale], activation: Activation = Activation.NONE) -> Tensor:
    a, b = add_factors16(*scales)
    total = clamp16(clamp16(2 * mulhrs(x, a)) + clamp16(2 * mulhrs(y, b)))
    return total.clamp(*bounds16(activation, scales[2]))


def largest16(
    x: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int, int, int]
) -> Tensor:
    return functional.max_pool2d(pad(x, padding, -32768).double(), kernel, stride).long()
