"""Linear layers whose zeros have a pattern, into the layout that makes a GPU faster."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from softprune.errors import ArgumentTypeError, UsageError, require
from softprune.layouts.block_sparse import SIZES, BlockSparseLinear, blocks
from softprune.layouts.result import Converted, Layer

LEAST = 0.8  # the least share of empty blocks that was measured (docs/guides/gpu_patterns.md)
HALVES = (torch.float16, torch.bfloat16)


def to_semi_structured(model: nn.Module) -> Converted:
    """A copy of a network whose 2:4 Linear weights are torch's semi-structured tensors (cuSPARSELt).

    Train them with ``prox=sp.NM(2, 4)``. On an H200 they are faster than dense ones for many tokens inside a CUDA
    graph, as ``torch.compile(model, mode="reduce-overhead")`` makes it, and hardly without one.

    Args:
        model: on a GPU of compute capability 8.0 or more, in half precision.

    Returns:
        ``Converted``: its ``model``, and which layers stayed dense, and why.
    """
    _require_model("to_semi_structured", model)
    for p in model.parameters():
        _require_tensor_cores(p.device)
    return _convert(model, "2:4", _why_not_semi_structured, _semi_structured)


def to_block_sparse(model: nn.Module, size: int = 64) -> Converted:
    """A copy of a network with ``BlockSparseLinear`` in place of Linear layers of which most blocks are zero.

    Train them with ``groups=sp.Blocks(64, 64)``. Only layers with at least 80% of empty blocks are converted: fewer
    were not measured. On an H200 they are faster than dense ones inside a CUDA graph, or for many tokens.

    Args:
        model: on any device; a GPU is faster, other devices compute the same.
        size: rows and columns of a block: 16, 32, 64 or 128. 64 and 128 were measured.

    Returns:
        ``Converted``: its ``model``, and which layers stayed dense, and why.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(64, 160), nn.ReLU(), nn.Linear(160, 10))
    >>> _ = model[0].weight.data[16:].zero_()
    >>> print(to_block_sparse(model, 16))
    layer    weight   zeros  now
    0      160 x 64  90.00%  16 x 16 blocks
    2      10 x 160   0.00%  dense: blocks of 16 do not fill it
    1 of 2 Linear layers were converted.
    """
    _require_model("to_block_sparse", model)
    require("to_block_sparse", "size", size, f"one of {', '.join(map(str, SIZES))}", lambda x: x in SIZES)

    def why_not(layer: nn.Linear) -> str:
        weight = layer.weight
        if layer._forward_hooks or layer._forward_pre_hooks:
            return "it has hooks, which would be lost"
        if weight.shape[0] % size or weight.shape[1] % size:
            return f"blocks of {size} do not fill it"
        empty = float((blocks(weight, size) == 0).all(3).all(2).float().mean())
        return "" if empty >= LEAST else f"{empty:.0%} of its blocks are empty, less than {LEAST:.0%}"

    return _convert(model, f"{size} x {size} blocks", why_not, lambda layer: BlockSparseLinear.of(layer, size))


@torch.no_grad()
def _convert(
    model: nn.Module, layout: str, why_not: Callable[[nn.Linear], str], convert: Callable[[nn.Linear], nn.Module]
) -> Converted:
    """Look at each Linear layer of a copy, and replace those that nothing speaks against."""
    model = copy.deepcopy(model)
    layers, made = [], {}
    for name, layer in list(_linears(model)):
        zeros = float((layer.weight == 0).double().mean())
        reason = why_not(layer)
        layers.append(Layer(name, layer.out_features, layer.in_features, zeros, reason))
        if not reason:
            made[name] = convert(layer)
    for name, other in made.items():
        model = _put(model, name, other)
    return Converted(model, layout, tuple(layers))


def _linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Linear layers, each once. Others' own kinds of them may read the weight in ways of their own."""
    return ((name, module) for name, module in model.named_modules() if type(module) is nn.Linear)


def _put(model: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    """Replace a layer under all of its names; the model itself, if it is the layer."""
    if not name:
        return layer
    old = model.get_submodule(name)
    for parent in list(model.modules()):
        for key in [key for key, child in parent._modules.items() if child is old]:
            setattr(parent, key, layer)
    return model


def _why_not_semi_structured(layer: nn.Linear) -> str:
    weight = layer.weight
    if weight.dtype not in HALVES:
        return f"its weights are {str(weight.dtype).removeprefix('torch.')}, not half precision: `model.bfloat16()`"
    if weight.shape[0] % 16 or weight.shape[1] % 16:
        return "its sides are no multiples of 16"
    if not two_of_four(weight):
        return "more than 2 of 4 neighbours are left somewhere"
    return ""


def two_of_four(weight: Tensor) -> bool:
    """Whether of every 4 neighbours along the inputs at most 2 are not zero. A host sync."""
    return weight.shape[1] % 4 == 0 and bool(((weight.reshape(-1, 4) != 0).sum(1) <= 2).all())


def _semi_structured(layer: nn.Linear) -> nn.Module:
    from torch.sparse import SparseSemiStructuredTensorCUSPARSELT

    packed = SparseSemiStructuredTensorCUSPARSELT.from_dense(layer.weight.detach().contiguous())
    layer.weight = nn.Parameter(packed, requires_grad=False)
    return layer


def _require_tensor_cores(device: torch.device) -> None:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        raise UsageError(
            "`to_semi_structured` needs the network on a CUDA GPU of compute capability 8.0 or more (A100, H100, ...): "
            f"others have no kernels for 2:4. It is on {device}; write `model.cuda()` where there is such a GPU."
        )
    if not torch.backends.cusparselt.is_available():
        raise UsageError("`to_semi_structured` needs cuSPARSELt, which this build of torch lacks. Install another.")


def _require_model(owner: str, model: object) -> None:
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"`{owner}(model=...)` must be a module. Got {type(model).__name__}.")
    for name, module in model.named_modules():
        made = [key for key in vars(module) if f"{key}_orig" in module._parameters]
        if made:
            raise UsageError(
                f"`{owner}` needs plain weights, and {name}.{made[0]} is masked by torch. Write "
                f"`torch.nn.utils.prune.remove(layer, {made[0]!r})` for each layer that is."
            )
