"""Attention, found among what torch would run: one call between calls that only move numbers.

Whoever writes a transformer splits, views and transposes in a way of their own. What these calls do is read off numbers
that say where they come from: each element of q, k and v must be a channel of its own token, the same for all tokens.
Layers that make q, k and v of one value become one layer.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softprune.engine.graph import Activation, Attention, Graph, Linear, Opaque, Operation
from softprune.engine.opaque import Call, Program
from softprune.engine.programs import QUIET

CALL = torch.ops.aten.scaled_dot_product_attention.default
MOVES = QUIET | {
    "split",
    "split_with_sizes",
    "chunk",
    "unbind",
    "clone",
    "contiguous",
    "flatten",
    "unflatten",
    "sym_size",
}
NUMBERS = {operator.mul, operator.add, operator.sub, operator.floordiv}  # of sizes
NOTHING = -1e4  # what is added to a product that must not count


def find_attention(graph: Graph) -> Graph:
    """The graph with ``Attention`` wherever it can be told."""
    operations = {op.name: op for op in graph.operations}
    shapes = dict(graph.shapes)
    for op in graph.operations:
        found = _attention(op, graph) if isinstance(op, Opaque) else None
        if found is None:
            continue
        if len(found.inputs) > 1:
            joined = _joined([operations.get(name) for name in found.inputs], graph)
            if joined is None:
                continue
            kept: dict[str, Operation] = {}
            for name, other in operations.items():
                if name == found.inputs[-1]:
                    kept[joined.name] = joined
                if name not in found.inputs:
                    kept[name] = other
            operations = kept
            shapes[joined.name] = (*shapes[found.inputs[0]][:-1], len(joined.weight))
            found = replace(found, inputs=(joined.name,))
        operations[op.name] = found
    read = {*graph.outputs, *(name for op in operations.values() for name in op.inputs)}
    kept = {name: op for name, op in operations.items() if name in read}  # without masks that are known now
    names = {*graph.inputs, *kept}
    return replace(
        graph,
        operations=tuple(kept.values()),
        shapes={name: shape for name, shape in shapes.items() if name in names},
    )


def _joined(makers: Sequence[Operation | None], graph: Graph) -> Linear | None:
    """One layer in the place of several that read the same, if nobody else reads what they make."""
    layers = [maker for maker in makers if isinstance(maker, Linear)]
    if len(layers) < len(makers) or len({layer.inputs for layer in layers}) > 1 or len(layers[0].inputs) > 1:
        return None
    if any(layer.activation is not Activation.NONE or layer.name in graph.outputs for layer in layers):
        return None
    if any(len(graph.readers(layer.name)) > 1 for layer in layers):
        return None
    weight, bias = torch.cat([layer.weight for layer in layers]), torch.cat([layer.bias for layer in layers])
    return Linear(", ".join(layer.name for layer in layers), layers[0].inputs, weight, bias)


@dataclass
class _Seen:
    """What the call was given, where numbers say where they come from; stands in the place of the call."""

    q: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None
    mask: Tensor | None = None
    causal: bool = False
    scale: float | None = None

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if enable_gqa:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        self.q, self.k, self.v = q, k, v
        self.mask, self.causal, self.scale = attn_mask, is_causal, scale
        return torch.arange(q.numel(), dtype=torch.float64).view(q.shape)


def _attention(op: Opaque, graph: Graph) -> Attention | None:
    program = op.run
    if not isinstance(program, Program) or not _only_moves(program):
        return None
    batch = graph.batch or 2
    known = _known(op, graph, batch)
    inputs = tuple(name for name in op.inputs if name not in known)
    sizes = [graph.shapes[name] for name in inputs]
    tokens = graph.shapes[op.name][1]
    if not sizes or any(len(size) != 3 or size[1] != tokens for size in (*sizes, graph.shapes[op.name])):
        return None
    total = sum(size[2] for size in sizes)
    first = torch.arange(batch * tokens, dtype=torch.float64).view(batch, tokens, 1) * total
    everything = first + torch.arange(total)
    given = known | dict(zip(inputs, torch.split(everything, [size[2] for size in sizes], 2), strict=True))
    seen = _Seen()
    calls = tuple(replace(call, target=seen) if call.target is CALL else call for call in program.calls)
    result = replace(program, calls=calls)(*(given[name] for name in op.inputs))
    found = [_channels(x, first, total) for x in (seen.q, seen.k, seen.v)]
    if seen.q is None or any(x is None or x.shape != found[0].shape for x in found):  # type: ignore[union-attr]
        return None
    own = torch.arange(seen.q.numel(), dtype=torch.float64).view(seen.q.shape).transpose(1, 2).flatten(2)
    if not torch.equal(result, own):
        return None
    try:
        sees = _sees(seen, tokens)
    except ValueError:
        return None
    scale = seen.q.shape[-1] ** -0.5 if seen.scale is None else seen.scale
    return Attention(op.name, inputs, torch.stack(found), float(scale), sees)  # type: ignore[arg-type]


def _known(op: Opaque, graph: Graph, batch: int) -> dict[str, Tensor]:
    """The inputs that do not depend on data: those that are read for their sizes, and masks made for a batch."""

    def zeros(name: str) -> Tensor:
        rows, *sizes = graph.shapes[name]
        return torch.zeros(rows * batch // graph.shapes[graph.inputs[0]][0], *sizes)

    makers = {maker.name: maker for maker in graph.operations if isinstance(maker, Opaque)}
    found = {op.inputs[i]: zeros(op.inputs[i]) for i in op.run.for_sizes}  # type: ignore[attr-defined]
    for name in op.inputs:
        maker = makers.get(name)
        if maker and isinstance(maker.run, Program) and len(maker.run.for_sizes) == len(maker.inputs):
            found[name] = maker.run(*map(zeros, maker.inputs))
    return found


def _only_moves(program: Program) -> bool:
    """Whether there is one attention, and nothing else that computes."""

    def moves(call: Call) -> bool:
        name = getattr(call.target, "_opname", getattr(call.target, "__name__", ""))
        return call.target in NUMBERS or name in MOVES

    others = [call for call in program.calls if call.target is not CALL]
    return len(others) == len(program.calls) - 1 and all(map(moves, others))


def _channels(x: Tensor | None, first: Tensor, total: int) -> Tensor | None:
    """heads, D: the channel of its own token that every number is; None if one is something else."""
    batch, tokens, _ = first.shape
    if x is None or x.dim() != 4 or x.dtype is not torch.float64 or x.shape[0] != batch or x.shape[2] != tokens:
        return None
    channel = x - first.unsqueeze(1)
    same = bool((channel == channel[:1, :, :1]).all()) and 0 <= float(channel.min()) <= float(channel.max()) < total
    return channel[0, :, 0].long() if same else None


def _sees(seen: _Seen, tokens: int) -> Tensor | None:
    """tokens, tokens; ValueError where it is not the same for all heads and samples, or more than yes and no."""
    if seen.causal:
        return torch.ones(tokens, tokens, dtype=torch.bool).tril()
    if seen.mask is None:
        return None
    mask = seen.mask
    if mask.is_floating_point():
        if not bool(((mask == 0) | (mask <= NOTHING)).all()):
            raise ValueError("The mask is more than yes and no.")
        mask = mask == 0
    mask = mask.expand(*mask.shape[:-2], tokens, tokens).reshape(-1, tokens, tokens)
    if mask.dtype is not torch.bool or not bool((mask == mask[:1]).all()) or not bool(mask[0].any(1).all()):
        raise ValueError("Not all heads and samples see the same, or a token sees nothing.")
    return None if bool(mask.all()) else mask[0].clone()
