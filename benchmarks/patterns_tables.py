"""Tables and a picture of what `benchmarks/patterns.py` and `benchmarks/filter_rivals.py` ran.

python benchmarks/patterns_tables.py            # reads docs/data/patterns, writes docs/guides/patterns.md
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import filter_rivals
from drawing import plots, save
from pages import DOCS, IMAGES, fill
from patterns import MULTIPLICATIONS, SETTINGS, TABLES, WEIGHTS
from results import Results
from softprune.report.markdown import table

PAGE = DOCS / "guides" / "patterns.md"
NETWORKS = {"cifar10": "ResNet-18", "mobilenet_cifar10": "MobileNet-V1"}
RIVALS = {"l1": "filters by L1 norm (Torch-Pruning)", "lasso": "group lasso (Torch-Pruning)"}
Runs = dict[str, list[float]]  # {target: the accuracy of each seed, in percent}


def accuracies(results: Results, recipe: str, **settings: str) -> Runs:
    family, method = recipe.split("/")
    settings |= dict(setting.split("=") for setting in SETTINGS.split())
    series = results.series(method, "target", family, epochs="15", **settings)
    return {f"{target:g}": [100 * run.accuracy for run in runs] for target, runs in series.points.items()}


def rival(kind: str, rows: Sequence[filter_rivals.Row]) -> Runs:
    """With the learning rate that all seeds were fine-tuned with; for the first seed the other rates do no better by
    more than seeds differ."""
    found: Runs = {}
    for row in rows:
        if row["rival"] == kind and float(row["lr"]) == filter_rivals.SHARED:
            found.setdefault(f"{float(row['target']):g}", []).append(100 * float(row["accuracy"]))
    return found


def text(runs: Sequence[float]) -> str:
    if len(runs) < 2:
        return "".join(f"{run:.2f}" for run in runs)
    return f"{statistics.fmean(runs):.2f} ± {statistics.stdev(runs):.2f}"


def first_row(whole: Sequence[float], targets: Sequence[str]) -> list[str]:
    return ["dense", text(whole), *[""] * (len(targets) - 1)]


def rows_of(methods: Mapping[str, Runs], targets: Sequence[str]) -> list[list[str]]:
    return [[name, *(text(runs.get(target, [])) for target in targets)] for name, runs in methods.items()]


def percents(targets: Sequence[str]) -> list[str]:
    return [f"{100 * float(target):g}%" for target in targets]


def channels(results: Results, rivals: Sequence[filter_rivals.Row]) -> dict[str, Runs]:
    """By multiplications removed."""
    return {
        "zeros anywhere": accuracies(results, "cifar10/target", count="multiplications"),
        "**channels**": accuracies(results, "cifar10/channels"),
        **{name: rival(kind, rivals) for kind, name in RIVALS.items()},
    }


def blocks(results: Results, family: str) -> dict[str, Runs]:
    """By weights that are zero."""
    return {
        "zeros anywhere": accuracies(results, f"{family}/target"),
        "**blocks of 1 × 4**": accuracies(results, f"{family}/block4"),
    }


def dense(results: Results, family: str) -> list[float]:
    return [100 * run.accuracy for run in results.dense(family, epochs="15")]


def draw(methods: Mapping[str, Runs], whole: Sequence[float], images: Path) -> None:
    figure, (axes,) = plots(1)
    for name, runs in methods.items():
        x = [100 * (1 - float(target)) for target in runs]
        deviations = [statistics.stdev(run) if len(run) > 1 else 0.0 for run in runs.values()]
        axes.errorbar(
            x,
            list(map(statistics.fmean, runs.values())),
            deviations,
            marker="o",
            ms=4,
            capsize=2,
            label=name.strip("*"),
        )
    axes.axhline(statistics.fmean(whole), color="C7", lw=0.8, ls="--", label="dense")
    axes.set(title="ResNet-18, CIFAR-10", xlabel="multiplications left (%)", ylabel="accuracy (%)")
    axes.legend(frameon=False, fontsize=8)
    save(figure, "patterns", images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--images", type=Path, default=IMAGES)
    parser.add_argument("--pages", type=Path, nargs="+", default=[PAGE])
    options = parser.parse_args()
    results = Results(options.tables)
    by_multiplications = channels(results, filter_rivals.read(options.tables / "rivals.csv"))
    whole = {family: dense(results, family) for family in NETWORKS}
    draw(by_multiplications, whole["cifar10"], options.images)
    equal = [
        [network, *row]
        for family, network in NETWORKS.items()
        for row in [first_row(whole[family], WEIGHTS), *rows_of(blocks(results, family), WEIGHTS)]
    ]
    fill(
        options.pages,
        {
            "patterns channels": table(
                ["accuracy (%), multiplications removed", *percents(MULTIPLICATIONS)],
                [first_row(whole["cifar10"], MULTIPLICATIONS), *rows_of(by_multiplications, MULTIPLICATIONS)],
            ),
            "patterns blocks": table(["network", "accuracy (%), weights zero", *percents(WEIGHTS)], equal, words=2),
        },
    )


if __name__ == "__main__":
    main()
