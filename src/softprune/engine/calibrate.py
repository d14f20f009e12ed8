"""What values a network has on the user's data, and which part of them is worth being told apart.

A range is what 256 grey levels are spread over. Too wide a range makes every level coarse, too narrow a one clips.

    Extremes    from the smallest to the largest value seen
    Percentile  without the share of values that are rarest
    LeastError  where the errors of rounding and of clipping are least together

>>> LeastError()(Seen.of(torch.linspace(0, 1, 1000)))
(0.0, 1.0)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from softprune.engine.graph import Graph
from softprune.engine.run_torch import run
from softprune.errors import ArgumentError, DataError

MOST = 512  # samples are looked at
TOGETHER = 16  # samples run at once
DRAWN = 2**15  # numbers of a value are kept


@dataclass(frozen=True, eq=False)
class Seen:
    """The extremes of a value, and numbers drawn from it at random."""

    low: float
    high: float
    drawn: Tensor

    @classmethod
    def of(cls, value: Tensor) -> Seen:
        flat = (value.permute(0, 2, 3, 1) if value.dim() == 4 else value).reshape(-1)  # a view of channels_last
        draw = torch.Generator().manual_seed(flat.numel())
        few = flat if flat.numel() <= DRAWN else flat[torch.randint(flat.numel(), (DRAWN,), generator=draw)]
        low, high = torch.aminmax(flat) if flat.numel() else (torch.zeros(()), torch.zeros(()))
        return cls(float(low), float(high), few.float())

    def __or__(self, other: Seen) -> Seen:
        """Of two values that share a range, or of one on more data."""
        drawn = torch.cat((self.drawn, other.drawn))
        if len(drawn) > 2 * DRAWN:
            draw = torch.Generator().manual_seed(len(drawn))
            drawn = drawn[torch.randperm(len(drawn), generator=draw)[:DRAWN]]
        return Seen(min(self.low, other.low), max(self.high, other.high), drawn)


class Ranges(Protocol):
    """Chooses a range (low, high), which holds zero."""

    def __call__(self, seen: Seen, /) -> tuple[float, float]: ...


@dataclass(frozen=True)
class Extremes:
    """Nothing is clipped."""

    def __call__(self, seen: Seen) -> tuple[float, float]:
        return min(seen.low, 0.0), max(seen.high, 0.0)


@dataclass(frozen=True)
class Percentile:
    """``share`` of all numbers lie in the range."""

    share: float = 0.9999

    def __call__(self, seen: Seen) -> tuple[float, float]:
        ordered = seen.drawn.sort().values
        outside = round((1 - self.share) * (len(ordered) - 1))
        return min(float(ordered[outside]), 0.0), max(float(ordered[len(ordered) - 1 - outside]), 0.0)


@dataclass(frozen=True)
class LeastError:
    """The least mean of |error|ᵖ, of rounding and clipping together; p = 2 is the mean squared error.

    With p = 3 the few large errors of clipping weigh more than the many small ones of rounding: on small trained
    networks their outputs are nearer to those in floats than with 2.
    """

    power: float = 3

    def __call__(self, seen: Seen) -> tuple[float, float]:
        low, high = Extremes()(seen)
        if high - low <= 0 or not len(seen.drawn):
            return low, high
        share = torch.linspace(1, 0.2, 41).unsqueeze(1)
        scale = (high - low) / 255 * share
        levels = torch.round(seen.drawn / scale)
        levels.clamp_(torch.round(low * share / scale), torch.round(high * share / scale))
        error = levels.mul_(scale).sub_(seen.drawn).abs_().pow_(self.power).mean(1)
        best = float(share[error.argmin()])
        return low * best, high * best


def observe(graph: Graph, data: Any, names: Collection[str]) -> dict[str, Seen]:
    """Values by their names; ``run_torch.before`` names what comes before an activation."""
    seen: dict[str, Seen] = {}

    def look(name: str, value: Tensor) -> None:
        if name in names:
            seen[name] = seen[name] | Seen.of(value) if name in seen else Seen.of(value)

    for inputs in batches(graph, data):
        run(graph, *inputs, see=look)
    for name, found in seen.items():
        if not (abs(found.low) < torch.inf and abs(found.high) < torch.inf):
            raise DataError(f"The calibration data makes `{name}` infinite or NaN. Look for such numbers in the data.")
    return seen


def batches(graph: Graph, data: Any) -> Iterator[tuple[Tensor, ...]]:
    """The inputs of the network in small batches, ``MOST`` samples at most; labels that come with them are left out.

    ``data``: a tensor of samples, a tuple of tensors for several inputs, or an iterable of batches of that kind.
    """
    left = MOST
    for batch in _given(graph, data):
        for start in range(0, min(len(batch[0]), left), graph.batch or TOGETHER):
            part = tuple(_images(x[start : start + (graph.batch or TOGETHER)]) for x in batch)
            if graph.batch in (None, len(part[0])):
                yield part
        left -= len(batch[0])
        if left <= 0:
            return
    if left == MOST:
        raise DataError("There is no calibration data. Give at least one batch, better 64 samples or more.")


def _images(x: Tensor) -> Tensor:
    """Images as torch's convolutions like them best."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _given(graph: Graph, data: Any) -> Iterator[tuple[Tensor, ...]]:
    one = isinstance(data, Tensor | Mapping) or (isinstance(data, tuple) and all(isinstance(x, Tensor) for x in data))
    for batch in (data,) if one else data:
        if isinstance(batch, Mapping):
            missing = [name for name in graph.inputs if name not in batch]
            if missing:
                raise ArgumentError(f"The calibration data has no `{missing[0]}`, an input of the network.")
            batch = [batch[name] for name in graph.inputs]
        inputs = (batch,) if isinstance(batch, Tensor) else tuple(batch)[: len(graph.inputs)]
        _check(graph, inputs)
        yield inputs


def _check(graph: Graph, inputs: Iterable[Any]) -> None:
    inputs = tuple(inputs)
    if len(inputs) != len(graph.inputs) or not all(isinstance(x, Tensor) for x in inputs):
        raise ArgumentError(
            f"A batch of calibration data must hold {len(graph.inputs)} tensors, the inputs of the network. "
            f"Got {', '.join(type(x).__name__ for x in inputs) or 'nothing'}."
        )
    for name, x in zip(graph.inputs, inputs, strict=True):
        want = graph.shapes[name]
        if x.shape[1:] != want[1:]:
            raise DataError(
                f"`{name}` has shape N × {want[1:]} in the example. The calibration data has {x.shape[1:]}."
            )
