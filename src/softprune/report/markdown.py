"""Tables for documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table whose first columns are ``words`` and whose others are numbers.

    >>> print(table(["layer", "zeros"], [["fc", "7"]]))
    | layer | zeros |
    | --- | ---: |
    | fc | 7 |
    """
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))
