"""Plots of a run, and of several runs against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

import softprune as sp
from softprune.training import history
from softprune.training.files import replacing

_DOT = "."  # for curves of validations, of which there may be only one


def draw(folder: Path, rows: Sequence[history.Row], report: sp.Report, target: float | None) -> None:
    """threshold.png, sparsity.png, layers.png, turnover.png in ``folder``."""
    if history.curve(rows, "threshold"):
        save(_threshold(rows), folder / "threshold.png")
        save(_sparsity(rows, target), folder / "sparsity.png")
        save(_layers(report), folder / "layers.png")
    if turnover := history.curve(rows, "dropped", "regrown"):
        save(_turnover(turnover), folder / "turnover.png")


def frontier(points: Sequence[tuple[str, float, float]], name: str, path: Path) -> None:
    """What is called ``name`` against the weights left; a point is (label, sparsity, value).

    The axis is logarithmic: 98 and 99% sparsity are as far apart as 50 and 75%.
    """
    figure, axes = _one()
    ordered = sorted((max(100 * (1 - sparsity), 1e-3), value, label) for label, sparsity, value in points)
    axes.plot([left for left, _, _ in ordered], [value for _, value, _ in ordered], marker="o")
    for i, (left, value, label) in enumerate(ordered):  # on either side of a falling line, since points may be close
        offset, side = ((5, 5), "left") if i % 2 == 0 else ((-5, -12), "right")
        axes.annotate(label, (left, value), offset, textcoords="offset points", fontsize=8, ha=side)
    axes.margins(0.12, 0.15)
    axes.set(xlabel="weights left (%)", ylabel=name, title=f"{name} against sparsity", xscale="log")
    axes.invert_xaxis()
    few = ordered[-1][0] < 300 * ordered[0][0]  # decades
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if name == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    else:
        axes.set_ylim(bottom=0)
    save(figure, path)


def _threshold(rows: Sequence[history.Row]) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    _line(left, history.curve(rows, "threshold"), "threshold")
    left.set(title="threshold d", xlabel="step")
    penalties = history.curve(rows, "penalty")  # none where the learning rate is 0
    ordered = sorted(row["penalty"] for row in penalties)
    if usual := ordered[len(ordered) // 20 : -len(ordered) // 20 or None]:
        low, high = min(0, 1.25 * usual[0]), 1.25 * usual[-1] or 1
        right.set_ylim(low, high)
        penalties = [row if low <= row["penalty"] <= high else row | {"penalty": math.nan} for row in penalties]
    _line(right, penalties, "penalty")
    right.set(title="implied L1 penalty μ, without outliers", xlabel="step")
    for axes in (left, right):
        _plain(axes)
    return figure


def _sparsity(rows: Sequence[history.Row], target: float | None) -> Figure:
    figure, axes = _one()
    _line(axes, history.curve(rows, "sparsity"), "sparsity", scale=100)
    _line(axes, history.curve(rows, "accuracy"), "accuracy", scale=100, marker=_DOT)
    if target is not None:
        axes.axhline(100 * target, color="black", lw=1, ls="--", label="target")
    axes.set(title="overall sparsity and accuracy (%)", xlabel="step", ylim=(0, 101))
    axes.legend(frameon=False)
    return figure


def _line(axes: Axes, rows: Sequence[dict[str, float]], name: str, scale: float = 1, marker: str = "") -> None:
    axes.plot([row["step"] for row in rows], [scale * row[name] for row in rows], label=name, marker=marker)


def _layers(report: sp.Report) -> Figure:
    names = [layer.name.removesuffix(".weight") for layer in report.layers]
    figure, axes = plt.subplots(figsize=(max(6.0, 0.22 * len(names) + 2), 4), layout="constrained")
    axes.bar(range(len(names)), [100 * layer.sparsity for layer in report.layers], color="tab:blue")
    axes.axhline(100 * report.sparsity, color="black", lw=1, ls="--")
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set(title=f"sparsity by layer (%); overall, the dashed line, {report.sparsity:.1%}", ylim=(0, 101))
    _plain(axes)
    return figure


def _turnover(rows: Sequence[dict[str, float]]) -> Figure:
    figure, axes = _one()
    for name in ("dropped", "regrown"):
        _line(axes, rows, name, marker=_DOT)
    axes.set(title="weights dropped and regrown between validations", xlabel="step", yscale="symlog")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    return figure


def _one() -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write a figure, atomically, and let go of it."""
    with replacing(path) as beside:
        figure.savefig(beside, dpi=120, format="png")
    plt.close(figure)
