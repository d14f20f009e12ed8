"""What an engine does, layer by layer: where it runs, how sparse it is, how long it takes, how exact it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from softprune.engine import integers, run_integers, run_torch
from softprune.engine.clock import fastest
from softprune.engine.graph import Convolution, Flatten, Linear, Operation
from softprune.engine.plan import Plan
from softprune.engine.quantized import Precision, Quantized
from softprune.engine.run_torch import compute
from softprune.errors import ArgumentError

SLOWER = 1.25  # times as long as in torch: what a way from the kernels to torch and back may cost
SMALLEST = 1e-30
Cells = Sequence[str]


@dataclass(frozen=True)
class Layer:
    """What runs at one go: one operation, or several that hand on what they make piece by piece.

    Args:
        names: of the operations.
        where: the kernels and their precision, or torch.
        zeros: the share of the weights that is zero; None without weights.
        blocks: the share of the blocks of 1 × 4 weights along the inputs that is zero; None without weights.
        seconds: CPU time.
        limit: the time that the instructions for the weights that are left need at least; 0 where that is unknown.
        dense: CPU time of the same in torch, in fp32, with all weights.
    """

    names: tuple[str, ...]
    where: str
    zeros: float | None
    blocks: float | None
    seconds: float
    limit: float
    dense: float


@dataclass(frozen=True)
class Explanation:
    """Prints as a table; ``layers`` in the order in which they run.

    ``limit`` is how near a layer is to the instructions' limit: 100% would be multiplications alone, without a pause.
    """

    layers: tuple[Layer, ...]
    precision: str
    variant: str

    @property
    def seconds(self) -> float:
        return sum(layer.seconds for layer in self.layers)

    def slower_than_torch(self) -> list[str]:
        """The layers that torch, which knows no zeros, would run in less time."""
        slow = [layer for layer in self.layers if layer.where != "torch" and layer.seconds > SLOWER * layer.dense]
        return [name for layer in slow if layer.zeros is not None for name in layer.names]

    def __str__(self) -> str:
        total = max(self.seconds, SMALLEST)
        rows: list[Cells] = [("layer", "runs in", "zeros", "1x4 zeros", "ms", "share", "limit", "x torch")]
        for layer in self.layers:
            rows.append(
                (
                    " + ".join(layer.names),
                    layer.where,
                    _percent(layer.zeros),
                    _percent(layer.blocks),
                    f"{1000 * layer.seconds:.3f}",
                    f"{layer.seconds / total:.0%}",
                    f"{layer.limit / max(layer.seconds, SMALLEST):.0%}" if layer.limit else "",
                    f"{layer.dense / max(layer.seconds, SMALLEST):.1f}" if layer.where != "torch" else "",
                )
            )
        dense = sum(layer.dense for layer in self.layers)
        words = f"{1000 * total:.2f} ms on one thread, {dense / total:.1f} x torch eager, layer by layer"
        return f"{_columns(rows)}\n{self.precision} ({self.variant}): {words}"


@dataclass(frozen=True)
class Errors:
    """‖ŷ − y‖ / ‖y‖ of every value, by name, in the order in which they are made; the outputs come last."""

    values: dict[str, float]

    @property
    def output(self) -> float:
        """Of the last output."""
        return list(self.values.values())[-1]

    def __str__(self) -> str:
        return _columns([("value", "error"), *((name, f"{error:.2e}") for name, error in self.values.items())])


def explanation(net: Quantized, plan: Plan | None, inputs: tuple[Tensor, ...]) -> Explanation:
    """Measures every layer, and the same layer in torch."""
    values: dict[str, Tensor] = {}
    run_torch.run(net.graph, *inputs, see=lambda name, value: values.update({name: value}))
    operations = {operation.name: operation for operation in net.graph.operations}

    def in_torch(operation: Operation) -> float:
        given = [_as_torch_likes(values[name]) for name in operation.inputs]
        return fastest([lambda: compute(operation, *given)], rounds=3)[0]

    with torch.no_grad():
        dense = {name: in_torch(operation) for name, operation in operations.items()}
    layers = list(_native(plan, operations, inputs, dense)) if plan else []
    there = {name for layer in layers for name in layer.names}
    order = {name: i for i, name in enumerate(operations)}
    others = [op for name, op in operations.items() if name not in there and not isinstance(op, Flatten)]
    layers += [_layer([op], "torch", dense[op.name], 0.0, dense[op.name]) for op in others]
    layers.sort(key=lambda layer: order[layer.names[0]])
    return Explanation(tuple(layers), net.precision.value, plan.library.name if plan else "torch")


def errors(net: Quantized, inputs: tuple[Tensor, ...]) -> Errors:
    """In whole numbers, which the kernels equal bit by bit."""
    if net.precision is Precision.FP32:
        raise ArgumentError("`Engine.error` compares whole numbers with floats. This engine computes in fp32.")
    exact: dict[str, Tensor] = {}
    run_torch.run(net.graph, *inputs, see=lambda name, value: exact.update({name: value}))
    found = run_integers.run(net, *inputs, fallback=compute)
    names = [*(name for name in found if name not in net.graph.outputs), *net.graph.outputs]
    return Errors({name: _relative(_real(net, name, found[name]), exact[name]) for name in names})


def _real(net: Quantized, name: str, value: Tensor) -> Tensor:
    return integers.dequantize(value, net.scales[name]) if value.dtype is torch.int64 else value


def _relative(value: Tensor, exact: Tensor) -> float:
    return float((value.double() - exact.double()).norm() / exact.double().norm().clamp_min(SMALLEST))


def _native(
    plan: Plan, operations: dict[str, Operation], inputs: tuple[Tensor, ...], dense: dict[str, float]
) -> Iterator[Layer]:
    """What the kernels run. Values that come in and go out count with the operation that reads or makes them."""
    limits, precisions = plan.limits(len(inputs[0])), plan.precisions(len(inputs[0]))
    for joined, least in plan.times(*inputs).items():
        parts = [operations[name] for name in joined.split(" + ") if name in operations]
        if parts:
            limit, torchs = (sum(known.get(op.name, 0.0) for op in parts) for known in (limits, dense))
            yield _layer(parts, precisions[parts[0].name], least, limit, torchs)


def _layer(parts: Sequence[Operation], where: str, seconds: float, limit: float, dense: float) -> Layer:
    weights = [op.weight for op in parts if isinstance(op, Convolution | Linear)]
    blocks = [block for op in parts if isinstance(op, Convolution | Linear) for block in [_blocks(op.weight)]]
    zeros, fours = (_share(tensors) if tensors else None for tensors in (weights, blocks))
    return Layer(tuple(op.name for op in parts), where, zeros, fours, seconds, limit, dense)


def _blocks(weight: Tensor) -> Tensor:
    """Whether anything is left of each four inputs of an output, at each place of the kernel."""
    flat = weight.reshape(len(weight), weight.shape[1], -1)
    missing = -flat.shape[1] % 4
    padded = torch.nn.functional.pad(flat, (0, 0, 0, missing))
    return padded.view(len(flat), -1, 4, flat.shape[2]).ne(0).any(2)


def _share(tensors: Sequence[Tensor]) -> float:
    total = sum(t.numel() for t in tensors)
    return sum(int((t == 0).sum()) for t in tensors) / max(total, 1)


def _as_torch_likes(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _columns(rows: Sequence[Cells]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    first, *others = widths
    return "\n".join(
        "  ".join([row[0].ljust(first), *(cell.rjust(w) for cell, w in zip(row[1:], others, strict=True))]).rstrip()
        for row in rows
    )
