"""A network in integers is near the network in floats."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine_models import C2f, Gated, settled, tokens
from softprune import models
from softprune.data.builtin import digits
from softprune.engine import integers, run_integers
from softprune.engine.calibrate import Extremes, Percentile
from softprune.engine.export import graph
from softprune.engine.fold import fold
from softprune.engine.graph import Activation, Add, Convolution, Flatten, Graph, Linear, Multiply, Pool
from softprune.engine.quantize import quantize, wanted
from softprune.engine.quantized import Precision, Quantized
from softprune.engine.run_torch import compute, run
from softprune.errors import ArgumentError


def whole(net: Quantized, *inputs: Tensor) -> Tensor:
    """The first output, in floats, with all integers as the kernels have them."""
    name = net.graph.outputs[0]
    value = run_integers.run(net, *inputs, fallback=compute)[name]
    return integers.dequantize(value, net.scales[name]) if name in net.scales else value


def noise(net: Quantized, *inputs: Tensor) -> float:
    """The error relative to the output, both as root mean squares."""
    (want,) = run(net.graph, *inputs)[:1]
    return float(((whole(net, *inputs) - want).square().mean() / want.square().mean()).sqrt())


NETWORKS: dict[str, tuple[Any, tuple[int, ...], float]] = {
    "mlp": (models.mlp, (1, 8, 8), 0.02),
    "gated": (Gated, (3, 9, 9), 0.03),
    "encoder": (tokens, (5, 16), 0.03),
    "vit": (models.vit_digits, (1, 8, 8), 0.03),
    "c2f": (C2f, (3, 8, 8), 0.04),
    "mobilenet": (lambda: nn.Sequential(*list(models.mobilenet_v1_cifar().model)[:4]), (3, 16, 16), 0.05),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in ("encoder", "vit") else []) for n in NETWORKS]
)
def test_networks_in_int8(name: str) -> None:
    make, shape, most = NETWORKS[name]
    torch.manual_seed(0)
    net = quantize(fold(graph(settled(make()), torch.randn(1, *shape))), torch.randn(64, *shape))
    assert 1e-4 < noise(net, torch.randn(16, *shape)) < most


@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])
def test_residuals_in_int8(ratio: float) -> None:
    torch.manual_seed(0)
    model = settled(models.digits_resnet())
    with torch.no_grad():
        model.get_submodule("layer2.0.downsample.1").weight *= ratio
    net = quantize(fold(graph(model, torch.randn(1, 1, 8, 8))), torch.randn(64, 1, 8, 8))
    assert noise(net, torch.randn(16, 1, 8, 8)) < 0.05


def small(*layers: nn.Module, shape: tuple[int, ...] = (4, 6, 6)) -> Graph:
    torch.manual_seed(0)
    return fold(graph(settled(nn.Sequential(*layers)), torch.randn(1, *shape)))


def data(*shape: int) -> Tensor:
    return torch.randn(64, *shape, generator=torch.Generator().manual_seed(1))


def test_values_that_are_never_negative_start_at_zero() -> None:
    net = quantize(small(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)), data(4, 6, 6))
    assert net.scales["0"].zero == 0
    assert 64 < net.scales["input"].zero < 192
    assert 64 < net.scales["2"].zero < 192
    assert net.layers["3"].real is not None
    assert "3" not in net.scales


def test_what_stays_in_floats() -> None:
    encoder = fold(graph(tokens(), torch.randn(1, 5, 16)))
    names = wanted(encoder)
    for operation in encoder.operations:
        if isinstance(operation, Linear):
            assert operation.inputs[0] in names
            assert (operation.name in names) == (operation.activation is not Activation.NONE)
        if isinstance(operation, Add):
            assert operation.name not in names


def test_weights_have_one_scale_for_each_channel() -> None:
    net = small(nn.Conv2d(4, 3, 3))
    (layer,) = net.operations
    assert isinstance(layer, Convolution)
    layer.weight[1] *= 1000
    layer.weight[0, 2] = 0
    integer = quantize(net, data(4, 6, 6)).layers["0"].weight
    assert integer.dtype == torch.int8
    assert integer.flatten(1).abs().amax(1).tolist() == [127, 127, 127]
    assert not integer[0, 2].any()


@pytest.mark.parametrize("tiny", [0.0, 1e-30, 1e-12])
def test_dead_channels(tiny: float) -> None:
    """Weights of nothing, biases of something: the channel is its bias."""
    torch.manual_seed(0)
    net = small(nn.Conv2d(4, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1), nn.Conv2d(3, 2, 1))
    first, second = net.operations[:2]
    assert isinstance(first, Convolution)
    assert isinstance(second, Convolution)
    first.weight[1] *= tiny
    first.bias[1] = 0.7
    second.weight[0] *= tiny
    second.bias[0] = -0.4
    integer = quantize(net, data(4, 6, 6))
    values = run_integers.run(integer, data(4, 6, 6))
    for name, channel, bias in (("0", 1, 0.7), ("2", 0, -0.4)):
        scale = integer.scales[name]
        got = integers.dequantize(values[name][:, channel], scale)
        assert float((got - bias).abs().max()) <= 1.1 * scale.scale


def test_a_network_of_zeros() -> None:
    net = small(nn.Conv2d(4, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1))
    for operation in net.operations:
        assert isinstance(operation, Convolution)
        operation.weight.zero_()
        operation.bias.zero_()
    assert not whole(quantize(net, torch.zeros(8, 4, 6, 6)), data(4, 6, 6)).any()


class Narrow(nn.Module):
    """A sum and a product that are far smaller than what they are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(4, 4, 1, bias=False), nn.Conv2d(4, 4, 1), nn.Conv2d(8, 4, 1)
        with torch.no_grad():
            self.b.weight.copy_(-0.999 * self.a.weight)
            self.b.bias.fill_(0.02)  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.a(x), self.b(x)
        return self.c(torch.cat((torch.tanh(a) + torch.tanh(b), torch.relu(a) * torch.relu(b)), 1))  # type: ignore[no-any-return]


