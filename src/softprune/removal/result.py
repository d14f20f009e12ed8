"""What a removal gives: the smaller network, and what went."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from softprune.errors import require_whole
from softprune.report.markdown import columns
from softprune.structure import Kind
from softprune.structure.trace import evaluation, run


@dataclass(frozen=True)
class Change:
    """Units that lie side by side, before and after.

    Args:
        name: of the first layer that makes them.
        kind: channels, neurons or heads.
        before: how many there were.
        dead: how many of them were dead.
        after: how many there are.
        reason: why some that were dead stayed; empty if none did.
    """

    name: str
    kind: Kind
    before: int
    dead: int
    after: int
    reason: str = ""


@dataclass(frozen=True)
class Latency:
    """Seconds of one pass, the median of some rounds."""

    before: float
    after: float

    @property
    def speedup(self) -> float:
        return self.before / self.after

    def __str__(self) -> str:
        return f"{1000 * self.before:.2f} ms -> {1000 * self.after:.2f} ms, {self.speedup:.2f} x faster"


@dataclass(frozen=True)
class Shrunk:
    """A smaller network that computes the same.

    Args:
        model: the smaller network, an ordinary module.
        sites: what went, where.
        parameters: how many numbers the model had and has.
        multiplications: by weights, of one sample, before and after.
        unknown: operations that no rule knows; what they touch stayed.
    """

    model: nn.Module
    sites: tuple[Change, ...]
    parameters: tuple[int, int]
    multiplications: tuple[float, float]
    unknown: tuple[str, ...]
    original: nn.Module = field(repr=False)
    example: Any = field(repr=False)

    def latency(self, rounds: int = 20) -> Latency:
        """Time both networks on the example in turn, on this machine, in evaluation mode."""
        require_whole("Shrunk.latency", "rounds", rounds, least=1)
        times: tuple[list[float], list[float]] = ([], [])
        with evaluation(self.original), evaluation(self.model):
            for number in range(rounds + 2):
                for model, seconds in zip((self.original, self.model), times, strict=True):
                    _wait()
                    start = time.perf_counter()
                    run(model, self.example)
                    _wait()
                    if number > 1:  # the first two warm up
                        seconds.append(time.perf_counter() - start)
        return Latency(statistics.median(times[0]), statistics.median(times[1]))

    def __str__(self) -> str:
        rows = [("layer", "kind", "before", "after", "")]
        rows += [
            (change.name, str(change.kind), str(change.before), str(change.after), change.reason)
            for change in self.sites
            if change.after < change.before or change.reason
        ]
        lines = []
        if len(rows) > 1:
            lines += [line.rstrip() for line in columns(rows, numbers=(2, 3))]
        if self.parameters[0] == self.parameters[1]:
            dead = sum(change.dead for change in self.sites)
            lines.append("Nothing is dead: the network stays as it is." if not dead else "Nothing could be removed.")
        else:
            lines.append(_fewer("parameters", *self.parameters))
            lines.append(_fewer("multiplications", *self.multiplications))
        if self.unknown:
            lines.append(f"Left alone, because no rule knows them: what goes through {', '.join(self.unknown)}.")
        return "\n".join(lines)


def _fewer(what: str, before: float, after: float) -> str:
    return f"{what}: {before:,.0f} -> {after:,.0f} ({1 - after / max(before, 1):.1%} fewer)"


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
