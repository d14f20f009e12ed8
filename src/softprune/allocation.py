"""Budgets: how a target sparsity is shared out among the parameters.

A budget is {name: sparsity}, or a function ``(params, target) -> {name: sparsity}`` that makes one:

    uniform        the same for every parameter
    erdos_renyi    density ∝ (n_in + n_out) / (n_in · n_out)
    erk            the same with the kernel's sides: density ∝ (n_in + n_out + k₁ + k₂) / (n_in · n_out · k₁ · k₂)
    sp.budgets     what the paper's runs arrived at, layer by layer

The sum over parameters is the target exactly. Without a budget the threshold is global, and learning decides.
``flops_per_weight`` lets a global target count multiplications instead of weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from softprune.selection import unwrap

Budget = Mapping[str, float] | Callable[[Mapping[str, Tensor], float], Mapping[str, float]]


def uniform(params: Mapping[str, Tensor], target: float) -> dict[str, float]:
    """The same sparsity for every parameter.

    >>> uniform({"a": torch.empty(2, 3), "b": torch.empty(4, 4)}, 0.9)
    {'a': 0.9, 'b': 0.9}
    """
    return dict.fromkeys(params, target)


def erdos_renyi(params: Mapping[str, Tensor], target: float) -> dict[str, float]:
    """Density in proportion to (n_in + n_out) / (n_in · n_out): small layers stay denser."""
    return _share_out(params, target, {name: sum(p.shape[:2]) / math.prod(p.shape[:2]) for name, p in params.items()})


def erk(params: Mapping[str, Tensor], target: float) -> dict[str, float]:
    """Erdős-Rényi with the kernel: density in proportion to the sum of all sides over their product."""
    return _share_out(params, target, {name: sum(p.shape) / math.prod(p.shape) for name, p in params.items()})


def _share_out(params: Mapping[str, Tensor], target: float, wish: Mapping[str, float]) -> dict[str, float]:
    """Densities in proportion to ``wish``, none above 1, that leave 1 − target of all weights."""
    left = (1 - target) * sum(p.numel() for p in params.values())
    dense: set[str] = set()
    while True:
        rest = [name for name in params if name not in dense]
        spare = left - sum(params[name].numel() for name in dense)
        scale = spare / sum(wish[name] * params[name].numel() for name in rest)
        over = {name for name in rest if scale * wish[name] > 1}
        if not over:
            return {name: 0.0 if name in dense else 1 - scale * wish[name] for name in params}
        dense |= over


def resolve(budget: Budget, params: Mapping[str, Tensor], target: float) -> dict[str, float]:
    """A sparsity for each parameter. A table may name layers, as the paper's do, instead of their weights."""
    table = dict(budget(params, target) if callable(budget) else budget)
    found = {name: table.pop(name, None) for name in params}
    for name in params:
        if found[name] is None:
            found[name] = table.pop(name.removesuffix(".weight"), None)
    if missing := [name for name, sparsity in found.items() if sparsity is None]:
        raise ValueError(f"The budget says nothing about {', '.join(missing[:5])}. Name every pruned parameter.")
    if table:
        raise ValueError(f"The budget names {', '.join(list(table)[:5])}, which is not among the pruned parameters.")
    values = {name: float(sparsity) for name, sparsity in found.items() if sparsity is not None}
    for name, sparsity in values.items():
        if not 0 <= sparsity <= 1:
            raise ValueError(f"The budget's sparsity of {name} must be between 0 and 1. Got {sparsity}.")
    return values


def flops_per_weight(model: nn.Module, *example: Any) -> dict[str, float]:
    """How often each weight is multiplied when the model computes ``example``, for one sample of its batch.

    >>> flops_per_weight(nn.Conv2d(3, 8, 3, padding=1), torch.zeros(2, 3, 10, 10))
    {'weight': 100.0}
    """
    model = unwrap(model)
    uses: dict[str, float] = {}

    def count(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            channels = output.shape[-1] if isinstance(module, nn.Linear) else output.shape[1]
            uses[name] = uses.get(name, 0.0) + output.numel() / channels / inputs[0].shape[0]

        return hook

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    handles = [
        module.register_forward_hook(count(f"{name}.weight" if name else "weight"))
        for name, module in model.named_modules()
        if isinstance(module, kinds)
    ]
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(*example)
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return uses