def test_factors_fit() -> None:
    """No scale is finer than the fixed-point factors can make it."""
    net = quantize(small(Narrow()), data(4, 6, 6))
    scales = net.scales
    (total,) = (o for o in net.graph.operations if isinstance(o, Add))
    (product,) = (o for o in net.graph.operations if isinstance(o, Multiply))
    assert 32000 < max(integers.add_factors(*(scales[name] for name in (*total.inputs, total.name)))[:2]) < 32767
    assert 32000 < integers.multiply_factors(*(scales[name] for name in (*product.inputs, product.name)))[0] < 32767


def test_a_narrow_output_of_wide_inputs() -> None:
    """Weights that cancel: one unit of the sum would be more than one level of the output."""
    net = small(nn.Conv2d(4, 4, 1, bias=False), nn.ReLU())
    (first,) = net.operations
    assert isinstance(first, Convolution)
    first.weight.copy_(torch.tensor([1.0, -1.0, 0.0, 0.0]).view(1, 4, 1, 1).expand(4, 4, 1, 1))
    x = data(4, 6, 6)
    x[:, 1] = x[:, 0] * 0.999
    integer = quantize(net, x, correct=False)
    values = run_integers.run(integer, x)
    read, got = (integers.dequantize(values[name], integer.scales[name]) for name in ("input", "0"))
    (want,) = run(net, read)
    assert got.max() > 0
    assert float((got - want).abs().max()) < 1.1 * integer.scales["0"].scale


