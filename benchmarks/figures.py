"""Tables and figures of docs/results.md, from the runs that `benchmarks/findings.py` made.

    python benchmarks/figures.py            # reads docs/data/findings, draws docs/images/findings-*.png

A finding that lacks runs stays as it was.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

import softprune as sp
from drawing import COLORS, frontier, legend, percents, plots, save
from findings import DECAYS, FINALS, STARTS, TABLES, missing
from grid import Job
from networks import layers, mobilenet, spiking
from pages import IMAGES, RESULTS, fill
from results import Outcome, Results, accuracies, at_equal_sparsity, side_by_side, sparsities, trained_ones
from softprune.models import resnet18_cifar
from softprune.report.markdown import table
from summary import percent

TRAINED = {"str": "STR", "str-gs": "STR-GS", "gpo": "GPO"}


# -- the findings -----------------------------------------------------------------------------------------------------


def overview(results: Results, images: Path) -> str:
    """Every method, and targets that are met."""
    targets = results.targets()
    methods = {"TargetSparsity, soft": targets}
    methods |= {
        name: results.series(method, "final")
        for method, name in {"slats": "S-LATS", "lats": "LATS", "sine": "STDS"}.items()
    }
    methods |= {name: results.series(method, "threshold_decay") for method, name in TRAINED.items()}
    figure, (left, right) = plots(2)
    frontier(left, methods, results.dense())
    left.set_title("ResNet-18 on CIFAR-10")
    for final, runs in targets.points.items():
        curve = percents(results.curve(targets.first(final), "sparsity"))
        right.plot(*curve, label=f"target {runs[0].sparsity:.1%}")
    right.set(title="TargetSparsity, soft: asked for, and met (seed 0)", xlabel="epoch", ylabel="sparsity (%)")
    legend(right)
    save(figure, "overview", images)
    return at_equal_sparsity(methods) + f"\n\nDense: {accuracies(results.dense())}."


def lats(results: Results, images: Path) -> str:
    methods = {"LATS": results.series("lats", "final"), "S-LATS": results.series("slats", "final")}
    figure, (axes,) = plots(1)
    frontier(axes, methods)
    save(figure, "lats", images)
    return side_by_side("D", methods)


def target(results: Results, images: Path) -> str:
    """Also the trajectories of the first seed."""
    slats, targets = results.series("slats", "final"), results.targets()
    figure, axes = plots(3)
    rows = []
    for final, runs in targets.points.items():
        numbers = [results.numbers(run.job) for run in runs]
        means = [
            statistics.fmean(found) if (found := [float(row[key]) for row in numbers if row[key]]) else 0.0
            for key in ("spread", "landing")
        ]
        beside = slats.points[final]
        rows.append([sparsities(runs), accuracies(beside), accuracies(runs), f"{means[0]:.2f}", f"{means[1]:+.2%}"])
        for one, field in zip(axes, ("sparsity", "threshold", "penalty"), strict=True):
            curves = [results.curve(series.first(final), field) for series in (targets, slats)]
            if field == "sparsity":
                curves = [percents(curve) for curve in curves]
            (line,) = one.plot(*curves[0], label=f"target {runs[0].sparsity:.1%}")
            one.plot(*curves[1], color=line.get_color(), ls=":", lw=1)
    for one, title in zip(axes, ("sparsity (%)", "threshold d", "penalty μ (cut off)"), strict=True):
        one.set(title=f"{title}; dotted: S-LATS; seed 0", xlabel="epoch")
    solid = [max(line.get_ydata(), default=0.0) for line in axes[2].lines if line.get_linestyle() == "-"]
    axes[2].set_ylim(-0.3 * max(solid, default=1.0), 1.1 * max(solid, default=1.0))
    legend(axes[0])
    save(figure, "target", images)
    head = [
        "sparsity",
        "S-LATS: accuracy",
        "TargetSparsity, soft: accuracy",
        "spread of its μ",
        "d in the last 5% of steps",
    ]
    return table(head, rows)


def schedules(results: Results, images: Path) -> str:
    names = {"slats": "S-LATS", "sine": "sine", "linear": "linear", "log2": "log2"}
    methods = {name: results.series(method, "final", weight_decay="0") for method, name in names.items()}
    figure, (left, right) = plots(2)
    frontier(left, methods)
    left.set_title("without weight decay")
    steps = 1000
    cosine = [0.5 + 0.5 * math.cos(math.pi * t / steps) for t in range(steps)]
    constant = 1.0 / sum(cosine)  # of S-LATS with D = 1
    for name, kind in zip(names.values(), (sp.SLATS, sp.Sine, sp.Linear, sp.Log2), strict=True):
        penalties = [mu / constant for mu in sp.implied_penalty(kind(1.0, steps), cosine)]
        right.plot([t / steps for t in range(990)], penalties[:990], color=COLORS[name], label=name)
    right.set(title="implied penalty, that of S-LATS = 1", xlabel="t / T (cosine annealing)", yscale="log")
    right.set_ylim(bottom=0.03)
    legend(right)
    save(figure, "schedules", images)
    return at_equal_sparsity(methods, (0.86, 0.9, 0.93, 0.95))


def pgh(results: Results, images: Path) -> str:
    methods = {"S-LATS": results.series("slats", "final")}
    methods |= {f"PGH, β = {beta}": results.series(f"pgh-{beta}", "final") for beta in ("0.1", "1e-5", "1e-10")}
    figure, (left, right) = plots(2)
    frontier(left, methods)
    for name, series in methods.items():
        curve = percents(results.curve(series.first(FINALS[2]), "sparsity"))
        right.plot(*curve, color=COLORS[name], label=name)
    right.set(title=f"D = {FINALS[2]}, seed 0", xlabel="epoch", ylabel="sparsity (%)")
    legend(right)
    save(figure, "pgh", images)
    return at_equal_sparsity(methods)


def init(results: Results, images: Path) -> str:
    """Accuracy, sparsity and erased layers against D; layer by layer, for the first seed."""
    series = results.series("pgh-0", "final")
    figure, (left, middle, right) = plots(3)
    rows = []
    for D, runs in series.points.items():
        erased = [_erased(run, D) for run in runs], [run.zeroed for run in runs]
        counts = [", ".join(map(str, found)) for found in erased]
        rows.append([f"{D:g}", *counts, accuracies(runs), sparsities(runs)])
        shares = [100 * run.sparsity for run in runs], [100 * run.accuracy for run in runs]
        for one, pair, names in (
            (left, shares, ("sparsity", "accuracy")),
            (middle, erased, ("at the start", "the end")),
        ):
            for values, name, look in zip(pair, names, ({"ms": 8, "mfc": "none"}, {"ms": 4}), strict=True):
                one.plot([D] * len(runs), values, "o", color="C0", **look, label=name if len(rows) == 1 else None)
        first = series.first(D)
        if trained_ones([run for run in runs if run.job == first]):
            rows_of_first = results.tables.layers(first or "")
            zeros = [100 * int(row["zeros"]) / int(row["parameters"]) for row in rows_of_first]
            right.plot(range(1, len(zeros) + 1), zeros, marker="o", ms=4, label=f"D = {D:g}")
    left.set(xlabel="D", ylabel="%", title="each run")
    middle.set(xlabel="D", ylabel="erased layers (of 21)", title="each run")
    right.set(xlabel="layer", ylabel="zeros (%)", title="where it trains, seed 0", xticks=range(1, 22, 4))
    for one in (left, middle, right):
        legend(one)
    save(figure, "init", images)
    return table(["D", "layers erased at the start, by seed", "at the end", "accuracy", "sparsity"], rows)


def _erased(run: Outcome, D: float) -> int:
    """How many layers of the run's initialization have no weight above D."""
    return sum(largest <= D for largest in _largest(int(Job(run.job).changes["seed"])))


