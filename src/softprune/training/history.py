"""What happened on the way: rows of numbers, one line of JSON each. No torch.

A row of the training curve has step, lr, loss and, where there is a pruner, sparsity, threshold and penalty; one of a
validation has step, accuracy, val_loss, and ``dropped`` and ``regrown``: weights that became zero, and that stopped
being zero, since the validation before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from softprune.training.files import write_text

Row = dict[str, float | None]

_RENAMED = {"left": "dropped", "returned": "regrown"}  # as they were called before November 2026


def read(path: Path) -> list[Row]:
    """The rows that can be read; a damaged line is skipped, and a file that is not there has none."""
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return [row for row in map(_row, lines) if row is not None]


def _row(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # the power went off, or a bit flipped
        return None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int) or not all(map(_number, row.values())):
        return None
    return {_RENAMED.get(str(key), str(key)): value for key, value in row.items()}


def _number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


def last(path: Path) -> Row:
    """What was last written of each number."""
    return {key: value for row in read(path) for key, value in row.items()}


def curve(rows: Iterable[Row], *names: str) -> list[dict[str, float]]:
    """Of the rows that have all these numbers: the numbers."""
    wanted = ("step", *names)
    found = ({name: row[name] for name in wanted if row.get(name) is not None} for row in rows)
    return [row for row in found if len(row) == len(wanted)]  # type: ignore[misc]


class History:
    """Writes rows. When they are due, and what is in them, others decide."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cut(self, step: int) -> None:
        """Forget the rows after ``step``, which an interrupted run wrote after its last checkpoint."""
        kept = [row for row in read(self.path) if (row["step"] or 0) <= step]
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))

    def append(self, row: Mapping[str, float | None]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
