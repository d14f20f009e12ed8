"""Findings about networks: the layers of ResNet-18, MobileNet-V1, SEW ResNet-18."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import torch
from scipy.stats import permutation_test, spearmanr

import softprune as sp
from drawing import COLORS, frontier, legend, plots, save
from findings import FINALS, SPIKING_EPOCHS
from results import Outcome, Results, accuracies, at_equal_sparsity, sparsities
from softprune.models import resnet50
from softprune.report.markdown import table

Layers = list[tuple[str, float, int]]  # name, zeros, weights


def layers(results: Results, images: Path) -> str:
    """Sparsity stage by stage, beside the paper's ResNet-50 at about the same overall sparsity."""
    with torch.device("meta"):
        sizes = {name: p.numel() for name, p in sp.select(resnet50()).items()}
    theirs: Layers = [
        (f"{name}.weight", share * sizes[f"{name}.weight"], sizes[f"{name}.weight"])
        for name, share in sp.budgets("resnet50", 0.5).items()
    ]
    first = results.series("slats", "final").first(FINALS[1])
    rows = results.tables.layers(first or "")
    mine: Layers = [(row["layer"], int(row["zeros"]), int(row["parameters"])) for row in rows]
    figure, (axes,) = plots(1)
    for label, found, color in (("ResNet-18, CIFAR-10", mine, "C0"), ("ResNet-50, ImageNet (paper)", theirs, "C1")):
        places = [i / (len(found) - 1) for i in range(len(found))]
        shares = [100 * zeros / count for _, zeros, count in found]
        axes.plot(places, shares, color=color, lw=1, marker="o", ms=4, label=label)
        bridges = [i for i, (name, *_) in enumerate(found) if "downsample" in name]
        axes.plot([places[i] for i in bridges], [shares[i] for i in bridges], "o", ms=7, mfc="none", color=color)
    axes.set(xlabel="depth (first to last layer); circles: downsampling", ylabel="zeros (%)")
    legend(axes)
    save(figure, "layers", images)
    return _stage_table(_stages(mine), _stages(theirs))


def _stage_table(mine: dict[str, float], theirs: dict[str, float]) -> str:
    rows = [[stage, f"{100 * share:.1f}", f"{100 * theirs[stage]:.1f}"] for stage, share in mine.items()]
    texts = [_correlation(mine, theirs, chosen) for chosen in (list(mine), list(mine)[:-1])]
    text = f"Rank correlation: {texts[0]}; without fc: {texts[1]}."
    return table(["zeros (%)", "here", "the paper's ResNet-50"], rows) + "\n\n" + text


def _correlation(mine: dict[str, float], theirs: dict[str, float], stages: list[str]) -> str:
    """Spearman's, with its exact p: among so few, over all permutations."""
    fixed = [theirs[stage] for stage in stages]
    found = permutation_test(
        ([mine[stage] for stage in stages],),
        lambda values: spearmanr(values, fixed).statistic,
        permutation_type="pairings",
        n_resamples=math.factorial(len(stages)),
    )
    return f"{found.statistic:.2f} (p = {found.pvalue:.2f})"


def _stages(layers: Layers) -> dict[str, float]:
    """The share of zeros of each stage."""
    sums: dict[str, list[float]] = {}
    for name, zeros, count in layers:
        total = sums.setdefault(name.split(".")[0], [0.0, 0.0])
        total[0] += zeros
        total[1] += count
    return {stage: zeros / count for stage, (zeros, count) in sums.items()}


def mobilenet(results: Results, images: Path) -> str:
    network = {"network": "mobilenet_v1_cifar"}
    dense = results.dense(**network)
    methods = {
        ("S-LATS", "D"): results.series("slats", "final", **network),
        ("STR", "λ"): results.series("str", "threshold_decay", **network),
    }
    rows = [["dense", accuracies(dense), "0"]]
    for (name, letter), series in methods.items():
        for value, runs in series.points.items():
            rows.append([f"{name}, {letter} = {value:g}", accuracies(runs), sparsities(runs)])
    figure, (axes,) = plots(1)
    frontier(axes, {name: series for (name, _), series in methods.items()}, dense)
    save(figure, "mobilenet", images)
    return table(["method", "accuracy", "sparsity"], rows)


def spiking(results: Results, images: Path) -> str:
    """Accuracy, firing rate and synaptic operations against sparsity."""
    epochs = str(SPIKING_EPOCHS)
    dense = results.dense("sew_cifar10", epochs=epochs)
    methods = {
        "S-LATS": results.series("slats", "final", "sew_cifar10", epochs=epochs),
        "sine": results.series("sine", "final", "sew_cifar10", epochs=epochs),
    }
    groups = [("dense", dense)]
    groups += [(f"{name}, D = {D:g}", runs) for name, series in methods.items() for D, runs in series.points.items()]
    rows = [
        [
            label,
            accuracies(runs),
            sparsities(runs),
            f"{100 * _mean(results, runs, 'firing rate'):.2f}",
            f"{_mean(results, runs, 'synaptic operations') / 1e6:.0f}",
        ]
        for label, runs in groups
    ]
    figure, axes = plots(3)
    frontier(axes[0], methods, dense)
    for one, field, unit, scale in (
        (axes[1], "firing rate", "%", 100),
        (axes[2], "synaptic operations", "millions an image", 1e-6),
    ):
        for name, series in methods.items():
            points = [dense, *series.points.values()]
            shares = [100 * statistics.fmean(run.sparsity for run in runs) for runs in points]
            values = [scale * _mean(results, runs, field) for runs in points]
            one.plot(shares, values, marker="o", ms=4, color=COLORS[name], label=name)
        one.set(xlabel="sparsity (%)", ylabel=f"{field} ({unit})")
        one.set_ylim(0, 1.2 * one.get_ylim()[1])
        legend(one)
    save(figure, "spiking", images)
    head = ["network", "accuracy", "sparsity", "firing rate (%)", "synaptic operations an image (millions)"]
    return table(head, rows) + "\n\n" + at_equal_sparsity(methods, (0.6, 0.9, 0.98))


def _mean(results: Results, runs: list[Outcome], field: str) -> float:
    return statistics.fmean(float(results.numbers(run.job)[field]) for run in runs)
