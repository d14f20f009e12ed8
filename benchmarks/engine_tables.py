"""Tables of what `benchmarks/inference.py` and `benchmarks/engine_accuracy.py` measured.

python benchmarks/engine_tables.py            # reads docs/data, writes docs/guides/engine.md, docs/engine_speed.md
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import engine_accuracy
import inference
from engine_accuracy import PRECISIONS
from grid import Job
from inference import Row
from pages import DOCS, fill
from softprune.bench.comparison import REFERENCE
from softprune.report.markdown import table

PAGES = DOCS / "guides" / "engine.md", DOCS / "engine_speed.md"
KINDS = ("int8 1x4", "int8 2x4", "int16 unstructured", "fp32 unstructured")
NETWORKS = {"cifar10": "ResNet-18", "mobilenet_cifar10": "MobileNet-V1"}
PATTERNS = {"dense": "dense", "target": "zeros anywhere", "block4": "blocks of 1 × 4"}


def overview(rows: Sequence[Row]) -> str:
    """One image on one thread: milliseconds, and times faster than OpenVINO's dense int8. A table for each machine."""
    texts = []
    for machine in dict.fromkeys(row.machine for row in rows):
        mine = [row for row in rows if (row.machine, row.batch, row.threads) == (machine, 1, 1)]
        lines = []
        for network in dict.fromkeys(row.network for row in mine):
            cells = {row.candidate: row for row in mine if row.network == network}
            dense = [f"{cells[name].ms:.3g} ms" for name in (REFERENCE.name, inference.BAR)]
            for level in _levels(cells):
                found = [cells.get(f"{kind}, {level}") for kind in KINDS]
                lines.append([f"{network}, {level}", *dense, *(_short(row) for row in found)])
        texts.append(table([machine, REFERENCE.name, inference.BAR, *KINDS], lines))
    return "\n\n".join(texts)


def settings(rows: Sequence[Row]) -> str:
    """Blocks in other batches and on other threads: times faster than OpenVINO's dense int8 at the same."""
    texts = []
    for machine in dict.fromkeys(row.machine for row in rows):
        mine = [row for row in rows if row.machine == machine]
        columns = sorted({(row.batch, row.threads) for row in mine})
        if len(columns) == 1:
            continue
        cells = {(row.network, row.candidate, row.batch, row.threads): row for row in mine}
        lines = [
            [f"{network}, {candidate}", *(_ratio(cells.get((network, candidate, *column))) for column in columns)]
            for network, candidate in dict.fromkeys((row.network, row.candidate) for row in mine)
            if candidate.startswith(KINDS[:2])
        ]
        texts.append(table([machine, *(inference.words(*column) for column in columns)], lines))
    return "\n\n".join(texts)


def speed(rows: Sequence[Row]) -> str:
    """Everything: x torch eager / x OpenVINO's dense int8, by machine, network, batch, threads and sparsity."""
    texts = []
    for setting in dict.fromkeys(row.setting for row in rows):
        cells = {row.candidate: row for row in rows if row.setting == setting}
        levels = _levels(cells)
        kinds = dict.fromkeys(name.partition(", ")[0] for name in cells if ", " in name)
        lines = [[name, row.cell, *[""] * len(levels)] for name, row in cells.items() if ", " not in name]
        lines += [[kind, "", *(_cell(cells.get(f"{kind}, {level}")) for level in levels)] for kind in kinds]
        machine, network, batch, threads = setting
        texts.append(table([f"{network}, {inference.words(batch, threads)}; {machine}", "dense", *levels], lines))
    return "\n\n".join(texts)


def _levels(candidates: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(level for _, _, level in (name.partition(", ") for name in candidates) if level))


def _cell(row: Row | None) -> str:
    return row.cell if row else ""


def _ratio(row: Row | None) -> str:
    return f"{row.x_openvino_int8:.2f}" if row else ""


def _short(row: Row | None) -> str:
    return f"{row.ms:.3g} ms, {row.x_openvino_int8:.2f}" if row else ""


def accuracy(rows: Sequence[engine_accuracy.Row]) -> str:
    """By network, pattern and sparsity: the accuracy and the time of each precision. A table for each machine."""
    texts = []
    for machine in dict.fromkeys(row["machine"] for row in rows):
        here = [row for row in rows if row["machine"] == machine]
        lines = []
        for job in dict.fromkeys(row["job"] for row in here):
            mine = {row["runtime"]: row for row in here if row["job"] == job}
            cells = [f"{100 * float(mine[k]['accuracy']):.2f}, {float(mine[k]['ms']):.2f} ms" for k in PRECISIONS]
            first = mine[PRECISIONS[0]]
            lines.append([*_words(first), f"{float(first['torch ms']):.1f} ms", *cells])
        texts.append(table([f"network, on {machine}", "zeros", "share", "torch", *PRECISIONS], lines, words=3))
    return "\n\n".join(texts)


def points(rows: Sequence[engine_accuracy.Row]) -> str:
    """The fastest first, what nothing beats in both accuracy and time in bold; where rivals were measured."""
    texts = []
    for machine, network in dict.fromkeys((row["machine"], _words(row)[0]) for row in rows):
        here = [row for row in rows if (row["machine"], _words(row)[0]) == (machine, network)]
        if {row["runtime"] for row in here} == set(PRECISIONS):
            continue
        found = [(float(row["ms"]), float(row["accuracy"]), _named(row)) for row in here if _matched(row)]
        dense = next(row for row in here if not _words(row)[2])
        found.append((float(dense["torch ms"]), float(dense["accuracy"]), ("torch fp32", "dense", "")))
        lines, most = [], 0.0
        for ms, right, words in sorted(found, key=lambda point: (point[0], -point[1])):
            mark = "**" if right > most else ""
            most = max(most, right)
            lines.append([f"{mark}{words[0]}{mark}", *words[1:], f"{100 * right:.2f}", f"{ms:.2f}"])
        texts.append(table([f"{network}, {machine}", "zeros", "share", "accuracy (%)", "ms"], lines, words=3))
    return "\n\n".join(texts)


def _matched(row: engine_accuracy.Row) -> bool:
    """Whether a precision suits the pattern: blocks are for int8 alone."""
    return row["runtime"] == "int8" or not Job(row["job"]).recipe.endswith("block4")


def _words(row: engine_accuracy.Row) -> list[str]:
    family, method = Job(row["job"]).recipe.split("/")
    return [NETWORKS[family], PATTERNS[method], f"{float(row['sparsity']):.0%}" if method != "dense" else ""]


def _named(row: engine_accuracy.Row) -> tuple[str, ...]:
    name = f"engine {row['runtime']}" if row["runtime"] in PRECISIONS else row["runtime"]
    return name, *_words(row)[1:]


def tables() -> dict[str, str]:
    """All of them, by their names in pages."""
    with engine_accuracy.ROWS.open(encoding="utf-8") as file:
        accuracies = list(csv.DictReader(file))
    speeds = inference.read(inference.ROWS)
    return {
        "engine overview": overview(speeds),
        "engine settings": settings(speeds),
        "engine speed": speed(speeds),
        "engine accuracy": accuracy(accuracies),
        "engine points": points(accuracies),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=Path, nargs="+", default=PAGES)
    options = parser.parse_args()
    fill(options.pages, tables())


if __name__ == "__main__":
    main()
