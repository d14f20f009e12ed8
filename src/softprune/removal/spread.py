"""How dependence on the input spreads through operations: what comes out may depend on it where these masks say so.

An operation that is not listed spreads it from any input to all outputs. That is never wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from softprune.structure.moves import JOINS, MOVES, SAME, VIEWS
from softprune.structure.pointwise import UNTAGGED
from softprune.structure.record import Call
from softprune.structure.state import tensors
from softprune.structure.trace import SPATIAL

Mask = Tensor | None


class Masks(Protocol):
    """What the rules ask: which elements vary, and what a weight reads."""

    def mask(self, tensor: Tensor) -> Mask: ...
    def masked(self, tensor: Tensor) -> Tensor: ...
    def matters(self, tensor: Tensor) -> Tensor: ...
    def read(self, weight: Tensor, x: Tensor, summed: int, everywhere: bool = True) -> None: ...


def spread(masks: Masks, call: Call) -> list[Mask]:
    """The masks of what an operation gave."""
    rule = _RULES.get(call.name)
    if rule is None and torch.Tag.pointwise in call.overload.tags:
        rule = _pointwise
    if rule is None and any(word in call.name for word in SPATIAL):
        rule = _spatial
    if rule is None and "batch_norm" in call.name:
        rule = _batch_norm
    if rule is None and "scaled_dot_product" in call.name:
        rule = _attention
    if rule is None and all(masks.mask(x) is None for x in call.inputs):
        return [None]
    if rule is None:
        return [everything(x) for x in tensors(call.out)]
    result = rule(masks, call)
    return result if isinstance(result, list) else [result]


def everything(tensor: Tensor) -> Tensor:
    return torch.ones((), dtype=torch.bool, device=tensor.device).expand(tensor.shape)


def _pointwise(masks: Masks, call: Call) -> Mask:
    operands = call.inputs[1:] if call.name == "copy" else call.inputs
    mask = torch.zeros((), dtype=torch.bool, device=call.inputs[0].device)
    for x in operands:
        mask = mask | masks.masked(x)
    return mask.expand(call.shape)


def _mul(masks: Masks, call: Call) -> Mask:
    """A factor that is surely zero decides; one that was just overwritten tells nothing."""
    a, b = call["self"], call["other"]
    if not isinstance(b, Tensor):
        return masks.mask(a)
    before = torch.ones_like(a, dtype=torch.bool) if call.overload._schema.is_mutable else masks.matters(a)
    return ((masks.masked(a) & masks.matters(b)) | (before & masks.masked(b))).expand(call.shape)


def _same(masks: Masks, call: Call) -> Mask:
    return masks.mask(call.inputs[0])


def _view(masks: Masks, call: Call) -> Mask:
    return masks.masked(call["self"]).reshape(call.shape)


def _move(masks: Masks, call: Call) -> list[Mask]:
    x, *others = call.inputs
    if any(masks.mask(other) is not None for other in others):
        return [everything(out) for out in tensors(call.out)]
    arguments = {name: value for name, value in call.arguments.items() if name != "self"}
    return [moved.bool() for moved in tensors(call.overload(masks.masked(x).long(), **arguments))]


def _join(masks: Masks, call: Call) -> Mask:
    joined: Tensor = getattr(torch, call.name)([masks.masked(x) for x in call["tensors"]], call["dim"] or 0)
    return joined


def _pad(masks: Masks, call: Call) -> Mask:
    return torch.constant_pad_nd(masks.masked(call["self"]).long(), call["pad"]).bool()


def _any(mask: Tensor, dims: Any) -> Tensor:
    """Whether any along these dimensions does, which keep their size."""
    dims = [dims] if isinstance(dims, int) else list(dims or range(mask.dim()))
    return mask.long().amax(dims, keepdim=True).bool().expand(mask.shape) if mask.dim() else mask


def _along(masks: Masks, call: Call) -> Mask:
    return _any(masks.masked(call["self"]), call["dim"])


def _reduction(masks: Masks, call: Call) -> list[Mask]:
    dims, mask = call["dim"], masks.masked(call["self"])
    dims = [dims] if isinstance(dims, int) else list(dims or range(mask.dim()))
    small = mask.long().amax(dims, keepdim=bool(call["keepdim"])).bool() if mask.dim() else mask
    return [small.reshape(out.shape) for out in tensors(call.out)]


def _spatial(masks: Masks, call: Call) -> list[Mask]:
    space = next(int(number) for number in "123" if f"{number}d" in call.name)
    mask = masks.masked(call.inputs[0]).long().amax(list(range(-space, 0)), keepdim=True).bool()
    return [mask.expand(out.shape) for out in tensors(call.out)]


def _batch_norm(masks: Masks, call: Call) -> Mask:
    """Where the scale is zero, only the shift is left."""
    x, mask = call["input"], masks.masked(call["input"])
    if call["training"] or call["running_mean"] is None:
        mask = _any(mask, [d for d in range(x.dim()) if d != 1])
    scale = call["weight"]
    return mask if scale is None else mask & masks.matters(scale).view(1, -1, *[1] * (x.dim() - 2))


def _layer_norm(masks: Masks, call: Call) -> Mask:
    mask = _any(masks.masked(call["input"]), list(range(-len(call["normalized_shape"]), 0)))
    return mask if call["weight"] is None else mask & masks.matters(call["weight"])


def _group_norm(masks: Masks, call: Call) -> Mask:
    x = call["input"]
    mask = _any(masks.masked(x).reshape(x.shape[0], call["group"], -1), 2).reshape(x.shape)
    scale = call["weight"]
    return mask if scale is None else mask & masks.matters(scale).view(1, -1, *[1] * (x.dim() - 2))


def _product(masks: Masks, a: Tensor, b: Tensor) -> Tensor:
    """Somewhere in the sum a factor varies and the other one matters."""
    x = masks.masked(a).float() @ masks.matters(b).float()
    if masks.mask(b) is not None:
        x = x + masks.matters(a).float() @ masks.masked(b).float()
    return x > 0


def _matrix_product(masks: Masks, call: Call) -> Mask:
    pairs = {"addmm": ("mat1", "mat2"), "_addmm_activation": ("mat1", "mat2"), "baddbmm": ("batch1", "batch2")}
    pairs |= {"addmv": ("mat", "vec"), "mv": ("self", "vec")}
    a, b = (call[name] for name in pairs.get(call.name, ("self", "mat2")))
    masks.read(b, a, a.dim() - 1)
    masks.read(a, b, max(b.dim() - 2, 0))
    mask = _product(masks, a, b)
    return mask | masks.masked(call["self"]) if call.name in ("addmm", "baddbmm", "addmv") else mask


def _convolution(masks: Masks, call: Call) -> Mask:
    x, weight = call["input"], call["weight"]
    window = any(size > 1 for size in weight.shape[2:])
    everywhere = not call["transposed"] and not (window and any(call["padding"]))
    masks.read(weight, x, 1, everywhere)
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    rest = [call[name] for name in names]
    spreads = masks.masked(x) if everywhere else masks.matters(x)  # at borders constants are missing: places differ
    mask = torch.convolution(spreads.float(), masks.matters(weight).float(), None, *rest) > 0.5
    if masks.mask(weight) is not None:
        mask = mask | (torch.convolution(masks.matters(x).float(), masks.masked(weight).float(), None, *rest) > 0.5)
    return mask


def _embedding(masks: Masks, call: Call) -> Mask:
    """A column of the table that has one number alone does not vary."""
    table = call["weight"]
    if masks.mask(table) is not None:
        return everything(call.out)
    mask: Tensor = (table != table[:1]).any(0)
    return mask.expand(call.shape)


def _attention(masks: Masks, call: Call) -> list[Mask]:
    """Whatever is looked at: where all values are zero, the answer is zero."""
    values = masks.matters(call["value"]).any(-2, keepdim=True)
    heads = call["query"].shape[-3] // values.shape[-3] if values.dim() > 3 else 1
    return [values.repeat_interleave(heads, -3).expand(call.shape)]


def _glu(masks: Masks, call: Call) -> Mask:
    first, second = masks.masked(call["self"]).chunk(2, call["dim"])
    return first | (masks.matters(call["self"]).chunk(2, call["dim"])[0] & second)


_RULES: dict[str, Callable[[Masks, Call], Mask | list[Mask]]] = {
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(MOVES, _move),
    **dict.fromkeys(JOINS, _join),
    **dict.fromkeys(UNTAGGED, _pointwise),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "linalg_vector_norm", "var", "std"), _reduction),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax", "cumsum"), _along),
    **dict.fromkeys(("mm", "bmm", "mv", "addmm", "_addmm_activation", "baddbmm", "addmv"), _matrix_product),
    "mul": _mul,
    "constant_pad_nd": _pad,
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "convolution": _convolution,
    "embedding": _embedding,
    "glu": _glu,
}
