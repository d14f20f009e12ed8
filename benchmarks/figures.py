"""Tables and figures of docs/results.md and README.md, from the runs that `benchmarks/findings.py` made.

    python benchmarks/figures.py            # reads docs/data/findings, draws docs/images/findings-*.png

In both, what stands between `<!-- NAME -->` and `<!-- end -->` is replaced by the table of that name.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from findings import DECAYS, FINALS, SPIKING_EPOCHS, STARTS, TABLES
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator
from results import LEVELS, Results, Series, accuracies, at_equal_sparsity, side_by_side, sparsities
from scipy.stats import spearmanr
from summary import percent

import softprune as sp
from softprune import models
from softprune.markdown import table
from softprune.training.plots import save as write

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [DOCS / "results.md", DOCS.parent / "README.md"]
STDS = {"slats": "S-LATS", "sine": "sine"}
TRAINED = {"str": "STR", "str-gs": "STR-GS", "gpo": "GPO"}


def frontier(axes: Axes, methods: dict[str, Series]) -> None:
    """Accuracy against density, both as means, with the deviation of the accuracy."""
    for name, series in methods.items():
        points = [runs for runs in series.points.values() if runs]
        if points:
            axes.errorbar(
                [100 * (1 - statistics.fmean(run.sparsity for run in runs)) for runs in points],
                [100 * statistics.fmean(run.accuracy for run in runs) for runs in points],
                [100 * statistics.stdev(r.accuracy for r in runs) if len(runs) > 1 else 0 for runs in points],
                marker="o",
                ms=4,
                capsize=2,
                label=name,
            )
    axes.set(xscale="log", xlabel="weights left (%)", ylabel="accuracy (%)")
    axes.xaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), minor_locator=NullLocator(), major_formatter="{x:g}")
    axes.invert_xaxis()
    legend(axes)


def legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)


def plots(count: int) -> tuple[plt.Figure, list[Axes]]:
    figure, axes = plt.subplots(1, count, figsize=(5.2 * count, 3.8), layout="constrained", squeeze=False)
    for one in axes[0]:
        one.spines[["top", "right"]].set_visible(False)
    return figure, list(axes[0])


def save(figure: plt.Figure, name: str, images: Path) -> None:
    write(figure, images / f"findings-{name}.png")


# -- the findings -----------------------------------------------------------------------------------------------------


def overview(results: Results, images: Path) -> str:
    """The README's picture and table: every method, and targets that are met."""
    targets = results.targets()
    methods = {"TargetSparsity": targets}
    methods |= {
        name: results.series(method, "final")
        for method, name in {"slats": "S-LATS", "lats": "LATS", "sine": "STDS"}.items()
    }
    methods |= {name: results.series(method, "threshold_decay") for method, name in TRAINED.items()}
    methods = {name: series for name, series in methods.items() if any(series.at(level) for level in LEVELS)}
    figure, (left, right) = plots(2)
    frontier(left, methods)
    dense = [run.accuracy for run in results.dense()]
    left.axhline(100 * statistics.fmean(dense), color="black", lw=0.8, ls="--")
    left.set_title("ResNet-18 on CIFAR-10; dashed: dense")
    for final, runs in targets.points.items():
        epochs, shares = results.curve(targets.first(final), "sparsity")
        right.plot(epochs, [100 * share for share in shares], label=f"target {runs[0].sparsity:.1%}")
    right.set(title="asked for, and met", xlabel="epoch", ylabel="sparsity (%)")
    legend(right)
    save(figure, "overview", images)
    return at_equal_sparsity(methods) + f"\n\nDense: {percent(dense)}."


def lats(results: Results, images: Path) -> str:
    methods = {"LATS": results.series("lats", "final"), "S-LATS": results.series("slats", "final")}
    return side_by_side("D", methods)


def target(results: Results, images: Path) -> str:
    """Also the trajectory of one run."""
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
            (line,) = one.plot(*results.curve(targets.first(final), field), label=f"target {runs[0].sparsity:.1%}")
            one.plot(*results.curve(slats.first(final), field), color=line.get_color(), ls=":", lw=1)
    for one, title in zip(axes, ("sparsity", "threshold d", "penalty μ; dotted: S-LATS"), strict=True):
        one.set(title=title, xlabel="epoch")
    solid = [max(line.get_ydata(), default=0.0) for line in axes[2].lines if line.get_linestyle() == "-"]
    axes[2].set_ylim(-0.3 * max(solid, default=1.0), 1.1 * max(solid, default=1.0))
    legend(axes[0])
    save(figure, "target", images)
    head = ["sparsity", "S-LATS: accuracy", "TargetSparsity: accuracy", "spread of its μ", "d in the last 5% of steps"]
    return table(head, rows)


