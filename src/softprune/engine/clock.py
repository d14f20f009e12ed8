"""Which of several calls is the fastest, turn by turn.

One thread is timed in CPU time, since the machine may have other things to do. With several, CPU time tells little:
those that wait may count as much as the one that works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

ROUNDS = 5


def fastest(calls: Sequence[Callable[[], Any]], rounds: int = ROUNDS, threads: int = 1) -> list[float]:
    """The least time of each in seconds, after one call that does not count.

    >>> quick, slow = fastest([lambda: None, lambda: sum(range(10_000))])
    >>> quick < slow
    True
    >>> nap = lambda: time.sleep(0.01)
    >>> fastest([nap], threads=2)[0] > 0.01 > fastest([nap])[0]
    True
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    for call in calls:
        call()
    least = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            begin = clock()
            call()
            least[i] = min(least[i], clock() - begin)
    return least
