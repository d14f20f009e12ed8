"""The files of a complete run: model, plots, report.md and report.json."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, replace

from torch import Tensor

import softprune as sp
from softprune.recipes.config import Config
from softprune.training import history, model_file, plots
from softprune.training.data_card import DataCard
from softprune.training.files import write_text
from softprune.training.folder import Folder
from softprune.training.headline import headline
from softprune.training.observer import Measured


def write(
    folder: Folder,
    config: Config,
    card: DataCard,
    tensors: dict[str, Tensor],
    report: sp.Report,
    measured: Measured,
    seconds: float,
) -> None:
    """Everything a complete run leaves behind; report.json last, since it says that the run is complete."""
    rows = history.read(folder.path / "history.jsonl")
    about = {"config": config.to_json(), "data": card.to_json()}
    model_file.write(tensors, folder.path / "model.safetensors", about)
    plots.draw(folder.path / "plots", rows, report, config.target)
    write_text(folder.path / "report.md", _markdown(folder, config, report, measured, rows))
    values = {
        "accuracy": measured.accuracy,
        "sparsity": report.sparsity,
        "seconds": seconds,
        "config": json.loads(config.to_json()),
        "data": asdict(card),
        "report": report.to_dict(),
        "figures": measured.figures(),
        "observed": measured.observed.to_dict() if measured.observed else None,
    }
    write_text(folder.path / "report.json", json.dumps(values, indent=2))


def _markdown(folder: Folder, config: Config, report: sp.Report, measured: Measured, rows: list[history.Row]) -> str:
    aim = "" if config.target is None else f" (target {config.target:.2%})"
    steps = max((row["step"] or 0 for row in rows), default=0)
    figures = measured.figures()
    lines = [
        f"# {config.method} · {config.network} · {config.data}",
        f"{headline(config, measured.accuracy, figures)} at {report.sparsity:.2%} sparsity{aim} after {steps:,} steps.",
        replace(report, penalty=None).to_markdown(),  # that of the last step says little about the run
        *_remarks(report, rows),
        *([measured.observed.to_markdown()] if measured.observed else []),
        *(f"![{path.stem}](plots/{path.name})" for path in sorted((folder.path / "plots").glob("*.png"))),
        f"```json\n{config.to_json()}\n```",
    ]
    return "\n\n".join(lines) + "\n"


def _remarks(report: sp.Report, rows: list[history.Row]) -> list[str]:
    remarks = []
    if penalties := [row["penalty"] for row in history.curve(rows, "penalty")]:
        median = statistics.median(penalties)  # while a target is held, d moves a little either way at tiny rates
        remarks.append(f"The implied L1 penalty was {median:.4g} (median over the run).")
    if report.dropped is not None:
        remarks.append(
            "Weights dropped (that became zero) and regrown are those of the last epoch, or of its part after a resume."
        )
    return remarks
