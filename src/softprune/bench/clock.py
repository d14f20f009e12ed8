"""Times that can be compared: the candidates take turns, and ratios are taken within a round.

A machine is faster in one minute than in the next. Whatever slows down a whole round does not change its ratios; the
median of the rounds forgets those in which something hit one candidate alone. Rounds in which other processes were busy
do not count, if enough others are left: a runtime that hands its work to another thread suffers most from them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from softprune.bench.machine import Others
from softprune.errors import ArgumentError, require, require_whole

_BUSY = 0.1  # of the cores that it runs on, in use by others
_WIDE = 0.1  # half the way between the quartiles, over the median


@dataclass(frozen=True)
class Spread:
    """A median, and the quartiles around it.

    >>> spread = Spread.of([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> spread, f"{spread}", spread.width
    (Spread(low=2.0, median=3.0, high=4.0), '3.00 (2.00-4.00)', 0.3333333333333333)
    """

    low: float
    median: float
    high: float

    @staticmethod
    def of(values: list[float]) -> Spread:
        if len(values) == 1:
            return Spread(*values * 3)
        return Spread(*statistics.quantiles(values, n=4, method="inclusive"))

    @property
    def width(self) -> float:
        return (self.high - self.low) / (2 * self.median)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


@dataclass(frozen=True)
class Timings:
    """Seconds of one call, for each candidate and round.

    Args:
        seconds: by the candidate's name, one number for each round that counts.
        others: how many of the cores that it ran on other processes used in these rounds; None where that is not
            known.

    >>> times = Timings({"slow": [4.0, 8.0, 4.0], "fast": [2.0, 4.0, 1.0]})
    >>> times.typical("slow"), times.faster("fast", than="slow").median
    (4.0, 2.0)
    """

    seconds: Mapping[str, list[float]]
    others: float | None = None

    def typical(self, name: str) -> float:
        """The median of a candidate's seconds."""
        return statistics.median(self.seconds[name])

    def faster(self, name: str, *, than: str) -> Spread:
        """How many times faster a candidate is than another, round by round."""
        pairs = zip(self.seconds[name], self.seconds[than], strict=True)
        return Spread.of([other / mine for mine, other in pairs])

    def noise(self) -> str | None:
        """What to know before the numbers are believed; None if the machine was quiet."""
        first = next(iter(self.seconds))
        wide = [name for name in self.seconds if self.faster(name, than=first).width > _WIDE]
        told = []
        if self.others is not None and self.others > _BUSY:
            told.append(f"other processes used {self.others:.1f} of its cores meanwhile")
        if wide:
            told.append(f"ratios of {', '.join(wide)} vary by more than {_WIDE:.0%} from round to round")
        return f"The machine was noisy: {'; '.join(told)}." if told else None


def interleave(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    turn: float = 0.05,
    clock: Callable[[], float] = time.perf_counter,
) -> Timings:
    """Time all candidates in one run.

    In each round every candidate has a turn: one call that is not counted, which brings its weights back into the
    caches and wakes its threads, then calls for ``turn`` seconds, at least one. Each round begins with another one.

    Args:
        candidates: what to call, by name.
        rounds: how many, after one to warm up.
        turn: seconds.
        clock: ``time.process_time`` counts this process alone, on a machine that others use; with one thread only,
            since threads that wait for others may count too.
    """
    if not candidates:
        raise ArgumentError("`interleave(candidates)` must hold at least one candidate.")
    require_whole("interleave", "rounds", rounds, least=1)
    require("interleave", "turn", turn, ">= 0", lambda x: x >= 0)
    names = list(candidates)
    calls = {name: _calls(candidates[name], turn) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    busy: list[float | None] = []
    for number in range(rounds):
        others, first = Others(), number % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(_seconds(candidates[name], calls[name], clock))
        busy.append(others.cores())
    return _counted(Timings(seconds), busy)


def _counted(times: Timings, busy: list[float | None]) -> Timings:
    """The quiet rounds, if they are a third of all and at least three; else all of them."""
    known = {number: cores for number, cores in enumerate(busy) if cores is not None}
    quiet = [number for number, cores in known.items() if cores <= _BUSY]
    if not known:
        return times
    kept = quiet if len(quiet) >= max(3, len(busy) / 3) else list(known)
    seconds = {name: [numbers[number] for number in kept] for name, numbers in times.seconds.items()}
    return Timings(seconds, statistics.fmean(known[number] for number in kept))


def _calls(candidate: Callable[[], object], turn: float) -> int:
    """How many fill a turn; this is the round to warm up."""
    for _ in range(2):
        candidate()
    return max(1, round(turn / max(_seconds(candidate, 1, time.perf_counter), 1e-9)))


def _seconds(candidate: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    """Of one call."""
    candidate()
    start = clock()
    for _ in range(calls):
        candidate()
    return (clock() - start) / calls
