"""Folding makes a graph smaller and changes nothing that it computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine_models import C2f, Gated, apart, kinds, settled, tokens
from softprune import models
from softprune.engine.export import graph
from softprune.engine.fold import fold
from softprune.engine.graph import Activation, Convolution, Graph, Linear


def folded(model: nn.Module, shape: tuple[int, ...]) -> Graph:
    """The graph of a network in float64, checked before and after."""
    model = settled(model).double()
    whole = graph(model, torch.randn(shape, dtype=torch.float64))
    small = fold(whole)
    x = torch.randn(3, *shape[1:], dtype=torch.float64)
    assert apart(whole, model, x) < 1e-10
    assert apart(small, model, x) < 1e-10
    assert small.shapes.keys() == {*small.inputs, *(o.name for o in small.operations)}
    assert len(small.shapes) == len(small.inputs) + len(small.operations)
    return small


@pytest.mark.parametrize(
    ("make", "shape", "expected"),
    [
        pytest.param(
            models.resnet50,
            (1, 3, 32, 32),
            ["Convolution"] * 53 + ["Flatten", "GlobalMean", "Linear", "Pool"],
            marks=pytest.mark.slow,
        ),
        (models.mobilenet_v1, (1, 3, 32, 32), ["Convolution"] * 27 + ["Flatten", "GlobalMean", "Linear"]),
        (models.digits_resnet, (1, 1, 8, 8), ["Convolution"] * 9 + ["Flatten", "GlobalMean", "Linear"]),
        (models.mlp, (1, 1, 8, 8), ["Flatten", "Linear", "Linear", "Linear"]),
        (C2f, (1, 3, 8, 8), ["Add", "Add", "Concat", *["Convolution"] * 4, "Opaque", "Opaque"]),
        (Gated, (1, 3, 9, 9), [*["Convolution"] * 3, "Flatten", "GlobalMean", "GlobalMean", "Linear", "Multiply"]),
        (tokens, (1, 5, 16), [*["Add"] * 4, *["Attention"] * 2, *["Linear"] * 8, *["Norm"] * 4]),
    ],
)
def test_networks(make: Callable[[], nn.Module], shape: tuple[int, ...], expected: list[str]) -> None:
    assert sorted(kinds(folded(make(), shape))) == expected


def test_a_residual_block_is_its_convolutions() -> None:
    small = folded(models.digits_resnet(), (1, 1, 8, 8))
    by_name = {o.name: o for o in small.operations if isinstance(o, Convolution)}
    last = by_name["layer2.0.conv2"]
    assert last.inputs == ("layer2.0.conv1", "layer2.0.downsample.0")
    assert last.activation is Activation.RELU
    assert by_name["layer2.0.downsample.0"].activation is Activation.NONE
    assert by_name["layer1.0.conv2"].inputs == ("layer1.0.conv1", "conv1")


def sequence(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (sequence(nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, groups=2)), ["Convolution"]),
        (sequence(nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, padding=1)), ["Convolution", "Convolution"]),
        (sequence(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.BatchNorm2d(6)), ["Convolution", "Convolution"]),
        (sequence(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.BatchNorm2d(6), nn.ReLU6()), ["Convolution"]),
        (sequence(nn.MaxPool2d(2), nn.BatchNorm2d(4), nn.GELU()), ["Convolution", "Pool"]),
        (sequence(nn.Flatten(), nn.Linear(256, 5), nn.BatchNorm1d(5), nn.Tanh()), ["Flatten", "Linear"]),
        (sequence(nn.Flatten(), nn.Linear(256, 5), nn.Tanh(), nn.BatchNorm1d(5)), ["Flatten", "Linear", "Opaque"]),
        (sequence(nn.AdaptiveAvgPool2d(8), nn.Conv2d(4, 2, 1), nn.SiLU(), nn.Sigmoid()), ["Apply", "Convolution"]),
        (sequence(nn.Conv2d(4, 2, 1), nn.AvgPool2d(1)), ["Convolution"]),
    ],
)
def test_sequences(model: nn.Module, expected: list[str]) -> None:
    assert sorted(kinds(folded(model, (1, 4, 8, 8)))) == expected


class Read(nn.Module):
    """What lies between the parts is read a second time: ``where`` says by whom."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.first, self.norm, self.second = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if self.where == "norm":
            y = self.first(x)
            return self.norm(y) * y
        if self.where == "activation":
            y = self.norm(self.first(x))
            return torch.relu(y), y
        if self.where == "sum":
            y = self.first(x)
            return torch.relu(y + x) * y
        if self.where == "twice":
            y = self.first(x)
            return y + y
        if self.where == "scaled":
            return self.second(self.first(x) * 0.5 + 1.0) - x
        return torch.relu(self.first(x)) + torch.relu(self.second(x))


@pytest.mark.parametrize("where", ["norm", "activation", "sum", "twice", "scaled", "both"])
def test_nothing_is_folded_that_others_read(where: str) -> None:
    folded(Read(where), (1, 3, 4, 4))


def test_the_later_layer_takes_the_sum() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            first = self.a(x)
            return torch.relu(first + self.c(torch.relu(self.b(x))))

    small = folded(Two(), (1, 2, 3, 3))
    assert [(o.name, o.inputs) for o in small.operations] == [("a", ("x",)), ("b", ("x",)), ("c", ("b", "a"))]


def test_weights_are_computed_in_float64() -> None:
    model = sequence(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    model[1].running_var.fill_(1e-3)
    (layer,) = fold(graph(model, torch.randn(1, 4))).operations
    assert isinstance(layer, Linear)
    factor = (model[1].running_var.double() + 1e-5).rsqrt() * model[1].weight.double()
    assert torch.equal(layer.weight, (model[0].weight.double() * factor.unsqueeze(1)).float())
    assert layer.weight.dtype == torch.float32


@st.composite
def networks(draw: st.DrawFn) -> nn.Module:
    """Blocks of random layers, some with a shortcut."""

    class Block(nn.Module):
        def __init__(self, body: nn.Module, shortcut: bool) -> None:
            super().__init__()
            self.body, self.shortcut = body, shortcut

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.body(x) + x) if self.shortcut else self.body(x)  # type: ignore[no-any-return]

    kinds = {
        "conv": lambda: nn.Conv2d(4, 4, 3, padding=1, groups=draw(st.sampled_from([1, 2, 4]))),
        "point": lambda: nn.Conv2d(4, 4, 1, bias=False),
        "norm": lambda: nn.BatchNorm2d(4),
        "relu": lambda: nn.ReLU(inplace=draw(st.booleans())),
        "silu": nn.SiLU,
        "pool": lambda: nn.MaxPool2d(3, 1, 1),
        "elu": nn.ELU,
    }
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=4))
        shortcut = draw(st.booleans()) and names[0] != "relu"  # in place, it would change the shortcut
        blocks.append(Block(nn.Sequential(*(kinds[name]() for name in names)), shortcut))
    return nn.Sequential(*blocks)


@given(networks())
@settings(max_examples=8, deadline=None)
def test_random_networks(model: nn.Module) -> None:
    folded(model, (1, 4, 5, 5))
