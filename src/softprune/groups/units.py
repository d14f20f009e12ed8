"""Groups that lie in several parameters, by hand or as a network's structure tells: what one unit reads."""

from __future__ import annotations

import math
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from softprune.errors import ArgumentError, listing
from softprune.groups.base import Grouping, Partition
from softprune.kernels.columns import Column
from softprune.kernels.factor import factor
from softprune.kernels.pairs import Pairs, on_device
from softprune.kernels.sharding import extent, is_sharded, local, sharding, total
from softprune.kernels.units import Owned, Units, sizes

Part = tuple[str, int, Sequence[int]]
"""A parameter, one of its dimensions, and indices along it."""


class Groups(Grouping):
    """Groups by hand: ``sp.Groups({"neuron 3": [("up.weight", 0, [3]), ("down.weight", 1, [3])], ...})``.

    A weight has at most one group, so all groups have the same dimension of a parameter. Weights without a group are
    not pruned.

    Args:
        groups: {name: [(parameter, dimension, indices along it)]}.

    >>> Groups({0: [("up.weight", 0, [0, 1])], 1: [("up.weight", 0, [2, 3])]})
    Groups(2 of 1 parameter)
    """

    def __init__(self, groups: Mapping[Hashable, Sequence[Part]]) -> None:
        self.groups = {name: tuple(parts) for name, parts in groups.items()}
        if not self.groups or not all(any(len(indices) for _, _, indices in parts) for parts in self.groups.values()):
            raise ArgumentError(
                "`Groups(groups=...)` must be {name: [(parameter, dimension, indices)]} with something in every group."
            )

    def __repr__(self) -> str:
        number = len({name for parts in self.groups.values() for name, _, _ in parts})
        return f"Groups({len(self.groups)} of {number} parameter{'s' * (number > 1)})"

    def bind(self, params: Mapping[str, nn.Parameter]) -> Partition:
        found: dict[str, tuple[int, Tensor]] = {}
        for number, (label, parts) in enumerate(self.groups.items()):
            for name, dim, indices in parts:
                if name not in params:
                    raise ArgumentError(f"Group {label!r} names {name!r}, which is not among the pruned parameters.")
                along, groups = found.setdefault(name, (dim, _nobody(label, name, dim, params[name])))
                if along != dim:
                    raise ArgumentError(
                        f"Group {label!r} cuts {name} along dimension {dim}, and another group along {along}: a weight "
                        "where they meet would be in both. Leave one of them out."
                    )
                at = torch.tensor(list(indices), dtype=torch.int64)
                inside = bool(((at >= 0) & (at < len(groups))).all())
                if not inside or (groups[at] >= 0).any() or len(set(at.tolist())) < len(at):
                    raise ArgumentError(
                        f"Group {label!r} must name indices of {name} from 0 to {len(groups) - 1}, each once, and none "
                        "that another group has."
                    )
                groups[at] = number
        owned = {name: Slots(dim, Placed(groups)) for name, (dim, groups) in found.items()}
        return UnitPartition(params, owned, {}, {"groups": range(len(self.groups))})


class Placed:
    """Numbers of the host, which each device gets once."""

    def __init__(self, whole: Tensor) -> None:
        self.whole = whole
        self._copies: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device) -> Tensor:
        if device not in self._copies:
            self._copies[device] = self.whole.to(device)
        return self._copies[device]

    def __reduce__(self) -> Any:
        return Placed, (self.whole,)


@dataclass(frozen=True)
class Slots:
    """A dimension of a parameter, and of each index along it the group; -1 where there is none."""

    dim: int
    groups: Placed

    def part(self, p: Tensor) -> Slots:
        """Those of this process's part of a sharded parameter."""
        return Slots(self.dim, Placed(self.groups.whole[extent(p, self.dim)])) if is_sharded(p) else self

    def column(self, values: Tensor, ndim: int) -> Tensor:
        """A value for each group -> one for each index, shaped to be broadcast; the last value, where there is none."""
        shape = [1] * ndim
        shape[self.dim] = -1
        return values[self.groups.on(values.device)].view(shape)


