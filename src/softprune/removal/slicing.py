"""A copy of a network without some of its units."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from softprune.removal.dead import can_fold, tensor_of
from softprune.removal.varies import Read
from softprune.structure import Axis, Kind, Site, Structure

# What modules call their number of heads, and sizes that are a multiple of it.
HEADS = (
    "heads", "num_heads", "n_heads", "n_head", "nhead", "num_attention_heads", "num_key_value_heads", "num_kv_heads",
    "n_kv_heads", "n_kv_head", "kv_heads", "all_head_size", "inner_dim", "split_size",
)  # fmt: skip


def cut(model: nn.Module, structure: Structure, living: Tensor, reads: Mapping[str, Sequence[Read]]) -> nn.Module:
    """A new module, as deep a copy as can be, without the units that do not live."""
    small = copy.deepcopy(model)
    keeps: dict[str, list[tuple[int, Tensor]]] = {}
    for axis in structure.axes:
        keep = kept(axis, living)
        if not bool(keep.all()):
            keeps.setdefault(axis.name, []).append((axis.dim, keep))
    for axis in structure.axes:
        if axis.reads and fold(small, axis, kept(axis, living), reads.get(axis.name, ())):
            made = [(0, keep) for dim, keep in keeps[axis.name] if dim != axis.dim]
            keeps[axis.name.removesuffix("weight") + "bias"] = made
    replaced: dict[int, tuple[Tensor, Tensor]] = {}
    for name, cuts in keeps.items():
        old = tensor_of(small, name)
        new = old.detach()
        for dim, keep in cuts:
            new = new.index_select(dim, keep.nonzero()[:, 0].to(new.device))
        if isinstance(old, nn.Parameter):
            new = nn.Parameter(new, requires_grad=old.requires_grad)
        replaced[id(old)] = old, new
    for module in small.modules():
        for slots in (module._parameters, module._buffers):
            for key, value in slots.items():
                if value is not None and id(value) in replaced:
                    slots[key] = replaced[id(value)][1]  # type: ignore[assignment]
        resize(module)
    for site in structure.sites:
        count_heads(small, site, living)
    return small


def kept(axis: Axis, living: Tensor) -> Tensor:
    """Which indices of a dimension stay."""
    return (axis.units < 0) | living[axis.units]


def fold(model: nn.Module, axis: Axis, keep: Tensor, reads: Sequence[Read]) -> bool:
    """Add to the bias of a layer what the constants that go have added to its outputs; whether the bias is new."""
    if bool(keep.all()) or not reads or not can_fold(model, axis, new_biases=True):
        return False
    weight = tensor_of(model, axis.name).detach().double().movedim(axis.dim, 0)
    weight = weight.reshape(*weight.shape[:2], -1).sum(-1)
    inputs = len(weight)
    constants = reads[0].value.nan_to_num(0.0).to(weight.device).view(-1, inputs)  # of each group
    constants = constants * (~keep).to(weight)
    added = torch.einsum("gi,igo->go", constants, weight.view(inputs, len(constants), -1)).flatten()
    if not bool((added != 0).any()):
        return False
    slots = model.get_submodule(axis.name.rpartition(".")[0])._parameters
    parameter, bias = tensor_of(model, axis.name), slots["bias"]
    total = added if bias is None else bias.detach().double() + added
    slots["bias"] = nn.Parameter(total.to(parameter.dtype), requires_grad=parameter.requires_grad)
    return bias is None


def resize(module: nn.Module) -> None:
    """Tell a layer the size that its parameters have now."""
    if isinstance(module, nn.modules.conv._ConvNd):
        first, second = module.weight.shape[:2]
        if module.groups > 1 and module.in_channels == module.groups:  # depthwise
            per = module.out_channels // module.groups
            module.groups = first if module.transposed else first // per
            module.in_channels, module.out_channels = module.groups, module.groups * per
        elif module.transposed:
            module.in_channels, module.out_channels = first, second * module.groups
        else:
            module.out_channels, module.in_channels = first, second * module.groups
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.Embedding):
        module.embedding_dim = module.weight.shape[1]
    elif isinstance(module, nn.modules.batchnorm._NormBase):
        sized = module.running_mean if module.running_mean is not None else module.weight
        module.num_features = module.num_features if sized is None else len(sized)
    elif isinstance(module, nn.GroupNorm) and module.weight is not None:
        module.num_groups = module.num_groups * len(module.weight) // module.num_channels
        module.num_channels = len(module.weight)
    elif type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        module.nx, module.nf = tensor_of(module, "weight").shape  # type: ignore[assignment]


def count_heads(model: nn.Module, site: Site, living: Tensor) -> None:
    """Tell the module around an attention's layers how many heads it has now."""
    before, after = len(site.units), int(living[site.units.start : site.units.stop].sum())
    if site.kind is not Kind.HEAD or before == after:
        return
    modules = dict(model.named_modules())
    module = modules.get(site.name, model)
    if isinstance(module, nn.Linear | nn.modules.conv._ConvNd) or type(module).__name__ == "Conv1D":
        module = modules[site.name.rpartition(".")[0]]
    for name in HEADS:
        value = vars(module).get(name)
        if isinstance(value, int) and value * after % before == 0:
            setattr(module, name, value * after // before)
