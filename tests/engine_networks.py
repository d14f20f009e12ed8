"""Networks for the engine's tests: graphs made by hand, block masks, the simplest of quantizations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from softprune.engine import graph
from softprune.engine.activations import FUNCTIONS
from softprune.engine.graph import Activation, Graph, Operation
from softprune.engine.quantized import Precision, Quantized, Scale, is_table, whole_layer, whole_layer16
from softprune.engine.run_torch import compute


def block_mask(shape: tuple[int, ...], sparsity: float, rows: int = 1, columns: int = 4) -> Tensor:
    """Kept blocks of ``rows`` outputs x ``columns`` inputs at one tap, at random."""
    outputs, inputs, *kernel = shape
    height, width = -(-outputs // rows), -(-inputs // columns)
    kept = torch.rand(height, width, *kernel) >= sparsity
    return kept.repeat_interleave(rows, 0).repeat_interleave(columns, 1)[:outputs, :inputs]


@dataclass
class Builder:
    """Adds operations to a graph; every method gives the name of the value it makes."""

    shape: tuple[int, ...]
    sparsity: float = 0.5
    rows: int = 1
    columns: int = 4
    operations: list[Operation] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shapes["x"] = self.shape

    def add(self, op: Operation) -> str:
        self.operations.append(op)
        example = [torch.zeros(self.shapes[name]) for name in op.inputs]
        self.shapes[op.name] = tuple(run_floats(op, example).shape)
        return op.name

    def name(self, kind: str) -> str:
        return f"{kind}{len(self.operations)}"

    def conv(
        self,
        x: str,
        outputs: int,
        kernel: int | tuple[int, int] = 1,
        residual: str | None = None,
        name: str | None = None,
        sparsity: float | None = None,
        **options: Any,
    ) -> str:
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        shape = (outputs, self.shapes[x][1] // options.get("groups", 1), *kernel)
        weight = torch.randn(shape) * block_mask(
            shape, self.sparsity if sparsity is None else sparsity, self.rows, self.columns
        )
        weight /= max(1.0, float((weight != 0).sum()) / outputs) ** 0.5
        bias = torch.randn(outputs) * 0.1
        inputs = (x,) if residual is None else (x, residual)
        return self.add(graph.Convolution(name or self.name("conv"), inputs, weight, bias, **options))

    def linear(self, x: str, outputs: int, residual: str | None = None, name: str | None = None, **options: Any) -> str:
        shape = (outputs, self.shapes[x][-1])
        weight = torch.randn(shape) * block_mask(shape, options.pop("sparsity", self.sparsity), self.rows, self.columns)
        weight /= max(1.0, float((weight != 0).sum()) / outputs) ** 0.5
        inputs = (x,) if residual is None else (x, residual)
        return self.add(
            graph.Linear(name or self.name("linear"), inputs, weight, torch.randn(outputs) * 0.1, **options)
        )

    def graph(self, *outputs: str) -> Graph:
        return Graph(("x",), tuple(self.operations), outputs, self.shapes)


def run_floats(op: Operation, x: list[Tensor], activate: bool = True) -> Tensor:
    """One operation in torch."""
    if isinstance(op, graph.Convolution):
        padded = functional.pad(x[0], op.padding)
        y = functional.conv2d(padded, op.weight, op.bias, op.stride, 0, op.dilation, op.groups)
        y = y + x[1] if len(x) > 1 else y
    elif isinstance(op, graph.Linear):
        y = functional.linear(x[0], op.weight, op.bias)
        y = y + x[1] if len(x) > 1 else y
    elif isinstance(op, graph.Pool) and op.largest:
        y = functional.max_pool2d(functional.pad(x[0], op.padding, value=-1e30), op.kernel, op.stride)
    elif isinstance(op, graph.Pool):
        y = functional.avg_pool2d(functional.pad(x[0], op.padding), op.kernel, op.stride)
    elif isinstance(op, graph.GlobalMean):
        y = x[0].mean((2, 3), keepdim=True)
    elif isinstance(op, graph.Add):
        y = x[0] + x[1]
    elif isinstance(op, graph.Multiply):
        y = x[0] * x[1]
    elif isinstance(op, graph.Concat):
        y = torch.cat(x, 1)
    elif isinstance(op, graph.Flatten):
        y = x[0].flatten(1)
    elif isinstance(op, graph.Softmax):
        y = x[0].softmax(op.dim)
    elif isinstance(op, graph.Norm | graph.Attention):
        y = compute(op, *x)
    else:
        y = x[0]
    return FUNCTIONS[getattr(op, "activation", Activation.NONE)](y) if activate else y


def scale_for(x: Tensor, share: float = 1.0) -> Scale:
    low, high = min(0.0, float(x.min()) * share), max(1e-6, float(x.max()) * share)
    scale = (high - low) / 255
    return Scale(scale, max(0, min(255, round(-low / scale))))


def quantize(net: Graph, *inputs: Tensor, share: float = 1.0) -> Quantized:
    """Largest ranges (times ``share``: less saturates), one scale for each row; outputs of layers stay floats."""
    values = dict(zip(net.inputs, inputs, strict=True))
    scales = {name: scale_for(x, share) for name, x in values.items()}
    layers = {}
    for op in net.operations:
        given = [values[name] for name in op.inputs]
        before = run_floats(op, given, activate=False)
        values[op.name] = y = run_floats(op, given)
        if isinstance(op, graph.Softmax | graph.Opaque):
            continue
        keeps = isinstance(op, graph.Flatten) or (isinstance(op, graph.Pool) and op.largest)
        is_layer = isinstance(op, graph.Convolution | graph.Linear)
        floats = is_layer and op.name in net.outputs and not net.readers(op.name)
        if not floats:
            scales[op.name] = scales[op.inputs[0]] if keeps else scale_for(y, share)
        if is_layer:
            rows = op.weight.flatten(1).abs().amax(1).clamp_min(1e-6) / 127
            layers[op.name] = whole_layer(
                op.weight,
                op.bias,
                rows,
                scales[op.inputs[0]],
                None if floats else scales[op.name],
                scales[op.inputs[1]] if len(op.inputs) > 1 else None,
                op.activation,
                scale_for(before, share) if is_table(op.activation) else None,
            )
    return Quantized(net, scales, layers)


def quantize16(net: Graph, *inputs: Tensor, room: float = 3.0) -> Quantized:
    """int16 with ``room`` for sums that are larger than what is left of them in the end."""
    values = dict(zip(net.inputs, inputs, strict=True))
    scales = {name: Scale(float(x.abs().max()) * room / 32767) for name, x in values.items()}
    layers = {}
    for op in net.operations:
        values[op.name] = y = run_floats(op, [values[name] for name in op.inputs])
        if is_table(getattr(op, "activation", Activation.NONE)):
            continue
        keeps = isinstance(op, graph.Flatten) or (isinstance(op, graph.Pool) and op.largest)
        own = Scale(max(1e-4, float(y.abs().max())) * room / 32767)
        scales[op.name] = scales[op.inputs[0]] if keeps else own
        if isinstance(op, graph.Convolution | graph.Linear):
            ends = (scales[op.inputs[0]], scales[op.name], scales[op.inputs[1]] if len(op.inputs) > 1 else None)
            layers[op.name] = whole_layer16(op.weight, op.bias, *ends, op.activation)
    return Quantized(net, scales, layers, Precision.INT16)


def bottleneck_net(
    batch: int,
    size: int = 224,
    budget: dict[str, float] | float = 0.9,
    rows: int = 1,
    stem_taps: bool = True,
    depths: tuple[int, ...] = (3, 4, 6, 3),
    width: int = 64,
) -> Graph:
    """ResNet-50, batch norms gone: masks by layer, at random, in blocks of rows x 4; the stem in whole taps or none."""
    net = Builder((batch, 3, size, size), rows=rows)

    def sparsity(name: str) -> float:
        return budget if isinstance(budget, float) else budget[name]

    relu = Activation.RELU
    net.columns, net.rows = (3, 1) if stem_taps else (1, 1)
    x = net.conv(
        "x", width, 7, name="conv1", sparsity=sparsity("conv1"), stride=(2, 2), padding=(3,) * 4, activation=relu
    )
    net.columns, net.rows = 4, rows
    x = net.add(graph.Pool("maxpool", (x,), True, (3, 3), (2, 2), (1,) * 4))
    for stage, depth in enumerate(depths):
        wide = width << stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            key = f"layer{stage + 1}.{block}."
            y = net.conv(x, wide, name=key + "conv1", sparsity=sparsity(key + "conv1"), activation=relu)
            y = net.conv(
                y, wide, 3, name=key + "conv2", sparsity=sparsity(key + "conv2"),
                stride=(stride, stride), padding=(1,) * 4, activation=relu,
            )  # fmt: skip
            if not block:
                down = key + "downsample.0"
                x = net.conv(x, 4 * wide, name=down, sparsity=sparsity(down), stride=(stride, stride))
            x = net.conv(y, 4 * wide, residual=x, name=key + "conv3", sparsity=sparsity(key + "conv3"), activation=relu)
    x = net.add(graph.GlobalMean("mean", (x,)))
    x = net.add(graph.Flatten("flat", (x,)))
    net.rows = 1
    return net.graph(net.linear(x, 1000, name="fc", sparsity=sparsity("fc")))


def with_batch(net: Graph, batch: int) -> Graph:
    return replace(net, shapes={name: (batch, *shape[1:]) for name, shape in net.shapes.items()})