@cache
def _largest(seed: int) -> list[float]:
    """Of each layer the largest weight at the start."""
    torch.manual_seed(seed)
    return [float(p.detach().abs().max()) for p in sp.select(resnet18_cifar()).values()]


def trained(results: Results, images: Path) -> str:
    methods = {"S-LATS": results.series("slats", "final"), "STDS": results.series("sine", "final")}
    methods |= {name: results.series(method, "threshold_decay") for method, name in TRAINED.items()}
    figure, (left, middle, right) = plots(3)
    frontier(left, methods)
    starts = results.series("str", "init", threshold_decay="0.0005")
    for init in STARTS[1::4]:
        middle.plot(*results.curve(starts.first(init), "pull"), label=f"STR, λ = 5e-4, s = {init:g} at the start")
    middle.plot(*results.curve(methods["STR"].first(DECAYS[2]), "pull"), label=f"STR, λ = {DECAYS[2]:g}, s = -20")
    right.plot(*results.curve(methods["GPO"].first(DECAYS[2]), "k"))
    middle.set(title="|∂L/∂s| / (λ·|s|), mean over layers, seed 0", xlabel="epoch", yscale="log", ylim=(1e-4, 10))
    middle.axhline(1, color="black", lw=0.8, ls="--")
    legend(middle)
    right.set(title=f"k of GPO, mean over layers, λ = {DECAYS[2]:g}, seed 0", xlabel="epoch", yscale="log")
    save(figure, "trained", images)
    return at_equal_sparsity(methods)


