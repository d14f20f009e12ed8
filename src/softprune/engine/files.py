"""An engine in a file: names, numbers and tensors, no code.

torch writes and reads it, and reads nothing but data (``weights_only``). Whatever is read is checked before it is used:
the kernels' own structures, in which a wrong number would be dangerous, are made anew from weights.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import pickle
import zipfile
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from softprune.engine import graph as graphs
from softprune.engine.graph import Activation, Graph, Operation
from softprune.engine.opaque import Call, Program, Slot
from softprune.engine.quantized import Integers, Precision, Quantized, Scale
from softprune.engine.run_torch import KINDS, run
from softprune.errors import CheckpointError

FORMAT, VERSION = "softprune engine", 1
VALUES = {kind.__name__: kind for kind in (Graph, Program, Call, Slot, Integers, Scale, *KINDS)}
ENUMS = {kind.__name__: kind for kind in (Activation, Precision)}
TORCH = {"dtype": torch.dtype, "layout": torch.layout, "memory_format": torch.memory_format}
BUILTINS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        operator.getitem, operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.neg,
        operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.mod, operator.pow,
    )
}  # fmt: skip
SMALL = 64  # numbers that are not worth packing
INT8, INT16, INT32 = torch.int8, torch.int16, torch.int32


def write(path: str | PathLike[str], net: Quantized, choice: Iterable[str] | None) -> None:
    """``choice``: the operations that kernels run; None: all that they can."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "graph": _plain(net.graph),
        "scales": {name: _plain(scale) for name, scale in net.scales.items()},
        "layers": {name: _plain(layer) for name, layer in net.layers.items()},
        "precision": net.precision.value,
        "choice": None if choice is None else sorted(choice),
    }
    try:
        torch.save(content, path)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"The engine cannot be written to {path}: {error}.") from error


def read(path: str | PathLike[str]) -> tuple[Quantized, list[str] | None]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(f"{path} is no engine that can be read: {said}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no engine. `Engine.save` writes one.")
    if content.get("version") != VERSION:
        raise CheckpointError(
            f"{path} is an engine of version {content.get('version')}. This softprune reads {VERSION}."
        )
    try:
        net = Quantized(
            _whole(content["graph"]),
            {str(name): _whole(scale) for name, scale in content["scales"].items()},
            {str(name): _whole(layer) for name, layer in content["layers"].items()},
            Precision(content["precision"]),
        )
        _check(net)
        choice = content["choice"]
        return net, None if choice is None else [str(name) for name in choice]
    except Exception as error:  # of anything that a damaged file may hold
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(f"{path} is a damaged engine: {said}. Save it again.") from error


def _plain(value: Any) -> Any:
    """Lists that begin with the name of what they are; tensors, numbers and words as they are."""
    if isinstance(value, Tensor):
        return _packed(value.detach())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return ["value", type(value).__name__, fields]
    if isinstance(value, Activation | Precision):
        return ["enum", type(value).__name__, value.value]
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return ["torch", type(value).__name__, str(value).removeprefix("torch.")]
    if isinstance(value, torch.device):
        return ["device", str(value)]
    if isinstance(value, torch._ops.OpOverload):
        return ["aten", str(value)]
    for name, known in BUILTINS.items():
        if value is known:
            return ["builtin", name]
    if isinstance(value, tuple):
        return ["tuple", *map(_plain, value)]
    if isinstance(value, list):
        return ["list", *map(_plain, value)]
    if isinstance(value, dict):
        return ["dict", *([_plain(key), _plain(item)] for key, item in value.items())]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise CheckpointError(f"A network that holds {type(value).__name__} cannot be saved.")


def _whole(value: Any) -> Any:
    """The inverse of ``_plain``."""
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == "sparse":
        return _unpacked(*rest)
    if kind == "value":
        name, fields = rest
        return VALUES[name](**{field: _whole(item) for field, item in fields.items()})
    if kind == "enum":
        return ENUMS[rest[0]](rest[1])
    if kind == "torch":
        found = getattr(torch, rest[1])
        if not isinstance(found, TORCH[rest[0]]):
            raise ValueError(f"torch.{rest[1]} is no {rest[0]}")
        return found
    if kind == "device":
        return torch.device(rest[0])
    if kind == "aten":
        return _aten(rest[0])
    if kind == "builtin":
        return BUILTINS[rest[0]]
    if kind == "tuple":
        return tuple(map(_whole, rest))
    if kind == "list":
        return list(map(_whole, rest))
    if kind == "dict":
        return {_whole(key): _whole(item) for key, item in rest}
    raise ValueError(f"{kind!r} is unknown")


