"""Tables, for documents and for terminals."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table whose first columns are ``words`` and whose others are numbers.

    >>> print(table(["layer", "zeros"], [["fc", "7"]]))
    | layer | zeros |
    | --- | ---: |
    | fc | 7 |
    """
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def columns(rows: Sequence[Sequence[str]], numbers: Container[int]) -> list[str]:
    """Rows as lines whose columns stand below each other, those of ``numbers`` to the right.

    >>> columns([["layer", "zeros"], ["fc", "7"]], numbers=[1])
    ['layer  zeros', 'fc         7']
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(c.rjust(w) if i in numbers else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]


def aligned(rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """The lines of a table of a head, rows and a total, with rules between, for a terminal.

    >>> print("\\n".join(aligned([["layer", "zeros"], ["fc", "7"], ["total", "7"]])))
    layer  zeros
    ------------
    fc         7
    ------------
    total      7
    """
    lines = columns(rows, range(words, len(rows[0])))
    rule = "-" * len(lines[0])
    return [lines[0], rule, *lines[1:-1], rule, lines[-1]]
