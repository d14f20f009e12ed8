"""The tables of docs/guides/gpu_patterns.md, from the rows that patterns_gpu.py measures.

python benchmarks/patterns_gpu_tables.py
"""

from __future__ import annotations

import argparse
import csv
import math
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path

from pages import DOCS, fill
from patterns_gpu_candidates import ORDER

ROWS = DOCS / "data" / "patterns_gpu.csv"
PAGE = DOCS / "guides" / "gpu_patterns.md"
WRONG = 0.05  # relative error


@dataclass(frozen=True)
class Row:
    """One line of the file. The ratio is candidate / dense: below 1 is faster."""

    device: str
    torch: str
    dtype: str
    inputs: int
    outputs: int
    tokens: int
    candidate: str
    kept: float
    bar: float
    mode: str
    microseconds: float = math.nan
    ratio: float = math.nan
    low: float = math.nan  # quartiles of the ratio
    high: float = math.nan
    rounds: int = 0
    calls: int = 0
    error: float = math.nan  # |y - masked dense| / |masked dense|
    padded_to: int = 0  # tokens
    setting: str = ""
    failure: str = ""

    @property
    def shape(self) -> tuple[int, int]:
        return self.inputs, self.outputs

    @property
    def faster(self) -> float:
        """Times faster than dense."""
        return 1 / self.ratio


def read(path: Path) -> list[Row]:
    kinds = {"int": int, "float": float, "str": str}
    with path.open(encoding="utf-8", newline="") as file:
        return [Row(**{f.name: kinds[str(f.type)](line[f.name]) for f in fields(Row)}) for line in csv.DictReader(file)]


def cell(row: Row, mark: str = "{}*") -> str:
    """Times faster than dense, marked where the bar is reached."""
    if row.failure:
        return "failed"
    if not row.error < WRONG:
        return "wrong"
    return (mark if row.faster >= row.bar else "{}").format(f"{row.faster:.2f}")


def table(rows: list[Row]) -> str:
    """Times faster than dense, a block for each mode, dtype and shape; an asterisk where the bar is reached."""
    lines = []
    for mode, dtype, shape in dict.fromkeys((r.mode, r.dtype, r.shape) for r in rows):
        block = [r for r in rows if (r.mode, r.dtype, r.shape) == (mode, dtype, shape)]
        tokens = sorted({r.tokens for r in block})
        lines += ["", f"{mode}, {dtype}, {shape[0]} -> {shape[1]}: times faster than dense, by tokens"]
        lines.append(f"{'':26}" + "".join(f"{n:>9}" for n in tokens))
        for name in sorted({r.candidate for r in block}, key=ORDER.index):
            cells = {r.tokens: cell(r) for r in block if r.candidate == name}
            lines.append(f"{name:26}" + "".join(f"{cells.get(n, ''):>9}" for n in tokens))
    failures = dict.fromkeys((r.mode, r.dtype, r.candidate, r.failure) for r in rows if r.failure)
    return "\n".join([*lines, "", *(f"failed: {', '.join(failure)}" for failure in failures)])


def markdown(rows: list[Row], mode: str, dtype: str) -> str:
    """A line for each candidate; a cell has one number for each shape, in bold where the bar is reached."""
    chosen = [r for r in rows if (r.mode, r.dtype) == (mode, dtype)]
    shapes, tokens = (list(dict.fromkeys(found)) for found in ((r.shape for r in chosen), (r.tokens for r in chosen)))
    found = {(r.candidate, r.shape, r.tokens): r for r in chosen}
    lines = ["| tokens | " + " | ".join(map(str, tokens)) + " |", "|---|" + "---:|" * len(tokens)]
    for name in ORDER[1:]:
        if all(found[name, shape, n].failure for shape, n in product(shapes, tokens)):
            cells = ["failed"] * len(tokens)
        else:
            cells = [" / ".join(cell(found[name, shape, n], "**{}**") for shape in shapes) for n in tokens]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--pages", type=Path, nargs="+", default=[PAGE])
    options = parser.parse_args()
    rows = read(options.rows)
    kinds = product(("graph", "eager"), ("bf16", "fp8"))
    fill(options.pages, {f"patterns {mode} {dtype}": markdown(rows, mode, dtype) for mode, dtype in kinds})


if __name__ == "__main__":
    main()
