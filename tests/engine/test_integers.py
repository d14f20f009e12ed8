"""The integers against real arithmetic: one grey level at most, and the words of instructions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from engine_networks import scale_for
from softprune.engine import integers
from softprune.engine.activations import FUNCTIONS
from softprune.engine.graph import Activation
from softprune.engine.quantized import Scale, bounds, fixed_point, table, whole_layer, whole_layer16

SEEDS = st.integers(0, 10**6)


@settings(max_examples=100, deadline=None)
@given(st.floats(-40, -0.1), st.sampled_from((0, 4)))
def test_fixed_points_are_near(exponent: float, bits: int) -> None:
    ratio = torch.tensor([2.0 ** (exponent - bits)], dtype=torch.float64)
    multiplier, shift = fixed_point(ratio, bits)
    found = multiplier.double() * 2.0 ** -(15.0 + bits) * 2.0 ** -shift.double()
    assert 0 <= int(shift) <= 31
    if exponent - bits > -25:
        assert abs(float(found / ratio) - 1) < 2.0**-11


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.booleans(), st.sampled_from((Activation.NONE, Activation.RELU, Activation.RELU6)))
def test_a_layer_is_right_within_a_grey_level(seed: int, added: bool, activation: Activation) -> None:
    torch.manual_seed(seed)
    x = torch.randn(2, 12, 6, 6) * 3 + torch.randn(())
    weight, bias = torch.randn(8, 12, 3, 3) / 10, torch.randn(8)
    scale = scale_for(x)
    rows = weight.flatten(1).abs().amax(1) / 127
    rounded = (weight / rows.view(-1, 1, 1, 1)).round() * rows.view(-1, 1, 1, 1)
    q = integers.quantize(x, scale)
    seen = scale.real(q)
    y = functional.conv2d(functional.pad(seen, (1, 1, 1, 1)), rounded.double(), bias.double())
    residual = torch.randn(2, 8, 6, 6) * 2 - 0.5 if added else None
    r_scale = scale_for(residual) if residual is not None else None
    r = integers.quantize(residual, r_scale) if residual is not None and r_scale else None
    if r is not None and r_scale:
        y = y + r_scale.real(r)
    out = scale_for(y) if activation is Activation.NONE else scale_for(y.clamp_min(0))
    layer = whole_layer(weight, bias, rows, scale, out, r_scale, activation)
    found = integers.convolution(q, layer, padding=(1, 1, 1, 1), zero=scale.zero, residual=r)
    right = out.quantize(FUNCTIONS[activation](y)).clamp(*bounds(activation, out))
    assert int((found - right).abs().max()) <= 1
    assert float((found != right).double().mean()) < 0.15


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_sums_products_and_means_are_right_within_a_grey_level(seed: int) -> None:
    torch.manual_seed(seed)
    x, y = torch.randn(2, 5, 4, 4) * 2 + torch.randn(()), torch.randn(2, 5, 4, 4) + torch.randn(())
    a, b = scale_for(x), scale_for(y)
    p, q = integers.quantize(x, a), integers.quantize(y, b)
    u, v = a.real(p), b.real(q)
    for exact, out, found in (
        (u + v, scale_for(u + v), lambda s: integers.add(p, q, (a, b, s))),
        (u * v, scale_for(u * v), lambda s: integers.multiply(p, q, (a, b, s))),
        (u.mean((2, 3), keepdim=True), scale_for(u), lambda s: integers.global_mean(p, a, s)),
    ):
        assert int((found(out) - out.quantize(exact)).abs().max()) <= 1


def test_tables_are_the_activations() -> None:
    before, after = Scale(8 / 255, 128), Scale(4.2 / 255, 10)
    for activation in (Activation.GELU, Activation.SILU, Activation.HARDSWISH, Activation.SIGMOID, Activation.TANH):
        bytes_ = table(activation, before, after)
        right = FUNCTIONS[activation](before.real(torch.arange(256)))
        error = (after.real(bytes_) - right).abs()
        inside = (right > after.real(torch.tensor(0))) & (right < after.real(torch.tensor(255)))
        assert float(error[inside].max()) <= after.scale / 2 + 1e-9


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_int16_is_nearly_exact(seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(1, 6, 5, 5)
    weight, bias = torch.randn(4, 6, 3, 3) / 5, torch.randn(4)
    y = functional.conv2d(functional.pad(x, (1, 1, 1, 1)), weight, bias)
    scale, out = Scale(float(x.abs().max()) / 32000), Scale(float(y.abs().max()) / 10000)
    layer = whole_layer16(weight, bias, scale, out)
    found = integers.convolution16(integers.quantize16(x, scale), layer, padding=(1, 1, 1, 1))
    assert float((found * out.scale - y).abs().max()) < 60 * out.scale


def test_rounded_products() -> None:
    x = torch.tensor([32767, -32768, 1, -1, 16384])
    assert integers.mulhrs(x, 32767).tolist() == [32766, -32767, 1, -1, 16384]
    assert integers.mulhrs(x, 16384).tolist() == [16384, -16384, 1, 0, 8192]
    assert integers.wrap16(torch.tensor([32768, -32769, 5])).tolist() == [-32768, 32767, 5]


def test_quantizing_rounds_half_to_even_and_clamps() -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -1e9, 1e9, float("nan"), float("inf"), -float("inf")])
    assert integers.quantize(x, Scale(1.0, 3)).tolist() == [3, 5, 5, 0, 255, 0, 255, 0]


def test_a_table_needs_a_scale_in_front() -> None:
    with pytest.raises(ValueError, match="in front of it"):
        whole_layer(torch.ones(1, 1), torch.zeros(1), torch.ones(1), Scale(1.0), Scale(1.0), None, Activation.GELU)
