"""A graph in integers: scales and zero points of values, integer weights of layers.

    x = scale · (q - zero)                   a value: u8 in 0..255, or s16 with zero = 0
    a = Σ weight · q + bias                  a layer's sum, int32; a padded pixel holds the zero point
    v = clamp16(a >> shift)                  one shift and one multiplier for each output channel
    y = (v · multiplier + 2¹⁴) >> 15         then the residual, the clamp to low..high, the table

``bias`` holds all that is constant: the layer's own bias, - zero·Σ weight for the input's zero point, the output's zero
point, that of the residual, and what makes the shift round. ``whole_layer`` makes all of this for one layer, so that
whoever quantizes chooses scales alone. A layer whose value is an output in floats has ``real``: y = real · a.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import torch
from torch import Tensor

from softprune.engine.activations import FUNCTIONS
from softprune.engine.graph import (
    Activation,
    Add,
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
    Operation,
    Pool,
)

RESIDUAL_BITS = 4  # fractional bits of a sum with a residual


class Precision(Enum):
    """What values are made of."""

    INT8 = "int8"
    INT16 = "int16"
    FP32 = "fp32"


@dataclass(frozen=True)
class Scale:
    """x = scale · (q - zero)."""

    scale: float
    zero: int = 0

    def quantize(self, x: Tensor, low: int = 0, high: int = 255) -> Tensor:
        """The whole number nearest to x, as float64."""
        return (torch.round(x.double() / self.scale) + self.zero).clamp(low, high)

    def real(self, q: Tensor) -> Tensor:
        return (q.double() - self.zero) * self.scale


# Operations that can make integers.
INTEGERS = (Convolution, Linear, Pool, GlobalMean, Add, Multiply, Concat, Apply, Flatten)


@dataclass(frozen=True, eq=False)
class Integers:
    """One convolution or linear layer in integers.

    int8: ``weight`` int8, ``bias`` int32, ``multiplier`` int16 and ``shift`` int32 (0..31) for each output channel.
    int16: ``weight`` int16 is w · (scale of x / scale of y) in Q15, ``bias`` int16 in y's scale; nothing else.
    ``residual``: int8: ratio of the scales · 2¹²; int16: ratio · 2¹⁴; 0 where there is none.
    """

    weight: Tensor
    bias: Tensor
    multiplier: Tensor | None = None
    shift: Tensor | None = None
    residual: int = 0
    low: int = 0
    high: int = 255
    table: Tensor | None = None  # 256 bytes: y = table[clamped]
    real: Tensor | None = None  # float32 for each output channel: the output is real · a, in floats


@dataclass(frozen=True, eq=False)
class Quantized:
    """``scales`` of every value that is held in integers; ``layers`` by the name of their operation.

    What is made in floats stays in floats for those who read floats, even if it has a scale: layers round it for
    themselves. So the sums of a transformer lose nothing from block to block.
    """

    graph: Graph
    scales: dict[str, Scale]
    layers: dict[str, Integers]
    precision: Precision = Precision.INT8

    def in_floats(self, op: Operation) -> bool:
        """Whether an operation of a network in int8 reads and makes floats."""
        return isinstance(op, Norm | Attention) or (isinstance(op, Add) and op.name not in self.scales)

    @cached_property
    def floats(self) -> frozenset[str]:
        """The values that are made in floats. What comes from torch, or from the user, is if anybody reads floats."""
        found = {name for name in self.graph.shapes if name not in self.scales}
        found |= {op.name for op in self.graph.operations if self.in_floats(op)}
        own = {op.name for op in self.graph.operations if isinstance(op, INTEGERS)}
        read = {name for op in self.graph.operations if self.in_floats(op) for name in op.inputs}
        return frozenset(found | (read - own))


def fixed_point(ratio: Tensor, bits: int = 0) -> tuple[Tensor, Tensor]:
    """Multiplier and shift with multiplier · 2⁻¹⁵ · 2⁻ˢʰⁱᶠᵗ ≈ ratio · 2ᵇⁱᵗˢ, for ratios up to 2⁻ᵇⁱᵗˢ.

    The multiplier has 12 significant bits (15 with a residual): more would cost bits of the shifted sum, fewer lose
    more than a tenth of a grey level.
    """
    ratio = ratio.double().clamp_min(2.0**-60)
    target = 2.0 ** min(14, 11 + bits)  # the multiplier lies in target .. 2 · target, or above with shift 0
    shift = torch.floor(torch.log2(2 * target / (ratio * 2.0 ** (15 + bits)))).clamp(0, 31)
    multiplier = torch.round(ratio * 2.0 ** (15 + bits) * 2.0**shift).clamp(0, 32767)
    return multiplier.to(torch.int16), shift.to(torch.int32)


def bounds(activation: Activation, y: Scale) -> tuple[int, int]:
    """The clamp that is ReLU or ReLU6, or no activation."""
    if activation not in (Activation.NONE, Activation.RELU, Activation.RELU6):
        return 0, 255
    low = 0 if activation is Activation.NONE else max(0, min(255, y.zero))
    high = 255 if activation is not Activation.RELU6 else min(255, round(6 / y.scale) + y.zero)
    return low, max(low, high)


def bounds16(activation: Activation, y: Scale) -> tuple[int, int]:
    """The same in int16, where there is no zero point."""
    low = -32768 if activation is Activation.NONE else 0
    return low, 32767 if activation is not Activation.RELU6 else min(32767, round(6 / y.scale))


def is_table(activation: Activation) -> bool:
    """Whether an activation is a table of 256 bytes, not a clamp."""
    return activation not in (Activation.NONE, Activation.RELU, Activation.RELU6)


def table(activation: Activation, before: Scale, after: Scale) -> Tensor:
    """256 bytes: q of ``before`` -> q of ``after``."""
    return after.quantize(FUNCTIONS[activation](before.real(torch.arange(256)))).to(torch.uint8)


def whole_layer(
    weight: Tensor,
    bias: Tensor,
    weight_scale: Tensor,
    x: Scale,
    y: Scale | None,
    residual: Scale | None = None,
    activation: Activation = Activation.NONE,
    before: Scale | None = None,
) -> Integers:
    """An int8 layer from real weights. ``weight_scale``: one for each output channel; ``y`` None: output in floats.

    ``before`` is the scale in front of an activation that is a table; clamps need none. With ``y`` None there is no
    residual and no activation.
    """
    rows = weight.shape[0]
    scale = weight_scale.double().clamp_min(1e-30)
    q = torch.round(weight.double() / scale.view(-1, *[1] * (weight.dim() - 1))).clamp(-127, 127)
    unit = x.scale * scale  # of a
    constant = torch.round(bias.double() / unit) - x.zero * q.reshape(rows, -1).sum(1)
    if y is None:
        return Integers(q.to(torch.int8), whole(constant), real=unit.float())
    after = y
    if is_table(activation):
        if before is None:
            raise ValueError("An activation by table needs the scale in front of it.")
        y = before
    ratio = unit / y.scale
    bits = 0 if residual is None else RESIDUAL_BITS
    multiplier, shift = fixed_point(ratio, bits)
    step = 2.0 ** shift.double() * 2.0 ** (15 + bits) / multiplier.double().clamp_min(1)  # of a for one step of y
    offset = float(y.zero)
    rho = 0
    if residual is not None:
        rho = min(32767, round(residual.scale / y.scale * 4096))
        offset += 0.5 / 2**RESIDUAL_BITS - residual.zero * rho / 4096
    constant = constant + torch.round(step * offset) + torch.floor(2.0 ** (shift.double() - 1))
    low, high = bounds(activation, y)
    lookup = table(activation, y, after) if is_table(activation) else None
    return Integers(q.to(torch.int8), whole(constant), multiplier, shift, rho, low, high, lookup)


def whole_layer16(
    weight: Tensor,
    bias: Tensor,
    x: Scale,
    y: Scale,
    residual: Scale | None = None,
    activation: Activation = Activation.NONE,
) -> Integers:
    """An int16 layer from real weights. Scales must leave room: sums that leave 16 bits wrap."""
    q = torch.round(weight.double() * (x.scale / y.scale * 32768)).clamp(-32767, 32767).to(torch.int16)
    constant = torch.round(bias.double() / y.scale).clamp(-32768, 32767).to(torch.int16)
    rho = 0 if residual is None else min(32767, round(residual.scale / y.scale * 16384))
    low, high = bounds16(activation, y)
    return Integers(q, constant, residual=rho, low=low, high=high)


def whole(x: Tensor) -> Tensor:
    """int32, with room for a sum."""
    return x.clamp(-(2**30), 2**30).to(torch.int32)
