"""Tables of what `benchmarks/inference.py` and `benchmarks/engine_accuracy.py` measured.

python benchmarks/engine_tables.py            # reads docs/data, writes docs/guides/engine.md
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import engine_accuracy
import inference
from grid import Job
from inference import Row
from pages import DOCS, fill
from softprune.report.markdown import table

PAGE = DOCS / "guides" / "engine.md"
NETWORKS = {"cifar10": "ResNet-18", "mobilenet_cifar10": "MobileNet-V1"}
PATTERNS = {"dense": "dense", "target": "zeros anywhere", "block4": "blocks of 1 × 4"}


def speed(rows: Sequence[Row]) -> str:
    """× torch eager / × OpenVINO's dense int8, by machine, network, batch, and sparsity."""
    texts = []
    for setting in dict.fromkeys(row.setting for row in rows):
        mine = [row for row in rows if row.setting == setting]
        levels = list(dict.fromkeys(row.candidate.partition(", ")[2] for row in mine if ", " in row.candidate))
        cells = {row.candidate: row for row in mine}
        dense = [name for name in cells if ", " not in name]
        kinds = dict.fromkeys(name.partition(", ")[0] for name in cells if ", " in name)
        lines = [[name, cells[name].cell, *[""] * len(levels)] for name in dense]
        lines += [[kind, "", *(_cell(cells.get(f"{kind}, {level}")) for level in levels)] for kind in kinds]
        machine, network, batch, threads = setting
        words = f"{network}, batch {batch}, {threads} thread{'s' * (threads > 1)}; {machine}"
        texts.append(table([words, "dense", *levels], lines))
    return "\n\n".join(texts)


def _cell(row: Row | None) -> str:
    return row.cell if row else ""


def accuracy(rows: Sequence[engine_accuracy.Row]) -> str:
    """By network, pattern and sparsity: the accuracy and the time of each precision."""
    lines = []
    for job in dict.fromkeys(row["job"] for row in rows):
        mine = {row["precision"]: row for row in rows if row["job"] == job}
        family, method = Job(job).recipe.split("/")
        words = [
            NETWORKS[family],
            PATTERNS[method],
            f"{float(mine['fp32']['sparsity']):.0%}" if method != "dense" else "",
        ]
        cells = [f"{100 * float(r['accuracy']):.2f}, {float(r['ms']):.2f} ms" for r in mine.values()]
        lines.append([*words, f"{float(mine['fp32']['torch ms']):.1f} ms", *cells])
    return table(["network", "zeros", "share", "torch", *engine_accuracy.PRECISIONS], lines, words=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=Path, nargs="+", default=[PAGE])
    options = parser.parse_args()
    with engine_accuracy.ROWS.open(encoding="utf-8") as file:
        accuracies = list(csv.DictReader(file))
    fill(
        options.pages,
        {"engine speed": speed(inference.read(inference.ROWS)), "engine accuracy": accuracy(accuracies)},
    )


if __name__ == "__main__":
    main()
