"""Budgets: how a target sparsity is shared out among the parameters.

A budget is {name: sparsity}, or a function ``(params, target) -> {name: sparsity}`` that makes one:

    uniform        the same for every parameter
    erdos_renyi    density ∝ (n_in + n_out) / (n_in · n_out)
    erk            the same with the kernel's sides: density ∝ (n_in + n_out + k₁ + k₂) / (n_in · n_out · k₁ · k₂)
    sp.budgets     what the paper's runs arrived at, layer by layer

The sum over parameters is the target exactly. Without a budget the threshold is global, and learning decides.
``sp.flops_per_weight`` lets a global target count multiplications instead of weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from torch import Tensor

Budget = Mapping[str, float] | Callable[[Mapping[str, Tensor], float], Mapping[str, float]]


def uniform(params: Mapping[str, Tensor], target: float) -> dict[str, float]:
    """The same sparsity for every parameter.

    >>> import torch
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


def whole(shares: Mapping[str, float], params: Mapping[str, Tensor]) -> dict[str, float]:
    """Shares that are whole numbers of weights, with the same sum: what is cut off goes where most was.

    >>> import torch
    >>> whole({"a": 0.5, "b": 0.5}, {"a": torch.zeros(3), "b": torch.zeros(3)})
    {'a': 0.6666666666666666, 'b': 0.3333333333333333}
    """
    exact = {name: shares[name] * p.numel() for name, p in params.items()}
    counts = {name: math.floor(value) for name, value in exact.items()}
    spare = round(math.fsum(exact.values())) - sum(counts.values())
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[:spare]:
        counts[name] += 1
    return {name: counts[name] / max(1, p.numel()) for name, p in params.items()}


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
