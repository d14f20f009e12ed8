"""The tables of `softprune report`: of a complete run, of a checkpoint, of a model file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import get_type_hints

from softprune.errors import ConfigError
from softprune.recipes.config import fits
from softprune.report.report import Report, summarize_tensors
from softprune.training.files import readable
from softprune.training.folder import Folder


def of_run(folder: Folder) -> Report:
    """The report that a complete run has saved."""
    outcome = folder.outcome
    assert outcome is not None
    with readable(folder.path / "report.json", " Delete it, and `--resume` writes it again."):
        try:
            report = Report.from_dict(outcome["report"])
        except (KeyError, TypeError, AttributeError):
            raise ConfigError("`report` is not a report.") from None
        for row in (*report.layers, *report.places):
            hints = get_type_hints(type(row))
            if wrong := [name for name in hints if not fits(getattr(row, name), hints[name])]:
                raise ConfigError(f"`{wrong[0]}` of a {type(row).__name__.lower()} is of the wrong type.")
        counts = (report.not_pruned, dict[str, int]), (report.left_alone, dict[str, int])
        values = (report.step, int | None), (report.penalty, float | None)
        if not all(fits(value, kind) for value, kind in (*counts, *values)):
            raise ConfigError("a value of `report` is of the wrong type.")
    return report


def of_weights(path: Path, exclude: Iterable[str] = ()) -> Report:
    """Counted in a model file or a checkpoint."""
    from softprune.training import model_file

    report = summarize_tensors(model_file.read(path), exclude)
    if not report.layers:
        raise ConfigError(f"{path} holds no weights that could be pruned.")
    return report