def schedules(results: Results, images: Path) -> str:
    names = {"slats": "S-LATS", "sine": "sine", "linear": "linear", "log2": "log2"}
    methods = {name: results.series(method, "final", weight_decay="0") for method, name in names.items()}
    figure, (left, right) = plots(2)
    frontier(left, methods)
    left.set_title("without weight decay")
    steps = 1000
    cosine = [0.5 + 0.5 * math.cos(math.pi * t / steps) for t in range(steps)]
    for name, kind in zip(names.values(), (sp.SLATS, sp.Sine, sp.Linear, sp.Log2), strict=True):
        right.plot([steps * mu for mu in sp.implied_penalty(kind(1.0, steps), cosine)], label=name)
    right.set(title="implied penalty under cosine annealing", xlabel="step", yscale="log", ylim=(0.5, 300))
    legend(right)
    save(figure, "schedules", images)
    return at_equal_sparsity(methods, (0.86, 0.9, 0.93, 0.95))


def pgh(results: Results, images: Path) -> str:
    methods = {"S-LATS": results.series("slats", "final")}
    methods |= {f"PGH, β = {beta}": results.series(f"pgh-{beta}", "final") for beta in ("0.1", "1e-5", "1e-10")}
    figure, (left, right) = plots(2)
    frontier(left, methods)
    for name, series in methods.items():
        right.plot(*results.curve(series.first(FINALS[2]), "sparsity"), label=name)
    right.set(title=f"sparsity, D = {FINALS[2]}", xlabel="epoch")
    legend(right)
    save(figure, "pgh", images)
    return at_equal_sparsity(methods)


def init(results: Results, images: Path) -> str:
    torch.manual_seed(0)
    largest = [p.detach().abs().max() for p in sp.select(models.build("resnet18_cifar", 10, 3)).values()]
    rows = []
    for D, runs in results.series("pgh-0", "final").points.items():
        erased = (sum(int(top <= D) for top in largest), statistics.fmean(run.zeroed for run in runs))
        rows.append(
            [f"{D:g}", f"{erased[0]} of {len(largest)}", f"{erased[1]:.1f}", accuracies(runs), sparsities(runs)]
        )
    return table(["D", "layers erased at the start", "at the end", "accuracy", "sparsity"], rows)


def trained(results: Results, images: Path) -> str:
    methods = {"S-LATS": results.series("slats", "final"), "STDS (sine)": results.series("sine", "final")}
    methods |= {name: results.series(method, "threshold_decay") for method, name in TRAINED.items()}
    figure, (left, middle, right) = plots(3)
    frontier(left, methods)
    starts = results.series("str", "init", threshold_decay="0.0005")
    for init in STARTS[1::4]:
        middle.plot(*results.curve(starts.first(init), "pull"), label=f"STR, λ = 5e-4, s = {init:g} at the start")
    middle.plot(*results.curve(methods["STR"].first(DECAYS[2]), "pull"), label=f"STR, λ = {DECAYS[2]:g}, s = -20")
    right.plot(*results.curve(methods["GPO"].first(DECAYS[2]), "k"))
    middle.set(title="|∂L/∂s| over λ·|s|", xlabel="epoch", yscale="log", ylim=(1e-4, 10))
    middle.axhline(1, color="black", lw=0.8, ls="--")
    legend(middle)
    right.set(title="k of GPO", xlabel="epoch", yscale="log")
    save(figure, "trained", images)
    return at_equal_sparsity(methods)


def batch(results: Results, images: Path) -> str:
    sizes = {"256": {"batch": "256", "lr": "0.28"}, "512": {}, "1024": {"batch": "1024", "lr": "0.56"}}
    levels = (0.95, 0.98)
    rows = []
    for size, settings in sizes.items():
        series = results.series("slats", "final", **settings)
        rows.append([size, accuracies(results.dense(**settings)), *(percent(series.at(level)) for level in levels)])
    return table(["batch", "dense", *(f"S-LATS at {level:.0%}" for level in levels)], rows)


def warmup(results: Results, images: Path) -> str:
    methods = {
        "S-LATS, ignoring it": results.series("slats", "final", warmup="10"),
        "LATS, following it": results.series("lats", "final", warmup="10"),
    }
    return side_by_side("D", methods)


