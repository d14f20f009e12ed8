"""Places in one workspace for values that live from one moment to another: two that live at once do not overlap."""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True)
class Need:
    """``size`` bytes from moment ``first`` to moment ``last``, both included."""

    size: int
    first: int
    last: int


def arrange(needs: dict[str, Need]) -> tuple[dict[str, int], int]:
    """Offsets, and the size of the workspace: the largest first, each at the lowest place that is free.

    >>> arrange({"a": Need(100, 0, 1), "b": Need(64, 1, 2), "c": Need(100, 2, 3)})
    ({'a': 0, 'c': 0, 'b': 128}, 192)
    """
    placed: list[tuple[int, int, Need]] = []  # begin, end
    offsets: dict[str, int] = {}
    total = 0
    for name, need in sorted(needs.items(), key=lambda item: -item[1].size):
        size = -(-need.size // ALIGNMENT) * ALIGNMENT
        begin = 0
        for start, end, other in sorted(placed, key=lambda item: item[0]):
            if other.last < need.first or need.last < other.first:
                continue
            if begin + size <= start:
                break
            begin = max(begin, end)
        placed.append((begin, begin + size, need))
        offsets[name] = begin
        total = max(total, begin + size)
    return offsets, total
