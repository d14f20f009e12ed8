"""TargetSparsity against S-LATS with the D that happens to end there: ResNet-18 on CIFAR-10, three seeds.

    python benchmarks/target_cifar10.py --data FOLDER --runs runs.jsonl --csv docs/data/target_cifar10.csv

S-LATS runs first; its achieved sparsity is the target of the run beside it, so that both are compared at one sparsity.
`spread` is the standard deviation of the penalty over its mean between 10% and 90% of training, `last` its mean over
the last 5% in units of that mean. Without --data, the table is made of the runs that there are.
"""

from __future__ import annotations

import csv
import statistics
from itertools import product
from pathlib import Path

import grid
from grid import Job, Rows

FINALS, SEEDS = (0.03, 0.05, 0.14, 0.09), (0, 1, 2)
FIELDS = ("method", "D", "seed", "accuracy", "sparsity", "threshold", "spread", "last")


def jobs(rows: Rows, epochs: int) -> list[Job]:
    """S-LATS, then the same sparsity as a target."""
    found = [
        Job("cifar10/slats", (f"final={D}", f"seed={seed}", f"epochs={epochs}")) for seed, D in product(SEEDS, FINALS)
    ]
    for row in rows:
        if "target" not in row["changes"] and float(row["changes"]["final"]) in FINALS:
            D, seed, target = row["changes"]["final"], row["changes"]["seed"], row["sparsity"]
            found.append(
                Job("cifar10/slats", (f"final={D}", f"target={target:.4f}", f"seed={seed}", f"epochs={epochs}"))
            )
    return found


def tabulate(rows: Rows) -> list[dict[str, object]]:
    values: list[dict[str, object]] = []
    for row in rows:
        penalties = [point["penalty"] for point in row["history"] if "penalty" in point]
        middle = penalties[len(penalties) // 10 : -len(penalties) // 10]
        mean = statistics.fmean(middle)
        values.append(
            {
                "method": "TargetSparsity" if "target" in row["changes"] else "S-LATS",
                "D": float(row["changes"]["final"]),
                "seed": int(row["changes"]["seed"]),
                "accuracy": row["accuracy"],
                "sparsity": row["sparsity"],
                "threshold": max(layer["threshold"] for layer in row["report"]["layers"]),
                "spread": statistics.stdev(middle) / mean,
                "last": statistics.fmean(penalties[-len(penalties) // 20 : -1]) / mean,
            }
        )
    return sorted(values, key=lambda value: (value["D"], value["method"], value["seed"]))


def table(values: list[dict[str, object]]) -> str:
    lines = [
        "| method | D | sparsity | accuracy | spread of μ | μ at the end |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for D, method in product(FINALS, ("S-LATS", "TargetSparsity")):
        group = [value for value in values if value["method"] == method and value["D"] == D]
        if len(group) < 2:
            continue
        mean = {key: statistics.fmean(value[key] for value in group) for key in FIELDS[3:]}
        lines.append(
            f"| {method} | {mean['threshold']:.3f} | {mean['sparsity']:.2%} "
            f"| {mean['accuracy']:.2%} ± {100 * statistics.stdev(value['accuracy'] for value in group):.2f} "
            f"| {mean['spread']:.2f} | {mean['last']:.2f} × |"
        )
    return "\n".join(lines)


def main() -> None:
    options = grid.arguments(__doc__.splitlines()[0])
    if options.data is not None:
        grid.run(lambda rows: jobs(rows, options.epochs), options.data, options.runs, options.processes)
    values = tabulate(grid.read(options.runs))
    print(table(values))
    if options.csv is not None:
        with Path(options.csv).open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(values)


if __name__ == "__main__":
    main()
