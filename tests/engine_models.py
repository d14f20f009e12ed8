"""Networks with every kind of operation, and a look at two ways to run them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from softprune.engine.graph import Graph
from softprune.engine.run_torch import run


def settled(model: nn.Module) -> nn.Module:
    """The module with batch normalisation that does something."""
    torch.manual_seed(0)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.running_mean.normal_()  # type: ignore[union-attr, operator]
            layer.running_var.uniform_(0.5, 2)  # type: ignore[union-attr, operator]
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias)
    return model


def conv(inputs: int, outputs: int, kernel: int = 3, **options: Any) -> nn.Sequential:
    padding = options.pop("padding", kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=padding, bias=False, **options), nn.BatchNorm2d(outputs), nn.SiLU()
    )


class C2f(nn.Module):
    """Parts of a value go different ways and meet again."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.width = width
        self.enter, self.leave = conv(3, 2 * width, 1), conv(4 * width, width, 1)
        self.first, self.second = conv(width, width), conv(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        parts.append(parts[-1] + self.first(parts[-1]))
        parts.append(parts[-1] + self.second(parts[-1]))
        return self.leave(torch.cat(parts, 1))  # type: ignore[no-any-return]


class Gated(nn.Module):
    """Squeeze and excitation: each channel is multiplied by a number that all pixels decide."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, channels, 3, stride=2)
        self.down, self.up = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        self.head = nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.hardswish(self.enter(x))
        gate = functional.hardsigmoid(self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True)))))
        return self.head((gate * x).mean((2, 3)))  # type: ignore[no-any-return]


class TwoHeads(nn.Module):
    """One layer used twice, two inputs, two outputs, one of them inside."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        inside = torch.relu(self.shared(self.shared(x)) + y)
        return self.head(inside), inside


class Strange(nn.Module):
    """Sizes, tuples, constants and calls that have no operation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding="same", padding_mode="zeros")
        self.mask = nn.Buffer(torch.tensor([1.0, 0.0, 2.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        n, _, rows, columns = x.shape
        x = functional.leaky_relu(self.conv(functional.pad(x, (1, 0, 2, 1))) * self.mask.view(4, 1, 1) + 1.5)
        largest, where = x.view(n, 4, -1).topk(3, dim=-1)
        a, b = x.flatten(2).split([2, 2], 1)
        made = torch.arange(n, dtype=x.dtype).view(n, 1) * 0.5 + rows + torch.ones(columns).sum()
        return made + largest.sum((1, 2)).unsqueeze(1) + where.to(x.dtype).mean((1, 2)).unsqueeze(1) + (a * b).sum(2)


def tokens() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def outputs(model: nn.Module, *inputs: Tensor) -> tuple[Tensor, ...]:
    """What the module gives in evaluation, flat."""
    with torch.no_grad():
        result = model.eval()(*inputs)
    return result if isinstance(result, tuple) else (result,)


def apart(graph: Graph, model: nn.Module, *inputs: Tensor) -> float:
    """The largest difference between a graph and its module, relative to the largest output."""
    pairs = list(zip(run(graph, *inputs), outputs(model, *inputs), strict=True))
    assert all(got.shape == want.shape and got.dtype == want.dtype for got, want in pairs)
    return max(float((got - want).abs().max() / want.abs().max()) for got, want in pairs)


def kinds(graph: Graph) -> list[str]:
    return [type(operation).__name__ for operation in graph.operations]
