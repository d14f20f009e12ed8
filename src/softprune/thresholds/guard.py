"""No layer collapses by accident: ``min_density`` of every parameter stays."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence

import torch

from softprune.errors import ArgumentError, listing
from softprune.thresholds.base import Weights
from softprune.thresholds.quantile import Cell, quantiles, survivors

RISK = 20.0  # times ``min_density``: a layer this thin is guarded. A safeguard, not a measurement


class Guard:
    """Caps on the thresholds of thin parameters: above the cap less than ``min_density`` would be left."""

    def __init__(self, weights: Weights, min_density: float, owner: str) -> None:
        self.weights = weights
        self.min_density = min_density
        self.owner = owner  # the threshold that refusals name
        self.sizes = [p.numel() for p in weights.params]
        self.keep = [math.ceil(min_density * size) for size in self.sizes]
        self.caps = [math.inf] * len(self.sizes)
        self._warned: set[str] = set()

    def refuse_impossible(self, cells: Sequence[Cell]) -> None:
        """A target that ``min_density`` does not allow."""
        for cell in cells:
            most = 1 - cell.sum(self.keep) / cell.sum(self.sizes)
            if cell.target > most + 1e-12:
                where = "" if len(cells) == 1 else f" of {self.weights.names[cell.members[0]]}"
                raise ArgumentError(
                    f"`{self.owner}` cannot reach {cell.target:.4%}{where} where min_density = "
                    f"{self.min_density:g} leaves at most {most:.4%}. Lower the target or `min_density`; "
                    "0 lets whole layers go."
                )
        if not self.weights.prox.separable and not self.weights.params[0].is_meta:  # a rehearsal has no weights
            self._refuse_what_never_dies(cells)

    def _refuse_what_never_dies(self, cells: Sequence[Cell]) -> None:
        """A target that the prox does not allow, under which weights of infinite size stay, or whole blocks where
        ``min_density`` asks for a part of one."""
        caps = self._found(range(len(self.sizes)))
        stays = survivors(self.weights, [min(cap, torch.finfo(torch.float32).max) for cap in caps])
        for cell in cells:
            most = 1 - cell.sum(stays) / cell.sum(self.sizes)
            if cell.target > most + 1e-12:
                dense = [i for i in cell.members if stays[i] > (1 - cell.target) * self.sizes[i] + 1e-9]
                names = listing([self.weights.names[i] for i in dense], most=5)
                raise ArgumentError(
                    f"`{self.owner}` cannot reach {cell.target:.4%} where {self.weights.prox} with min_density = "
                    f"{self.min_density:g} leaves at most {most:.4%}. Lower the target, or do not prune what it leaves "
                    f"denser than that: {names}."
                )

    def watch(self, alive: Sequence[int]) -> None:
        """Cap those parameters that are thin by now, given how many weights of each survive."""
        thin = [i for i, (n, keep) in enumerate(zip(alive, self.keep, strict=True)) if n < RISK * keep]
        self.caps[:] = self._found(thin)

    def watch_all(self) -> None:
        self.caps[:] = self._found(range(len(self.sizes)))

    def _found(self, watched: Iterable[int]) -> list[float]:
        """The caps of these parameters now; the others have none."""
        caps = [math.inf] * len(self.sizes)
        watched = [i for i in watched if self.keep[i] > 0]
        cells = [Cell((i,), (1.0,), (self.sizes[i] - self.keep[i] + 1) / self.sizes[i]) for i in watched]
        for i, least in zip(watched, quantiles(self.weights, cells) if cells else (), strict=True):
            separable = self.weights.prox.separable  # the sizes of groups are of single precision
            caps[i] = _below(least, self.weights.params[i].dtype if separable else torch.float32)
        return caps

    def warn_of_the_dead(self, alive: Sequence[int]) -> None:
        """Once for each dead layer that ``min_density`` does not protect."""
        names = zip(self.weights.names, alive, self.keep, strict=True)
        if dead := {name for name, n, keep in names if n == keep == 0} - self._warned:
            self._warned |= dead
            warnings.warn(f"Nothing is left of {', '.join(sorted(dead))}.", stacklevel=2)


def _below(value: float, dtype: torch.dtype) -> float:
    """The next number below, as weights of this type have it, so that those of this very value stay."""
    counted = torch.float32 if dtype is torch.float64 else dtype  # quantiles are of single precision
    number = torch.tensor(value, dtype=counted, device="cpu")
    return float(torch.nextafter(number, torch.zeros_like(number)))