class UnitPartition(Partition):
    """Groups at work.

    Args:
        params: {name: parameter} of what is pruned.
        owned: the weights of the groups, of those parameters that have some.
        used: other dimensions, of which a group of zeros leaves nothing to do: what makes a channel that nobody reads.
        places: where groups lie side by side: {name: their numbers}. Reports count them there.
    """

    spans = True

    def __init__(
        self,
        params: Mapping[str, nn.Parameter],
        owned: Mapping[str, Slots],
        used: Mapping[str, Sequence[Slots]],
        places: Mapping[str, Sequence[int]],
    ) -> None:
        self.places = places
        self.number = sum(map(len, places.values()))
        self.shapes = [tuple(p.shape) for p in params.values()]
        self.owned = [owned.get(name) for name in params]
        self.used = [tuple(used.get(name, ())) for name in params]
        self.lead = Placed(_leads(self.owned, self.number))
        self.counts = Placed(sizes(_cuts(self.owned), self.shapes, self.number))
        self._sharding = _common_sharding({name: p for name, p in params.items() if name in owned})
        self._mine = [s and s.part(p) for s, p in zip(self.owned, params.values(), strict=True)]
        self._mine_used = [[s.part(p) for s in used] for used, p in zip(self.used, params.values(), strict=True)]
        self.units = Units(_cuts(self._mine), [local(p).shape for p in params.values()], self.number)
        self.take([1.0] * len(self.shapes))

    def take(self, scales: Sequence[float]) -> None:
        """Compare groups with d times these numbers, one for each parameter: that of the one whose threshold they have.

        They are saved with θ, since they may depend on the weights at the beginning.
        """
        self.scales = list(scales)
        scale = torch.tensor(self.scales, dtype=torch.float64, device="cpu")[self.lead.whole]
        self._per_square = Placed(1 / (self.counts.whole * scale * scale))

    def measure(self, thetas: Sequence[Tensor]) -> None:
        """Take the typical size of the groups that a parameter leads for its scale."""
        mean = self.radii(Pairs(thetas, thetas)).double().square().cpu()
        led = [mean[self.lead.whole == i].mean().sqrt().item() for i in range(len(self.scales))]
        self.take([scale if 0 < scale < math.inf else 1.0 for scale in led])

    @property
    def grain(self) -> int:
        return int(self.counts.whole.max())

    @property
    def mark(self) -> tuple[float, ...]:
        slots = [s and (s.dim, s.groups.whole.tolist()) for s in self.owned]
        return (float(zlib.crc32(repr(slots).encode())),)

    def slots(self, i: int) -> tuple[Slots, ...]:
        """All dimensions of parameter i that lose something when a group dies."""
        owned = self.owned[i]
        return self.used[i] if owned is None else (owned, *self.used[i])

    def radii(self, weights: Pairs) -> Tensor:
        """r of each group, in units of its scale, in double precision."""
        squares = total(self.units.squares(weights), self._sharding)
        return (squares * self._per_square.on(squares.device)).sqrt()

    def means(self, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> list[Tensor]:
        sums = total(self.units.products(xs, ys), self._sharding)
        return self._spread(sums / self.counts.on(sums.device), xs)

    def sizes(self, thetas: Sequence[Tensor]) -> list[Tensor]:
        return self._spread(self.radii(Pairs(thetas, thetas)), thetas)

    def write(self, weights: Pairs, d: Column, p: float) -> None:
        r = self.radii(weights)
        self.units.scale(weights, factor(r, self._thresholds(d, r), p))

    def levels(self, d: Column, like: Sequence[Tensor]) -> list[Tensor | float]:
        found = self._thresholds(d, like[0])
        return [*self._spread(found, like)] if isinstance(found, Tensor) else [found] * len(like)

    def dead(self, ws: Sequence[Tensor]) -> Tensor:
        """Of each group, whether all of it is zero."""
        return self.radii(Pairs(ws, ws)) == 0

    def freed(self, ws: Sequence[Tensor]) -> Iterator[Tensor]:
        """What makes a unit that nobody reads is zero too."""
        dead = self.dead(ws)
        dead = torch.cat([dead, dead.new_zeros(1)])
        for w, used in zip(ws, self._mine_used, strict=True):
            for slots in used:
                w = torch.where(slots.column(dead, w.ndim), 0.0, w)
            yield w

    def _thresholds(self, d: Column, like: Tensor) -> Tensor | float:
        """d of each group; one number, if it is the same for all."""
        if not isinstance(d, Tensor) and all(x == d[0] for x in d):
            return d[0]
        return on_device(d, like.device)[self.lead.on(like.device)]  # type: ignore[arg-type]

    def _spread(self, values: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
        """A value for each group -> one for each weight, NaN where it has none."""
        values = torch.cat([values, values.new_full((1,), torch.nan)])
        return [
            (values[-1] if slots is None else slots.column(values, x.ndim)).expand(x.shape)
            for x, slots in zip(like, self._mine, strict=True)
        ]


def _nobody(label: Hashable, name: str, dim: int, p: Tensor) -> Tensor:
    if not 0 <= dim < p.ndim:
        raise ArgumentError(f"Group {label!r} names dimension {dim} of {name}, whose shape is {tuple(p.shape)}.")
    return torch.full((p.shape[dim],), -1, dtype=torch.int64, device="cpu")


def _leads(owned: Sequence[Slots | None], number: int) -> Tensor:
    """The parameter whose threshold a group has: the first that it has weights of."""
    lead = torch.zeros(number, dtype=torch.int64, device="cpu")
    for i, slots in reversed(list(enumerate(owned))):
        if slots is not None:
            lead[slots.groups.whole[slots.groups.whole >= 0]] = i
    return lead


def _cuts(slots: Sequence[Slots | None]) -> list[Owned | None]:
    """As kernels take them."""
    return [None if s is None else Owned(s.dim, s.groups.whole) for s in slots]


def _common_sharding(params: Mapping[str, nn.Parameter]) -> Any:
    """How all of them are spread over processes."""
    spreads = {sharding(p) for p in params.values()}
    if len(spreads) > 1:
        raise ArgumentError(
            f"Groups have weights in {listing(params, most=5)}, which are not sharded alike. Shard them over the same "
            "processes along the same dimension, or none of them."
        )
    return spreads.pop()