def mobilenet(results: Results, images: Path) -> str:
    network = {"network": "mobilenet_v1_cifar"}
    rows = [["dense", accuracies(results.dense(**network)), "0"]]
    for method, name, key in (("slats", "S-LATS", "final"), ("str", "STR", "threshold_decay")):
        for value, runs in results.series(method, key, **network).points.items():
            rows.append([f"{name}, {key} {value:g}", accuracies(runs), sparsities(runs)])
    return table(["method", "accuracy", "sparsity"], rows)


def spiking(results: Results, images: Path) -> str:
    """Accuracy, firing rate and synaptic operations against sparsity."""
    names = ("firing rate", "synaptic operations", "energy (nJ)")
    groups = {"dense": {0.0: results.dense("sew_cifar10", epochs=str(SPIKING_EPOCHS))}}
    groups |= {
        name: results.series(method, "final", "sew_cifar10", epochs=str(SPIKING_EPOCHS)).points
        for method, name in STDS.items()
    }
    figure, axes = plots(3)
    rows = []
    for name, points in groups.items():
        means = []
        for D, runs in points.items():
            numbers = [results.numbers(run.job) for run in runs]
            if not numbers:
                continue
            means.append([statistics.fmean(float(row[key]) for row in numbers) for key in ("sparsity", *names)])
            label = f"{name}, D = {D:g}" if D else name
            rows.append([label, accuracies(runs), sparsities(runs), f"{means[-1][1]:.2%}", f"{means[-1][2]:,.0f}"])
        for one, what in zip(axes[1:], (1, 2), strict=True):
            one.plot([100 * mean[0] for mean in means], [mean[what] for mean in means], marker="o", ms=4, label=name)
            one.set(xlabel="sparsity (%)", ylabel=names[what - 1], ylim=(0, None))
    frontier(axes[0], {name: Series(points) for name, points in groups.items() if name != "dense"})
    save(figure, "spiking", images)
    return table(["network", "accuracy", "sparsity", "firing rate", "synaptic operations an image"], rows)


def layers(results: Results, images: Path) -> str:
    """Sparsity stage by stage, beside the paper's ResNet-50 at about the same overall sparsity."""
    paper = sp.budgets("resnet50", 0.5)
    with torch.device("meta"):
        sizes = {name: p.numel() for name, p in sp.select(models.build("resnet50", 1000, 3)).items()}
    theirs = stages(
        (f"{name}.weight", share * sizes[f"{name}.weight"], sizes[f"{name}.weight"]) for name, share in paper.items()
    )
    first = results.series("slats", "final").first(FINALS[1])
    mine = stages(
        (row["layer"], int(row["zeros"]), int(row["parameters"])) for row in results.tables.layers(first or "")
    )
    rows = [[stage, f"{100 * share:.1f}", f"{100 * theirs[stage]:.1f}"] for stage, share in mine.items()]
    ranks = [
        spearmanr([mine[stage] for stage in chosen], [theirs[stage] for stage in chosen]).statistic
        for chosen in (list(mine), list(mine)[:-1])
    ]
    text = f"Rank correlation: {ranks[0]:.2f}; without fc: {ranks[1]:.2f}."
    return table(["zeros (%)", "here", "the paper's ResNet-50"], rows) + "\n\n" + text


def stages(layers: Iterable[tuple[str, float, int]]) -> dict[str, float]:
    """(layer, zeros, weights) -> the share of zeros of each stage."""
    sums: dict[str, list[float]] = {}
    for name, zeros, count in layers:
        total = sums.setdefault(name.split(".")[0], [0.0, 0.0])
        total[0] += zeros
        total[1] += count
    return {stage: zeros / count for stage, (zeros, count) in sums.items()}


FINDINGS: dict[str, Callable[[Results, Path], str]] = {
    "overview": overview,
    "lats": lats,
    "target": target,
    "schedules": schedules,
    "pgh": pgh,
    "init": init,
    "trained": trained,
    "batch": batch,
    "warmup": warmup,
    "layers": layers,
    "mobilenet": mobilenet,
    "spiking": spiking,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--images", type=Path, default=DOCS / "images")
    parser.add_argument("--pages", type=Path, nargs="+", default=PAGES)
    options = parser.parse_args()
    results = Results(options.tables)
    if not results.outcomes:
        parser.error(f"there are no runs in {options.tables}: `python benchmarks/findings.py` makes them")
    texts = {page: page.read_text() for page in options.pages}
    for name, finding in FINDINGS.items():
        made = finding(results, options.images)
        print(f"\n{name}\n\n{made}")
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        for page, text in texts.items():
            texts[page] = place.sub(lambda match, made=made: f"{match[1]}{made}\n{match[2]}", text)
    for page, text in texts.items():
        page.write_text(text)


if __name__ == "__main__":
    main()
