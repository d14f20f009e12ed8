"""Which of several calls is the fastest: turn by turn, in CPU time, since the machine may have other things to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

ROUNDS = 5


def fastest(calls: Sequence[Callable[[], Any]], rounds: int = ROUNDS) -> list[float]:
    """The least CPU time of each in seconds, after one call that does not count.

    >>> quick, slow = fastest([lambda: None, lambda: sum(range(10_000))])
    >>> quick < slow
    True
    """
    for call in calls:
        call()
    least = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            begin = time.process_time()
            call()
            least[i] = min(least[i], time.process_time() - begin)
    return least
