"""What the figures of docs/results.md share: axes, colours, accuracy or loss against density."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from results import CHANCE, Outcome, Series, trained_ones
from softprune.training.plots import save as write

Quantity = tuple[str, Callable[[Outcome], float]]  # what it is called on an axis, and how it is got

COLORS = {
    "S-LATS": "C0",
    "STDS": "C1",
    "sine": "C1",
    "LATS": "C2",
    "TargetSparsity, soft": "C3",
    "STR": "C4",
    "STR-GS": "C5",
    "GPO": "C6",
    "linear": "C8",
    "log2": "C9",
    "PGH, β = 0.1": "C2",
    "PGH, β = 1e-5": "C3",
    "PGH, β = 1e-10": "C4",
    "magnitude pruning": "C7",
    "TargetSparsity once: soft, at the end": "C0",
    "TargetSparsity: p = 4, at 75%, calm": "C3",
}
OPEN = {"TargetSparsity, soft": {"marker": "s", "ms": 7, "mfc": "none"}}  # lies upon S-LATS


ACCURACY: Quantity = ("accuracy (%)", lambda run: 100 * run.accuracy)
LOSS: Quantity = ("validation loss (nats a byte)", lambda run: run.loss)


def frontier(
    axes: Axes, methods: dict[str, Series], dense: Sequence[Outcome] = (), quantity: Quantity = ACCURACY
) -> None:
    """Accuracy against density, both as means, with the deviation of the accuracy; runs at chance are left out."""
    name_of_value, value = quantity
    for name, series in methods.items():
        points = [good for runs in series.points.values() if (good := trained_ones(runs))]
        lost = sum(map(len, series.points.values())) - sum(map(len, points))
        if points:
            axes.errorbar(
                [100 * (1 - statistics.fmean(run.sparsity for run in runs)) for runs in points],
                [statistics.fmean(map(value, runs)) for runs in points],
                [statistics.stdev(map(value, runs)) if len(runs) > 1 else 0 for runs in points],
                color=COLORS.get(name),
                capsize=2,
                label=name + (f" (without {lost} at {CHANCE:.0%})" if lost else ""),
                **{"marker": "o", "ms": 4, **OPEN.get(name, {})},
            )
    if dense:
        axes.axhline(statistics.fmean(map(value, dense)), color="black", lw=0.8, ls="--", label="dense")
    axes.set(xscale="log", xlabel="weights left (%)", ylabel=name_of_value)
    ticks = LogLocator(subs=(1, 1.5, 2, 3, 5, 7))
    axes.xaxis.set(major_locator=ticks, minor_locator=NullLocator(), major_formatter="{x:g}")
    axes.invert_xaxis()
    legend(axes)


def percents(curve: tuple[list[float], list[float]]) -> tuple[list[float], list[float]]:
    return curve[0], [100 * share for share in curve[1]]


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
