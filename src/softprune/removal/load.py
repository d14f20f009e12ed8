"""A small network from its tensors alone: the sizes that layers have are those of their weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from torch import Tensor, nn

from softprune.errors import ArgumentError, listing
from softprune.removal.slicing import HEADS, resize

_Layer = nn.Linear | nn.modules.conv._ConvNd


def load_small(model: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The network that ``shrink`` made of a model like this one, from its state dict.

        torch.save(sp.shrink(model, example).model.state_dict(), "small.pt")
        ...
        small = load_small(build_the_network(), torch.load("small.pt", weights_only=True))

    Nothing is executed but the model's own code: a file of tensors (safetensors) is enough. Every layer takes the sizes
    of its weights, depthwise convolutions their groups too; a layer without a bias gets one, where constants were put
    into it; attention whose outputs became fewer has fewer heads of the same size. The model that is given is not
    changed; the result has its dtype and device.

    Args:
        model: the network as it was before it was made smaller, with any weights.
        tensors: the state dict of the small one.

    >>> import torch
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> tensors = {"0.weight": torch.ones(3, 4), "0.bias": torch.ones(3), "2.weight": torch.ones(2, 3)}
    >>> load_small(net, tensors | {"2.bias": torch.ones(2)})
    Sequential(
      (0): Linear(in_features=4, out_features=3, bias=True)
      (1): ReLU()
      (2): Linear(in_features=3, out_features=2, bias=True)
    )
    """
    if missing := model.state_dict().keys() - tensors.keys():
        raise ArgumentError(f"The small network has no {listing(sorted(missing), most=5)}. It is that of another one.")
    small = copy.deepcopy(model)
    replaced: dict[int, Tensor] = {}  # tied parameters stay tied
    for name, tensor in tensors.items():
        slots, key, old = _slot(small, name)
        _refuse_other_sizes(name, tensor, old, slots)
        like = old if old is not None else slots["weight"]
        assert like is not None
        new = replaced.get(id(old)) if old is not None else None
        if new is None:
            new = tensor.detach().to(like.device, like.dtype).clone()
            new = nn.Parameter(new, like.requires_grad) if isinstance(like, nn.Parameter) else new
        slots[key] = new
        if old is not None:
            replaced[id(old)] = new
    for module in small.modules():
        resize(module)
    for name, module in small.named_modules():
        _count_heads(name, model.get_submodule(name), module)
    return small


def _slot(model: nn.Module, name: str) -> tuple[dict[str, Tensor | None], str, Tensor | None]:
    """Where a tensor belongs: the parameters or buffers of a module, its name there, and what is there now."""
    path, _, key = name.rpartition(".")
    modules = dict(model.named_modules())
    if path in modules:
        for slots in (modules[path]._parameters, modules[path]._buffers):
            if key in slots:
                return slots, key, slots[key]
    raise ArgumentError(f"The small network has {name}, which this one does not know. It is that of another one.")


def _refuse_other_sizes(name: str, tensor: Tensor, old: Tensor | None, slots: Mapping[str, Tensor | None]) -> None:
    if old is None and slots.get("weight") is None:
        raise ArgumentError(f"The small network has {name}, for which this one has no place.")
    if old is not None and (old.ndim != tensor.ndim or any(map(int.__gt__, tensor.shape, old.shape))):
        raise ArgumentError(
            f"{name} has the shape {tuple(tensor.shape)} in the small network and {tuple(old.shape)} in this one, "
            "which it cannot have come from."
        )


def _count_heads(name: str, before: nn.Module, after: nn.Module) -> None:
    """Tell a module how many heads it has now: those that its first layer makes, and another one reads."""
    numbers = {key: value for key in HEADS if isinstance(value := vars(before).get(key), int)}
    pairs = [
        (old, new)
        for old, new in zip(before.children(), after.children(), strict=True)
        if isinstance(old, _Layer) and isinstance(new, _Layer)
    ]
    if not numbers or not pairs:
        return
    was, now = (len(layer.weight) for layer in pairs[0])
    if was == now:
        return
    read = any(new.weight.shape[1] * was == old.weight.shape[1] * now for old, new in pairs[1:])
    if not read or any(number * now % was for number in numbers.values()):
        raise ArgumentError(
            f"Cannot tell how many heads {name} has in the small network: {now} of {was} rows are left."
        )
    for key, number in numbers.items():
        setattr(after, key, number * now // was)