def test_what_moves_numbers_keeps_the_scale() -> None:
    pooled = small(nn.Conv2d(4, 4, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    net = quantize(pooled, data(4, 6, 6))
    assert net.scales["0"] == net.scales["1"] == net.scales["2"]
    assert {type(o) for o in pooled.operations} == {Convolution, Pool, Flatten, Linear}
    c2f = fold(graph(settled(C2f()), torch.randn(1, 3, 8, 8)))
    assert len(set(quantize(c2f, data(3, 8, 8)).scales.values())) > 5


def test_bias_correction_takes_the_mean_error_back() -> None:
    net = small(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1))
    x = data(4, 6, 6).abs()
    (want,) = run(net, x)
    shift = [
        (whole(quantize(net, x, correct=correct), x) - want).mean((0, 2, 3)).abs().mean() for correct in (False, True)
    ]
    assert float(shift[1]) < 0.5 * float(shift[0])


def test_ranges_are_the_users_choice() -> None:
    net, x = small(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1)), data(4, 6, 6)
    wide, narrow = (quantize(net, x, ranges=ranges).scales["input"] for ranges in (Extremes(), Percentile(0.9)))
    assert wide.scale * 255 == pytest.approx(float(x.max() - x.min()))
    assert narrow.scale < 0.6 * wide.scale


def test_no_integers_in_fp32() -> None:
    with pytest.raises(ArgumentError, match="must be int8 or int16"):
        quantize(small(nn.Conv2d(4, 4, 1)), data(4, 6, 6), Precision.FP32)


def in_sixteen_bits(net: Quantized, x: Tensor) -> Tensor:
    """A network of convolutions, with ``integers.convolution16``."""
    name = net.graph.inputs[0]
    values = {name: torch.round(x / net.scales[name].scale).clamp(-32768, 32767).long()}
    for op in net.graph.operations:
        assert isinstance(op, Convolution)
        residual = values[op.inputs[1]] if len(op.inputs) > 1 else None
        settings = (op.stride, op.padding, op.dilation, op.groups, residual)
        values[op.name] = integers.convolution16(values[op.inputs[0]], net.layers[op.name], *settings)
    name = net.graph.outputs[0]
    return values[name].float() * net.scales[name].scale


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.relu6(self.a(x))
        return self.c(torch.relu(self.b(x) + x))  # type: ignore[no-any-return]


def test_int16_is_much_nearer() -> None:
    torch.manual_seed(0)
    net, x = fold(graph(Residual(), torch.randn(1, 4, 6, 6))), data(4, 6, 6)
    sixteen = quantize(net, x, Precision.INT16)
    assert sixteen.layers["a"].weight.dtype == torch.int16
    (want,) = run(net, x[:8])
    error = float(((in_sixteen_bits(sixteen, x[:8]) - want).square().mean() / want.square().mean()).sqrt())
    assert error < 1.5e-3
    assert all(scale.zero == 0 for scale in sixteen.scales.values())


def test_sums_in_sixteen_bits_do_not_wrap() -> None:
    """Not even for data twice as large as what was seen."""
    net, x = small(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1)), data(4, 6, 6)
    (want,) = run(net, 2 * x[:8])
    got = in_sixteen_bits(quantize(net, x, Precision.INT16), 2 * x[:8])
    assert float((got - want).abs().max() / want.abs().max()) < 0.01


def test_activations_in_sixteen_bits_are_operations() -> None:
    net = quantize(small(nn.Conv2d(4, 4, 1), nn.GELU(), nn.Conv2d(4, 4, 1)), data(4, 6, 6), Precision.INT16)
    assert [type(o).__name__ for o in net.graph.operations] == ["Convolution", "Apply", "Convolution"]
    assert net.graph.shapes.keys() == {"input", *(o.name for o in net.graph.operations)} == net.scales.keys()


def test_a_trained_network_keeps_its_accuracy() -> None:
    torch.manual_seed(0)
    pictures = digits()
    mean, std = pictures.train.mean.view(-1, 1, 1), pictures.train.std.view(-1, 1, 1)
    (x, y), (test, labels) = (((s.images.float() - mean) / std, s.labels) for s in (pictures.train, pictures.val))
    model = models.mlp()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for order in torch.stack([torch.randperm(len(x)) for _ in range(15)]):
        for batch in order.split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    with torch.no_grad():
        before = float((model(test).argmax(1) == labels).float().mean())
    net = quantize(fold(graph(model, x[:1])), x[:256])
    after = float((whole(net, test).argmax(1) == labels).float().mean())
    assert before > 0.95
    assert abs(after - before) <= 0.003
