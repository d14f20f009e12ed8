"""Plots of a run, and of several runs against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

import softprune as sp
from softprune.training import history


def draw(folder: Path, report: sp.Report) -> None:
    """threshold.png, sparsity.png, layers.png, turnover.png in the run's plots/."""
    rows = history.read(folder / "history.jsonl")
    (folder / "plots").mkdir(exist_ok=True)
    curve = [row for row in rows if "threshold" in row]
    if curve:
        save(_threshold(curve), folder / "plots" / "threshold.png")
        save(_sparsity(curve, rows), folder / "plots" / "sparsity.png")
        save(_layers(report), folder / "plots" / "layers.png")
    turnover = [row for row in rows if row.get("left") is not None]
    if turnover:
        save(_turnover(turnover), folder / "plots" / "turnover.png")


def frontier(points: Sequence[tuple[str, float, float]], name: str, path: Path) -> None:
    """What is called ``name`` against sparsity: (label, sparsity, value) for each run."""
    figure, axes = _one()
    ordered = sorted(points, key=lambda point: point[1])
    axes.plot([100 * sparsity for _, sparsity, _ in ordered], [value for _, _, value in ordered], marker="o")
    for label, sparsity, value in ordered:
        axes.annotate(label, (100 * sparsity, value), xytext=(4, 5), textcoords="offset points", fontsize=8)
    axes.set(xlabel="sparsity (%)", ylabel=name, title=f"{name} against sparsity")
    if name == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    else:
        axes.set_ylim(bottom=0)
    save(figure, path)


def _threshold(curve: Sequence[dict[str, Any]]) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    steps = [row["step"] for row in curve]
    left.plot(steps, [row["threshold"] for row in curve])
    left.set(title="threshold d", xlabel="step")
    penalties = {row["step"]: row["penalty"] for row in curve if "penalty" in row}  # none where the learning rate is 0
    right.plot(list(penalties), list(penalties.values()))
    right.set(title="implied L1 penalty μ", xlabel="step")
    ordered = sorted(penalties.values())
    if usual := ordered[len(ordered) // 20 : -len(ordered) // 20 or None]:
        right.set_ylim(min(0, 1.25 * usual[0]), 1.25 * usual[-1] or 1)
    for axes in (left, right):
        _plain(axes)
    return figure


def _sparsity(curve: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> Figure:
    figure, axes = _one()
    axes.plot([row["step"] for row in curve], [100 * row["sparsity"] for row in curve], label="sparsity")
    scored = [row for row in rows if "accuracy" in row]
    axes.plot([row["step"] for row in scored], [100 * row["accuracy"] for row in scored], label="accuracy")
    axes.set(title="overall sparsity and accuracy (%)", xlabel="step", ylim=(0, 101))
    axes.legend(frameon=False)
    return figure


def _layers(report: sp.Report) -> Figure:
    names = [layer.name.removesuffix(".weight") for layer in report.layers]
    figure, axes = plt.subplots(figsize=(max(6.0, 0.22 * len(names) + 2), 4), layout="constrained")
    axes.bar(range(len(names)), [100 * layer.sparsity for layer in report.layers], color="tab:blue")
    axes.axhline(100 * report.sparsity, color="black", lw=1, ls="--")
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set(title=f"sparsity by layer (%); overall, the dashed line, {report.sparsity:.1%}", ylim=(0, 101))
    _plain(axes)
    return figure


def _turnover(rows: Sequence[dict[str, Any]]) -> Figure:
    figure, axes = _one()
    axes.plot([row["step"] for row in rows], [row["left"] for row in rows], label="left")
    axes.plot([row["step"] for row in rows], [row["returned"] for row in rows], label="came back")
    axes.set(title="weights that left and came back, between validations", xlabel="step", yscale="symlog")
    axes.legend(frameon=False)
    return figure


def _one() -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write a figure, and let go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