def _packed(x: Tensor) -> Any:
    """A tensor; if more than half of it is zero, what is left and a bit for each place."""
    flat = x.contiguous().flatten()
    left = flat != 0
    if 2 * int(left.sum()) > len(flat) or len(flat) < SMALL:
        return flat.view(x.shape)
    bits = torch.nn.functional.pad(left, (0, -len(left) % 8)).view(-1, 8)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)
    return ["sparse", ["tuple", *x.shape], flat[left], (bits * weights).sum(1, dtype=torch.uint8)]


def _unpacked(shape: Any, left: Tensor, bits: Tensor) -> Tensor:
    sizes = _whole(shape)
    places = (bits[:, None] >> torch.arange(8, dtype=torch.uint8)).bitwise_and(1).bool().flatten()[: math.prod(sizes)]
    return torch.zeros(math.prod(sizes), dtype=left.dtype).masked_scatter_(places, left).view(sizes)


def _aten(name: str) -> Any:
    """An operation of torch's own, by its full name."""
    space, call, overload = name.split(".")
    if space not in ("aten", "prim"):
        raise ValueError(f"{name} is none of torch's own operations")
    return getattr(getattr(getattr(torch.ops, space), call), overload)


def _check(net: Quantized) -> None:
    """That shapes, types and names fit together; run once, so that they do."""
    if not isinstance(net.graph, Graph) or not all(isinstance(op, Operation) for op in net.graph.operations):
        raise ValueError("it has no network")
    operations = {op.name: op for op in net.graph.operations}
    for name, scale in net.scales.items():
        fine = isinstance(scale, Scale) and 0 < scale.scale < float("inf") and 0 <= scale.zero <= 255
        if name not in net.graph.shapes or not fine:
            raise ValueError(f"the scale of {name!r}")
    kind, sums = (INT8, INT32) if net.precision is Precision.INT8 else (INT16, INT16)
    for name, layer in net.layers.items():
        op = operations.get(name)
        if not isinstance(op, graphs.Convolution | graphs.Linear):
            raise ValueError(f"{name!r} is no layer")
        rows = len(op.weight)
        if layer.weight.shape != op.weight.shape or layer.weight.dtype is not kind:
            raise ValueError(f"the weights of {name!r}")
        wanted = [(layer.bias, sums), (layer.multiplier, INT16), (layer.shift, INT32), (layer.real, torch.float32)]
        for found, dtype in wanted:
            if found is not None and (found.shape != (rows,) or found.dtype is not dtype):
                raise ValueError(f"the numbers of {name!r}")
        if layer.shift is not None and not ((layer.shift >= 0) & (layer.shift <= 31)).all():
            raise ValueError(f"the shifts of {name!r}")
        if layer.table is not None and (layer.table.shape != (256,) or layer.table.dtype is not torch.uint8):
            raise ValueError(f"the table of {name!r}")
        if not (0 <= layer.residual <= 32767 and -32768 <= layer.low <= layer.high <= 32767):
            raise ValueError(f"the bounds of {name!r}")
    shapes: dict[str, tuple[int, ...]] = {}
    inputs = net.graph.zeros(net.graph.shapes[net.graph.inputs[0]][0])
    run(net.graph, *inputs, see=lambda name, value: shapes.update({name: tuple(value.shape)}))
    if any(shapes.get(name) != shape for name, shape in net.graph.shapes.items()):
        raise ValueError("shapes that do not fit")
    for op in net.graph.operations:
        if isinstance(op, graphs.Norm | graphs.Attention) and not _fits(op, shapes[op.inputs[0]]):
            raise ValueError(f"the numbers of {op.name!r}")


def _fits(op: graphs.Norm | graphs.Attention, shape: tuple[int, ...]) -> bool:
    """What kernels rely on; torch would spread a mask, or count channels from the end."""
    *_, tokens, channels = shape
    if isinstance(op, graphs.Norm):
        return op.weight.shape == op.bias.shape == (channels,)
    inside = op.channels.dtype is torch.int64 and bool(((op.channels >= 0) & (op.channels < channels)).all())
    return inside and (op.seen is None or (op.seen.dtype is torch.bool and op.seen.shape == (tokens, tokens)))