def batch(results: Results, images: Path) -> str:
    sizes = {"256": {"batch": "256", "lr": "0.28"}, "512": {}, "1024": {"batch": "1024", "lr": "0.56"}}
    methods = {size: results.series("slats", "final", **settings) for size, settings in sizes.items()}
    columns = {"dense": [[run.accuracy for run in results.dense(**settings)] for settings in sizes.values()]}
    columns |= {f"S-LATS at {level:.0%}": [series.at(level) for series in methods.values()] for level in (0.95, 0.98)}
    figure, (left, right) = plots(2)
    frontier(left, {f"batch {size}": series for size, series in methods.items()})
    left.set_title("S-LATS")
    for name, column in columns.items():
        means, deviations = ([100 * of(seeds) for seeds in column] for of in (statistics.fmean, statistics.stdev))
        right.errorbar(list(sizes), means, deviations, marker="o", ms=4, capsize=2, label=name)
    right.set(xlabel="batch", ylabel="accuracy (%)")
    legend(right)
    save(figure, "batch", images)
    rows = [[size, *map(percent, cells)] for size, *cells in zip(sizes, *columns.values(), strict=True)]
    return table(["batch", *columns], rows)


def warmup(results: Results, images: Path) -> str:
    methods = {
        "S-LATS, ignoring it": results.series("slats", "final", warmup="10"),
        "LATS, following it": results.series("lats", "final", warmup="10"),
    }
    figure, axes = plots(2)
    for name, series in methods.items():
        job = series.first(FINALS[1])
        axes[0].plot(*results.curve(job, "threshold"), label=name)
        axes[1].plot(*percents(results.curve(job, "sparsity")), label=name)
    axes[0].set(title=f"D = {FINALS[1]}, seed 0", xlabel="epoch", ylabel="threshold d")
    axes[1].set(xlabel="epoch", ylabel="sparsity (%)")
    legend(axes[0])
    save(figure, "warmup", images)
    return side_by_side("D", methods)


FINDINGS: dict[str, tuple[Callable[[Results, Path], str], list[str]]] = {  # and the sections of runs it needs
    "overview": (overview, ["dense", "slats", "target", "lats", "stds", "str", "str-gs", "gpo"]),
    "lats": (lats, ["slats", "lats"]),
    "target": (target, ["slats", "target"]),
    "schedules": (schedules, ["schedules"]),
    "pgh": (pgh, ["slats", "pgh"]),
    "init": (init, ["init"]),
    "trained": (trained, ["slats", "stds", "str", "str-gs", "gpo", "starts"]),
    "batch": (batch, ["dense", "slats", "batch"]),
    "warmup": (warmup, ["warmup"]),
    "layers": (layers, ["slats"]),
    "mobilenet": (mobilenet, ["mobilenet"]),
    "spiking": (spiking, ["spiking"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--images", type=Path, default=IMAGES)
    parser.add_argument("--pages", type=Path, nargs="+", default=[RESULTS])
    options = parser.parse_args()
    results = Results(options.tables)
    for name, (finding, sections) in FINDINGS.items():
        if lacking := [section for section in sections if missing(section, results.tables.runs)]:
            print(f"\n{name} lacks runs: `python benchmarks/findings.py --only {' '.join(lacking)}` makes them")
            continue
        fill(options.pages, {name: finding(results, options.images)})


if __name__ == "__main__":
    main()
