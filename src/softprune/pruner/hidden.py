"""The hidden weights θ behind a set of parameters, and the swap between θ and w.

Between steps a parameter holds w. ``reveal`` lets it hold θ, for the optimizer to update in place; ``conceal``
lets it hold w again. Neither copies anything: the parameter is pointed at one memory or the other, w stays in
the memory that the model gave it, and θ is the one buffer that pruning adds.

Sharded parameters (DTensor, as FSDP2 makes them) are handled shard by shard: everything here is local.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from softprune.kernels.columns import Columns, take
from softprune.kernels.pairs import Pairs
from softprune.kernels.sharding import is_sharded, local
from softprune.prox.base import Prox
from softprune.prox.soft import SoftThreshold


class Hidden:
    """θ for each of the given parameters, which ``prox`` maps to w."""

    def __init__(self, params: Mapping[str, nn.Parameter], prox: Prox = SoftThreshold()) -> None:
        self.prox = prox
        self.names: Sequence[str] = list(params)
        self.params: Sequence[nn.Parameter] = list(params.values())
        self._thetas = [p.detach().clone() for p in self.params]
        self._any_sharded = any(is_sharded(p) for p in self.params)
        self.revealed = False
        self._look()

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_locals", "ws", "thetas", "pairs", "_versions")
        kept = {key: value for key, value in self.__dict__.items() if key not in derived}
        return {**kept, "changed": [] if self.revealed else self.changed()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        changed = state.pop("changed")
        self.__dict__.update(state)
        self._look()
        for i in changed:
            self._versions[i] = (-1, -1)

    def _look(self) -> None:
        """Note where w lies, and what was last written there."""
        self._locals = [local(p) for p in self.params]
        self.ws = [p.data for p in self._locals]
        self.thetas = [local(theta) for theta in self._thetas]
        self.pairs = Pairs(self.ws, self.thetas)
        self._versions = self._seen()

    def _seen(self) -> list[tuple[int, int]]:
        """How often each parameter was written to, as a whole or in this process's part alone."""
        return [(p._version, part._version) for p, part in zip(self.params, self._locals, strict=True)]

    def clear(self) -> None:
        """Let go of parameters and θ, though a rule or a caller still holds this object."""
        self.names, self.params, self._thetas = [], [], []
        self._look()

    @property
    def sizes(self) -> Pairs:
        """What is compared with d, for those who count: θ, or the sizes of groups."""
        sizes = self.prox.sizes(self.thetas)
        return self.pairs if sizes is self.thetas else Pairs(sizes, sizes)

    def __iter__(self) -> Iterator[Tensor]:
        """θ, sharded as its parameter is."""
        return iter(self._thetas)

    def reveal(self) -> None:
        """Let the parameters hold θ."""
        for p, theta in zip(self._locals, self.thetas, strict=True):
            p.data = theta  # which no version counts
        self.revealed = True

    def conceal(self) -> None:
        """Let the parameters hold w; θ is what they held, also where an optimizer gave them other memory."""
        for p, part, w, theta in zip(self.params, self._locals, self.ws, self.thetas, strict=True):
            if self.revealed and part.data_ptr() != theta.data_ptr():
                theta.copy_(part.data)
            part.data = w
            increment_version(p)  # w is about to be written as ``data``, which autograd does not see
        self._versions = self._seen()
        self.revealed = False

    def changed(self) -> list[int]:
        """Which parameters were written to, moved or replaced since ``conceal``, by someone else: w between steps."""
        return [
            i
            for i, (p, w, now, then) in enumerate(zip(self.params, self.ws, self._seen(), self._versions, strict=True))
            if now != then or (local(p) if self._any_sharded else p).data_ptr() != w.data_ptr()
        ]

    def moved(self) -> bool:
        """Whether the optimizer has written to θ since ``reveal``, as far as autograd knows."""
        parts = zip(self._locals, self.thetas, strict=True)
        return self._seen() != self._versions or any(part.data_ptr() != theta.data_ptr() for part, theta in parts)

    def follow(self, changed: list[int], levels: Columns) -> dict[int, Tensor]:
        """θ for what these parameters hold now, by index: a θ that maps to w, where w is not what pruning wrote there.
        A prox of groups may ask for another θ of the other parameters too."""
        if not changed:
            return {}
        which = list(range(len(self.params))) if self.prox.spans else changed
        thetas = {i: self._beside(i) for i in which}
        held = Pairs([local(self.params[i]).data for i in which], [local(theta) for theta in thetas.values()])
        written = [torch.empty_like(theta) for theta in held.thetas]
        columns = [take(column, which) for column in levels]
        self.prox.write(Pairs(written, held.thetas), *columns)
        for theta, recovered in zip(held.thetas, self.prox.recover(held, written, *columns), strict=True):
            theta.copy_(recovered)
        return thetas

    def _beside(self, i: int) -> Tensor:
        """A copy of θ as its parameter is now: on its device, of its type, laid out alike."""
        p = self.params[i]
        theta = self._thetas[i].to(device=p.device, dtype=p.dtype, copy=True)
        if local(theta).stride() != local(p).stride():  # as after model.to(memory_format=...)
            theta = torch.empty_like(p, requires_grad=False).copy_(theta)
        return theta

    def adopt(self, thetas: Mapping[int, Tensor]) -> None:
        """Take over weights that were set from outside, with the given θ."""
        for i, theta in thetas.items():
            self._thetas[i] = theta
        self._look()

    def load(self, thetas: Sequence[Tensor]) -> None:
        """Replace θ by saved values."""
        for theta, saved in zip(self._thetas, thetas, strict=True):
            theta.copy_(saved)
