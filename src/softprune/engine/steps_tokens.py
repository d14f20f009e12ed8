"""Drafts in floats, of int8 and fp32: what transformers do between their layers, and the way to bytes and back."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softprune.engine.formats import VECTOR
from softprune.engine.graph import Activation, Add, Apply, Attention, Norm
from softprune.engine.grids import MOST, Grid
from softprune.engine.quantized import Scale
from softprune.engine.steps import Draft, Value

QUERIES = 4  # vectors at once, at most; as in native/tokens32.c
CURVES = (  # as in native/curves.h
    *(Activation.NONE, Activation.GELU, Activation.GELU_TANH, Activation.SILU, Activation.HARDSWISH),
    *(Activation.HARDSIGMOID, Activation.SIGMOID, Activation.TANH),
)


def act(op: Add | Apply, x: Value, r: Value | None, y: Value) -> Draft:
    """An activation of x, or of x + r."""
    numbers = {"inputs": x.deep, "other": curve(op.activation)}
    arrays = {"real": torch.tensor(limits(op.activation))}
    return Draft(op.name, "act32", y.grid, y.name, x.name, r.name if r else None, numbers=numbers, arrays=arrays)


def limits(activation: Activation) -> tuple[float, float]:
    """The clamp that is ReLU or ReLU6; none for the others."""
    clamps = {Activation.RELU: (0.0, math.inf), Activation.RELU6: (0.0, 6.0)}
    return clamps.get(activation, (-math.inf, math.inf))


def curve(activation: Activation) -> int:
    """What the kernels call it; 0 for clamps."""
    return CURVES.index(activation) if activation in CURVES else 0


def norm(op: Norm, x: Value, y: Value) -> Draft:
    arrays = {"real": torch.cat([op.weight.float(), op.bias.float(), torch.tensor([op.eps])])}
    return Draft(op.name, "norm32", y.grid, y.name, x.name, numbers={"width": x.channels}, arrays=arrays)


def attention(op: Attention, x: Value, y: Value) -> Draft:
    """Every panel of queries of one head is an item of its own."""
    grid = x.grid
    _, heads, each = op.channels.shape
    tokens = torch.arange(grid.width)
    panel, vector, tile = grid.find(torch.zeros_like(tokens), torch.zeros_like(tokens), tokens)
    arrays = {
        "bias": op.channels.flatten().to(torch.int32),
        "real": torch.tensor([op.scale], dtype=torch.float32),
        "tap": torch.stack([panel, vector * VECTOR, tile], 1).to(torch.int32),
        "indices": _same_tile(grid),
    }
    if op.seen is not None:
        arrays["lengths"] = _seen(op.seen, grid)
    numbers = {"inputs": each, "outputs": heads, "width": grid.width, "images": grid.images, "taps": grid.panels}
    return Draft(
        op.name,
        "attention32",
        grid,
        y.name,
        x.name,
        panels=heads * grid.panels,
        numbers=numbers,
        arrays=arrays,
        alone=True,
        room=grid.width * QUERIES * VECTOR,
    )


def _same_tile(grid: Grid) -> Tensor:
    """For each tile of an image, the lane of this tile in the image that each lane belongs to."""
    tiles = grid.rows * grid.columns
    lane = torch.arange(grid.lanes)
    return (lane // tiles * tiles + torch.arange(tiles).view(-1, 1)).to(torch.int32)


def _seen(seen: Tensor, grid: Grid) -> Tensor:
    """For each key and each vector of queries, a bit for each lane that sees the key; lanes of no token see all."""
    _, _, token = grid.places()
    here = seen[token.clamp(max=grid.width - 1)] | ~grid.valid().unsqueeze(-1)  # panel, vector, lane, key
    bits = (here.long() << torch.arange(grid.lanes).view(-1, 1)).sum(2).permute(2, 0, 1)
    padded = torch.zeros(grid.width, grid.panels, MOST, dtype=torch.int64)
    padded[:, :, : bits.shape[2]] = bits
    return padded.to(torch.int32)


def rounding(scale: Scale) -> Tensor:
    """What makes bytes of floats, as native/ends.c reads it."""
    return torch.tensor([1.0 / scale.scale, 0.0 - scale.zero, 255.0 - scale.zero], dtype=torch.float32)


def to_bytes(name: str, x: Value, y: Value, scale: Scale) -> Draft:
    numbers = {"inputs": y.deep, "fill": scale.zero}
    return Draft(name, "bytes32", y.grid, y.name, x.name, numbers=numbers, arrays={"real": rounding(scale)})


def to_floats(name: str, x: Value, y: Value, scale: Scale) -> Draft:
    arrays = {"real": torch.tensor([scale.scale], dtype=torch.float32)}
    return Draft(name, "floats8", y.grid, y.name, x.name, numbers={"inputs": x.deep, "fill": scale.zero}, arrays=arrays)
