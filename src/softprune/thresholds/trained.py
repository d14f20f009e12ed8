"""Trained thresholds: STR, one d for each layer or for all, and GPO, which trains its blend with the identity too."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from softprune.errors import ArgumentError
from softprune.prox.base import Prox
from softprune.prox.soft import Blend, SoftThreshold
from softprune.thresholds.base import Trainable

_TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "exp": torch.exp}


class STR(Trainable):
    """d = σ(s) or eˢ with trained s: one for each parameter, or one ``shared`` by all (STR-GS).

    What moves s is mostly weight decay, so give s a param group with the decay you mean:

        threshold = sp.STR(params, init=-200.0)
        optimizer = SGD([{"params": model.parameters()},
                         {"params": threshold.parameters(), "weight_decay": 1e-4}], lr=0.1)

    Args:
        params: what is pruned, from ``sp.select``; the pruner is given the same.
        init: s at the start.
        transform: "sigmoid" or "exp".
        shared: one s for all parameters.

    >>> STR({"weight": nn.Parameter(torch.ones(2, 2))}, init=0.0)()[0].item()
    0.5
    """

    def __init__(
        self,
        params: Mapping[str, nn.Parameter],
        init: float,
        transform: str = "sigmoid",
        shared: bool = False,
    ) -> None:
        super().__init__(params, shared)
        if transform not in _TRANSFORMS:
            raise ArgumentError(f"`STR(transform=...)` must be one of {list(_TRANSFORMS)}. Got {transform!r}.")
        self.transform = transform
        self.s = self._new_parameter(params, init)

    def forward(self) -> tuple[Tensor, ...]:
        return (_TRANSFORMS[self.transform](self.s).expand(len(self.names)),)

    def extra_repr(self) -> str:
        return f"parameters={len(self.names)}, transform={self.transform!r}, shared={self.shared}"


class GPO(Trainable):
    """w = (1 − k)·S_d(θ) + k·θ with d = σ(s) and k = 10⁻⁶·|b|, both trained, one for each parameter.

    b starts at 10⁶, where the mapping is the identity; weight decay takes it to zero, where it is STR's.

    Args:
        params: what is pruned, from ``sp.select``; the pruner is given the same.
        init: s at the start.

    >>> [level.item() for level in GPO({"weight": nn.Parameter(torch.ones(2, 2))}, init=0.0)()]
    [0.5, 1.0]
    """

    SCALE = 1e-6

    def __init__(self, params: Mapping[str, nn.Parameter], init: float) -> None:
        super().__init__(params, shared=False)
        self.s = self._new_parameter(params, init)
        self.b = self._new_parameter(params, 1 / self.SCALE)

    def forward(self) -> tuple[Tensor, ...]:
        return torch.sigmoid(self.s), self.SCALE * self.b.abs()

    def mapping(self, prox: Prox) -> Prox:
        if prox != SoftThreshold():
            raise TypeError(
                f"Cannot use GPO with {prox}. This is because GPO blends the soft threshold with the "
                "identity. Leave `prox` out."
            )
        return Blend()
