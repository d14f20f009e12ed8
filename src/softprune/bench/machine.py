"""The machine: cores to run on, and how busy others keep them meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from softprune.errors import ArgumentError

_STAT = Path("/proc/stat")  # Linux alone has it
_IDLE = (3, 4)  # its columns: idle, and waiting for a disk
_LOOK = 0.2  # seconds, before cores are chosen


def cores() -> int:
    """Those that this process may use."""
    return len(_allowed()) or os.cpu_count() or 1


def _allowed() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    """torch, and every pool of threads that is made meanwhile, has as many threads, on as many cores: those that are
    least busy."""
    if not 1 <= threads <= cores():
        raise ArgumentError(f"`threads` must be between 1 and {cores()}, the cores of this machine. Got {threads}.")
    before, allowed = torch.get_num_threads(), _allowed()
    torch.set_num_threads(threads)
    if allowed:
        os.sched_setaffinity(0, _idle(allowed, threads) if threads < len(allowed) else allowed)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        if allowed:
            os.sched_setaffinity(0, allowed)


def _idle(allowed: Collection[int], count: int) -> list[int]:
    start = _busy(allowed)
    time.sleep(_LOOK)
    end = _busy(allowed)
    return sorted(allowed, key=lambda core: (end.get(core, 0.0) - start.get(core, 0.0), -core))[:count]


def _busy(chosen: Collection[int]) -> dict[int, float]:
    """Seconds in which each core was busy, with whatever process; nothing where the system does not tell."""
    found = {}
    for line in _STAT.read_text().splitlines() if _STAT.exists() else ():
        name, *ticks = line.split()
        if name[:3] == "cpu" and name[3:].isdecimal() and int(name[3:]) in chosen:
            busy = sum(int(tick) for column, tick in enumerate(ticks[:8]) if column not in _IDLE)
            found[int(name[3:])] = busy / os.sysconf("SC_CLK_TCK")
    return found


class Others:
    """How many of the cores that this process may use others used since it was made; None where the system does not
    tell.

    >>> busy = Others().cores()
    >>> busy is None or busy >= 0
    True
    """

    def __init__(self) -> None:
        self._start = self._now()

    def cores(self) -> float | None:
        busy, mine, seconds = (end - start for end, start in zip(self._now(), self._start, strict=True))
        return max(busy - mine, 0.0) / max(seconds, 1e-3) if _STAT.exists() else None

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds in which these cores were busy, in which they were with this process, and of the clock."""
        return sum(_busy(_allowed()).values()), time.process_time(), time.monotonic()
