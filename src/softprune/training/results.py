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
from softprune.training.small import FILE, Small


def write(
    folder: Folder,
    config: Config,
    card: DataCard,
    decoder: str | None,
    tensors: dict[str, Tensor],
    small: Small | None,
    report: sp.Report,
    measured: Measured,
    seconds: float,
) -> None:
    """Everything a complete run leaves behind; report.json last, since it says that the run is complete."""
    rows = history.read(folder.path / "history.jsonl")
    about = {"config": config.to_json(), "data": card.to_json()}
    model_file.write(tensors, folder.path / "model.safetensors", about)
    if small is not None and small.tensors:
        model_file.write(small.tensors, folder.path / FILE, about)
    else:  # what is there was written before report.json was deleted
        (folder.path / FILE).unlink(missing_ok=True)
    plots.draw(folder.path / "plots", rows, report, config.target)
    write_text(folder.path / "report.md", _markdown(folder, config, decoder, small, report, measured, rows))
    values = {
        "accuracy": measured.accuracy,
        "sparsity": report.sparsity,
        "seconds": seconds,
        "config": json.loads(config.to_json()),
        "data": asdict(card),
        "decoder": decoder,
        "report": report.to_dict(),
        "figures": measured.figures(),
        "small": small.to_dict() if small else None,
        "observed": measured.observed.to_dict() if measured.observed else None,
    }
    write_text(folder.path / "report.json", json.dumps(values, indent=2))


def _markdown(
    folder: Folder,
    config: Config,
    decoder: str | None,
    small: Small | None,
    report: sp.Report,
    measured: Measured,
    rows: list[history.Row],
) -> str:
    aim = "" if config.target is None else f" (target {config.target:.2%})"
    steps = max((row["step"] or 0 for row in rows), default=0)
    figures = measured.figures()
    lines = [
        f"# {config.method} · {config.network} · {config.data}",
        f"{headline(config, measured.accuracy, figures)} at {report.sparsity:.2%} sparsity{aim} after {steps:,} steps.",
        *([f"JPEG files were decoded by {decoder}."] if decoder else []),
        replace(report, penalty=None).to_markdown(),  # that of the last step says little about the run
        *_remarks(report, rows),
        *([small.to_markdown()] if small else []),
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
