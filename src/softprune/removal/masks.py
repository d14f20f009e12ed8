"""Models that torch's own pruning masks: the weight that they compute with becomes their parameter."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from torch import nn
from torch.nn.utils import prune


def without_masks(model: nn.Module) -> nn.Module:
    """The model itself, or a copy in which ``prune.remove`` has made all masks permanent.

    >>> layer = prune.l1_unstructured(nn.Linear(4, 2), "weight", amount=3)
    >>> [name for name, _ in without_masks(layer).named_parameters()], int((without_masks(layer).weight == 0).sum())
    (['bias', 'weight'], 3)
    """
    if not prune.is_pruned(model):
        return model
    for module, name in _masked(model):  # a weight that carries its history of gradients cannot be copied
        setattr(module, name, getattr(module, name).detach())
    model = copy.deepcopy(model)
    for module, name in list(_masked(model)):
        prune.remove(module, name)  # type: ignore[no-untyped-call]
    return model


def _masked(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, prune.BasePruningMethod):
                yield module, hook._tensor_name
