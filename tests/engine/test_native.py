"""Every kernel against the integers, bit by bit, in small networks of any shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine_networks import Builder, quantize, quantize16, run_floats
from softprune.engine import build, graph, integers, native, run_integers, run_torch
from softprune.engine.activations import FUNCTIONS
from softprune.engine.choices import Choice, Choices, candidates
from softprune.engine.compiled import Compiled
from softprune.engine.formats import Form
from softprune.engine.graph import Activation
from softprune.engine.lower import Native, sections
from softprune.engine.quantize import quantize as quantize_
from softprune.engine.quantized import Precision, Quantized

FASTEST, *OTHERS = [variant.name for variant in build.available() if variant.name != "avxvnni"]
VARIANTS = [FASTEST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
"""test_variants.py looks at the vectors of all of them."""
CLAMPS = (Activation.NONE, Activation.RELU, Activation.RELU6)
TABLES = (Activation.GELU, Activation.SILU, Activation.HARDSWISH, Activation.SIGMOID, Activation.TANH)
EXAMPLES = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run(net: Quantized, x: Tensor, variant: str, threads: int = 1, form: Form | None = None) -> dict[str, Tensor]:
    """The outputs by the kernels; the network must be one section. ``form``: of all layers that can have it."""
    (section,) = sections(net, len(x))
    assert isinstance(section, Native)
    choices = Choices(native.load(variant))
    for draft in section.drafts if form else ():
        possible = [choice for choice in candidates(draft, 1) if choice.form == form] if draft.entries else []
        choices.best |= {choices.key(draft, threads): choice for choice in possible}
    compiled = Compiled(section, native.load(variant), threads, choices)
    if form:
        assert any(entries.form == form for _, entries in compiled._chosen.values())
    shapes = [(len(x), *net.graph.shapes[name][1:]) for name in section.outputs]
    outputs = [torch.full(shape, -77.0) for shape in shapes]
    compiled.run([x], outputs)
    return dict(zip(section.outputs, outputs, strict=True))


def expect(net: Quantized, x: Tensor) -> dict[str, Tensor]:
    values = run_integers.run(net, x)
    found = {name: values[name] for name in net.graph.outputs}
    return {n: integers.dequantize(v, net.scales[n]) if n in net.scales else v for n, v in found.items()}


def same(net: Quantized, x: Tensor, variant: str) -> None:
    found = run(net, x, variant)
    for name, wanted in expect(net, x).items():
        assert torch.equal(found[name], wanted), name


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(data=st.data())
def test_convolutions(variant: str, data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    torch.manual_seed(draw(0, 10**6))
    groups = data.draw(st.sampled_from((1, 1, 2, 3)))
    kernel, stride, dilation = ((draw(1, 3), draw(1, 3)) for _ in range(3))
    padding = tuple(draw(0, 2) for _ in range(4))
    size = [draw(d * (k - 1) + 1, 20) for d, k in zip(dilation, kernel, strict=True)]
    shape = (draw(1, 5), groups * draw(1, 9), *size)
    net = Builder(shape, sparsity=data.draw(st.sampled_from((0.0, 0.5, 0.9, 1.0))), rows=draw(1, 2))
    first = net.conv(
        "x", groups * draw(1, 9), kernel, stride=stride, padding=padding, dilation=dilation, groups=groups,
        activation=data.draw(st.sampled_from(CLAMPS + TABLES)),
    )  # fmt: skip
    second = net.conv(first, net.shapes[first][1], residual=first, activation=data.draw(st.sampled_from(CLAMPS)))
    x = torch.randn(shape)
    same(quantize(net.graph(net.add(graph.Apply("out", (second,), Activation.NONE))), x, share=0.6), x, variant)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(data=st.data())
def test_depthwise_and_pools(variant: str, data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    torch.manual_seed(draw(0, 10**6))
    kernel, stride = ((draw(1, 3), draw(1, 3)) for _ in range(2))
    padding = tuple(draw(0, k // 2) for k in (kernel[1], kernel[1], kernel[0], kernel[0]))
    channels = draw(2, 11)
    shape = (draw(1, 6), channels, draw(3, 17), draw(3, 17))
    net = Builder(shape, sparsity=0.2)
    activation = data.draw(st.sampled_from(CLAMPS))
    y = net.conv("x", channels, kernel, stride=stride, padding=padding, groups=channels, activation=activation)
    if data.draw(st.booleans()):
        y = net.conv(y, channels, 3, residual=y, padding=(1,) * 4, groups=channels)
    largest = net.add(graph.Pool("largest", (y,), True, (2, 3), (1, 2), (1, 1, 1, 0)))
    mean = net.add(graph.Pool("mean", (y,), False, (3, 2), (2, 1), (1, 0, 1, 1)))
    everything = net.add(graph.GlobalMean("everything", (y,)))
    x = torch.randn(shape)
    same(quantize(net.graph(largest, mean, everything), x, share=0.7), x, variant)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(data=st.data())
def test_pointwise(variant: str, data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    torch.manual_seed(draw(0, 10**6))
    shape = (draw(1, 18), draw(1, 9), draw(1, 13), draw(1, 13))
    net = Builder(shape, sparsity=0.3)
    a = net.conv("x", draw(1, 9))
    b = net.conv("x", net.shapes[a][1], activation=Activation.RELU)
    total = net.add(graph.Add("total", (a, b), data.draw(st.sampled_from(CLAMPS))))
    gate = net.conv(net.add(graph.GlobalMean("squeeze", (total,))), net.shapes[a][1], activation=Activation.SIGMOID)
    gated = net.add(graph.Multiply("gated", (total, gate) if data.draw(st.booleans()) else (gate, total)))
    product = net.add(graph.Multiply("product", (gated, b)))
    joined = net.add(graph.Concat("joined", (a, product, "x", b)))
    lively = net.add(graph.Apply("lively", (joined,), data.draw(st.sampled_from(CLAMPS + TABLES))))
    x = torch.randn(shape)
    same(quantize(net.graph(total, gated, product, joined, lively), x, share=0.8), x, variant)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(data=st.data())
def test_tokens(variant: str, data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    torch.manual_seed(draw(0, 10**6))
    tokens = data.draw(st.sampled_from((None, 1, 2, 7, 30, 128)))
    shape = (draw(1, 20), draw(1, 30)) if tokens is None else (draw(1, 3), tokens, draw(1, 30))
    net = Builder(shape, sparsity=data.draw(st.sampled_from((0.0, 0.5, 0.9))), rows=draw(1, 2))
    y = net.linear("x", draw(1, 40), activation=data.draw(st.sampled_from(CLAMPS + TABLES)))
    y = net.linear(y, shape[-1], residual="x")
    x = torch.randn(shape)
    same(quantize(net.graph(y, net.linear(y, draw(1, 20))), x, share=0.8), x, variant)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(data=st.data())
def test_few_pixels(variant: str, data: st.DataObject) -> None:
    """Lanes are rows: tokens, pixels, windows of several, rows that are no multiple of 16, layers in several parts."""

    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    torch.manual_seed(draw(0, 10**6))
    sparsity = data.draw(st.sampled_from((0.0, 0.5, 0.9, 1.0)))
    activation = data.draw(st.sampled_from(CLAMPS + TABLES))
    if data.draw(st.booleans()):
        net = Builder((draw(1, 2), 3 * draw(1, 60), draw(1, 2), 1), sparsity=sparsity, rows=draw(1, 2))
        y = net.conv("x", 3 * draw(1, 60), (1, 1), activation=activation, groups=data.draw(st.sampled_from((1, 3))))
        y = net.conv(y, net.shapes["x"][1], (3, 1), residual="x", padding=(0, 0, 1, 1))
        y = net.add(graph.Flatten("flat", (y,)))
    else:
        batch, tokens = data.draw(st.sampled_from(((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1))))
        net = Builder((batch, tokens, draw(1, 300)), sparsity=sparsity, rows=draw(1, 2))
        y = net.linear("x", draw(1, 90), activation=activation)
        y = net.linear(y, net.shape[-1], residual="x")
    quantized = quantize(net.graph(net.linear(y, draw(1, 40))), x := torch.randn(net.shape), share=0.8)
    found = run(quantized, x, variant, draw(1, 3), Form(few=True))
    for name, right in expect(quantized, x).items():
        assert torch.equal(found[name], right), name


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 5)])
def test_a_flattened_picture(variant: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    shape = (3, 6, *size)
    net = Builder(shape)
    y = net.conv("x", 10, 3, padding=(1,) * 4, activation=Activation.RELU)
    y = net.linear(net.add(graph.Flatten("flat", (y,))), 7, activation=Activation.RELU)
    x = torch.randn(shape)
    same(quantize(net.graph(net.linear(y, 4)), x), x, variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_sums_of_extremes(variant: str) -> None:
    """All bytes 255, all weights 127 or -127: shifted sums saturate, and so do residuals."""
    net = Builder((1, 256, 8, 8), sparsity=0.0)
    y = net.conv("x", 8, 3, padding=(1,) * 4)
    y = net.conv(y, 8, residual=y)
    x = torch.rand(1, 256, 8, 8)
    quantized = quantize(net.graph(net.add(graph.Apply("out", (y,), Activation.NONE))), x, share=0.01)
    for layer in quantized.layers.values():
        sign = torch.where(torch.arange(len(layer.weight)) % 2 == 0, 127, -127).to(torch.int8)
        layer.weight.copy_(sign.view(-1, 1, 1, 1).expand_as(layer.weight))
        layer.multiplier.fill_(32767)
        layer.shift.fill_(1)
    same(quantized, torch.full_like(x, 1e9), variant)
    same(quantized, torch.full_like(x, -1e9), variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_no_number_becomes_the_smallest(variant: str) -> None:
    net = Builder((1, 4, 4, 4), sparsity=0.0)
    y = net.add(graph.Apply("out", ("x",), Activation.NONE))
    x = torch.linspace(-3, 2, 64).view(1, 4, 4, 4)
    quantized = quantize(net.graph(y), x)
    bad = x.clone()
    bad[0, 0, 0] = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e38])
    same(quantized, bad, variant)
    assert run(quantized, bad, variant)["out"][0, 0, 0, 0] == run(quantized, x.fill_(-9), variant)["out"].min()


def small_net(data: st.DataObject, activations: tuple[Activation, ...] = CLAMPS) -> tuple[Builder, list[str]]:
    """Layers, pools, sums and means, of any shape and any sparsity."""

    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    torch.manual_seed(draw(0, 10**6))
    groups = data.draw(st.sampled_from((1, 1, 2)))
    kernel, stride, dilation = ((draw(1, 3), draw(1, 2)) for _ in range(3))
    size = [draw(d * (k - 1) + 2, 20) for d, k in zip(dilation, kernel, strict=True)]
    sparsity = data.draw(st.sampled_from((0.0, 0.5, 0.9, 1.0)))
    net = Builder((draw(1, 5), groups * draw(1, 5), *size), sparsity=sparsity, columns=1)
    options = {"stride": stride, "dilation": dilation, "groups": groups, "padding": tuple(draw(0, 2) for _ in range(4))}
    y = net.conv("x", groups * draw(1, 5), kernel, activation=data.draw(st.sampled_from(activations)), **options)
    z = net.conv(y, net.shapes[y][1], residual=y, activation=data.draw(st.sampled_from(activations)))
    total = net.add(graph.Add("total", (y, z), data.draw(st.sampled_from(activations))))
    largest = net.add(graph.Pool("largest", (total,), True, (2, 2), (2, 1), (1, 1, 1, 0)))
    mean = net.add(graph.Pool("mean", (total,), False, (2, 2), (1, 2), (0, 1, 1, 1)))
    flat = net.add(graph.Flatten("flat", (net.add(graph.GlobalMean("everything", (total,))),)))
    return net, [total, largest, mean, "everything", net.linear(flat, draw(1, 9))]


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(data=st.data())
def test_int16(variant: str, data: st.DataObject) -> None:
    net, outputs = small_net(data)
    x = torch.randn(net.shape)
    same(quantize16(net.graph(*outputs), x), x * data.draw(st.sampled_from((1, 1, 5))), variant)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(data=st.data())
def test_fp32(variant: str, data: st.DataObject) -> None:
    net, outputs = small_net(data, tuple(Activation))
    x = torch.randn(net.shape)
    found = run(Quantized(net.graph(*outputs), {}, {}, Precision.FP32), x, variant)
    values = {"x": x.double()}
    for op in net.operations:
        exact = replace(op, weight=op.weight.double(), bias=op.bias.double()) if hasattr(op, "weight") else op
        values[op.name] = run_floats(exact, [values[name] for name in op.inputs])
    for name in outputs:
        torch.testing.assert_close(found[name].double(), values[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("activation", Activation)
def test_activations_in_fp32_are_as_exact_as_floats(variant: str, activation: Activation) -> None:
    net = Builder((1, 1, 1, 36_001))
    made = net.graph(net.add(graph.Apply("out", ("x",), activation)))
    for most in (0.01, 5.0, 90.0, 1e4):
        x = torch.linspace(-most, most, 36_001).view(net.shape)
        found = run(Quantized(made, {}, {}, Precision.FP32), x, variant)["out"].double()
        exact = FUNCTIONS[activation](x.double())
        assert ((found - exact).abs() <= 3e-7 * x.abs().clamp_min(1)).all(), (most, float((found - exact).abs().max()))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("precision", Precision)
def test_every_choice_is_right(variant: str, precision: Precision) -> None:
    """All walks of a panel, rows in pairs or not, channels in slices or not, rows in parts or not."""
    torch.manual_seed(5)
    net = Builder((1, 40, 7, 29), sparsity=0.6, columns=4)
    y = net.conv("x", 22, 3, padding=(1,) * 4, activation=Activation.RELU)
    y = net.conv(y, 22, residual=y)
    x = torch.randn(net.shape)
    made = net.graph(net.add(graph.GlobalMean("out", (y,))), y)
    library = native.load(variant)
    if precision is Precision.FP32:
        quantized, right = Quantized(made, {}, {}, precision), None
    else:
        quantized = quantize(made, x) if precision is Precision.INT8 else quantize16(made, x)
        right = expect(quantized, x)
    (section,) = sections(quantized, 1)
    assert isinstance(section, Native)
    shapes = [made.shapes[name] for name in section.outputs]
    first = None
    slices = (1,) if precision is Precision.INT8 else (1, 3)
    pairs = (False, True) if precision is Precision.INT8 else (False,)
    for form in [Form(paired, some) for paired in pairs for some in slices]:
        for piece, threads in [(piece, 1) for piece in range(1, library.widest + 1)] + [(2, 2), (3, 3)]:
            choices = Choices(library)
            for draft in section.drafts:
                choices.best[choices.key(draft, threads)] = Choice(min(piece, library.widest), form)
            compiled = Compiled(section, library, threads, choices)
            outputs = [torch.zeros(shape) for shape in shapes]
            compiled.run([x], outputs)
            if right is None:
                first = first or outputs
                for found, other in zip(outputs, first, strict=True):
                    torch.testing.assert_close(found, other)
            else:
                for name, found in zip(section.outputs, outputs, strict=True):
                    assert torch.equal(found, right[name]), (form, piece)


@pytest.mark.parametrize("variant", VARIANTS)
@EXAMPLES
@given(data=st.data())
def test_what_lies_between_the_layers_of_a_transformer(variant: str, data: st.DataObject) -> None:
    """Norms, attention and sums in fp32, for any number of tokens, images, heads and channels of a head."""

    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    torch.manual_seed(draw(0, 10**6))
    tokens, heads, each = data.draw(st.sampled_from((1, 2, 5, 16, 33, 130))), draw(1, 3), draw(1, 9)
    net = Builder((draw(1, 5), tokens, width := heads * each))
    normed = net.add(graph.Norm("norm", ("x",), torch.randn(width), torch.randn(width), 1e-5))
    packed = net.linear(normed, 3 * width, sparsity=0.0)
    seen = None
    if data.draw(st.booleans()):
        seen = torch.rand(tokens, tokens) < 0.5
        seen |= torch.eye(tokens, dtype=torch.bool)
    channels = torch.randperm(3 * width).view(3, heads, each)
    looked = net.add(graph.Attention("look", (packed,), channels, draw(1, 9) / 9, seen))
    total = net.add(graph.Add("total", ("x", looked), data.draw(st.sampled_from(CLAMPS))))
    made = net.graph(normed, looked, total)
    x = torch.randn(net.shape)
    net64 = run_torch.to(made, torch.float64)
    found = run(Quantized(made, {}, {}, Precision.FP32), x, variant, draw(1, 3))
    for name, right in zip(made.outputs, run_torch.run(net64, x.double()), strict=True):
        torch.testing.assert_close(found[name].double(), right, rtol=1e-4, atol=1e-5)


def test_large_products_do_not_overflow() -> None:
    """Softmax takes off the largest product first, and what is far below it counts nothing."""
    net = Builder((1, 4, 2))
    packed = net.linear("x", 6, sparsity=0.0)
    net.add(graph.Attention("look", (packed,), torch.arange(6).view(3, 1, 2), 1e4))
    made = net.graph("look")
    x = torch.randn(1, 4, 2) * 10
    found = run(Quantized(made, {}, {}, Precision.FP32), x, FASTEST)["look"]
    (right,) = run_torch.run(run_torch.to(made, torch.float64), x.double())
    torch.testing.assert_close(found.double(), right, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("batch", [1, 3, 17])
def test_sums_of_a_transformer_stay_in_floats(variant: str, batch: int) -> None:
    """A norm whose value both a layer and a sum read: the layer rounds it, the sum does not. A norm of bytes."""
    torch.manual_seed(batch)
    net = Builder((batch, 9, 12), sparsity=0.3)
    h = net.add(graph.Norm("norm", ("x",), torch.randn(12), torch.randn(12), 1e-5))
    y = net.linear(h, 20, activation=Activation.GELU)
    again = net.add(graph.Norm("again", (y,), torch.rand(20), torch.zeros(20), 1e-5))
    out = net.linear(again, 12)
    total = net.add(graph.Add("total", (h, out)))
    made = net.graph(total)
    x = torch.randn(net.shape)
    quantized = quantize_(made, x, Precision.INT8)
    assert {"norm", "again", "total", out} <= quantized.floats
    assert y not in quantized.floats
    found = run(quantized, x, variant)[total]
    values = run_integers.run(quantized, x, fallback=run_torch.compute)
    unit = float(quantized.layers[out].real.abs().max()) * 127  # type: ignore[union-attr]
    assert float((found - values[total]).abs().max()) <= unit  # a rounding that fell to the other side
    assert float((found != values[total]).float().mean()) < 0.5
    exact = run_torch.run(made, x)[0]
    assert float((found - exact).norm() / exact.norm()) < 0.02


def test_the_fastest_variant_is_loaded() -> None:
    assert native.load().name == build.available()[0].name


@pytest.mark.slow
def test_any_variant_is_loaded() -> None:
    assert native.load("plain").name == "plain"
