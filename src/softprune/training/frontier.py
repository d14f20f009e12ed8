"""Accuracy against sparsity: the same recipe at several final thresholds or targets, one run each.

The folder holds one run for each of them, frontier.md, frontier.json and frontier.png, and a plot of whatever else the
network has to tell (a spiking one: firing-rate.png). Started again, complete runs are only read, and one that was
interrupted goes on where it was; with other values, what is there already stays in the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from softprune.data import Dataset
from softprune.errors import ConfigError
from softprune.recipes.config import Config
from softprune.report import markdown
from softprune.training import names, plots
from softprune.training.data_card import DataCard, ImageCard, TextCard
from softprune.training.files import write_text
from softprune.training.folder import Folder
from softprune.training.launch import first_process
from softprune.training.run import Progress, Run, Say
from softprune.training.trainer import rehearse


def walk(
    config: Config,
    key: str,
    values: Sequence[float],
    folder: Path,
    say: Say = print,
    progress: Progress = None,
) -> int | None:
    """Train what is missing, in every process of a launch; the first one also writes table and plots.

    Returns the signal that stopped it, if one did.
    """
    if (folder / "config.json").exists():
        raise ConfigError(f"{folder} holds a run. Choose another folder with `--out`.")
    configs = _configs(config, key, values)
    places = {value: folder / f"{key}-{value:.12g}" for value in configs}
    data: Dataset | None = None  # read once, for all runs, and before a folder is made
    if not all(_complete_with(place, config) for place in places.values()):
        data = names.dataset(config)
    kind = TextCard if names.NETWORKS.find(config.network).takes == "text" else ImageCard
    card = DataCard.of(data) if data else kind.read(next(iter(places.values())) / "data.json")
    rows: list[dict[str, float]] = []
    for value, changed in configs.items():
        run = _run(changed, places[value], card)
        say(f"{key} = {value:g}: {run.folder}")
        outcome = run.train(say, progress, data=data)
        if outcome.stopped_by is not None:
            return outcome.stopped_by
        if first_process():
            rows = _rows(config, key, folder, card)
            write_text(folder / "frontier.json", json.dumps(rows, indent=2))
    if first_process():
        _present(rows, key, folder, say)
    return None


def _present(rows: Sequence[dict[str, float]], key: str, folder: Path, say: Say) -> None:
    """Table and plots."""
    table = _table(rows, key)
    write_text(folder / "frontier.md", table + "\n")
    say(table)
    for name in [name for name in rows[0] if name not in (key, "sparsity")]:
        points = [(f"{'D' if key == 'final' else key} = {row[key]:g}", row["sparsity"], row[name]) for row in rows]
        path = folder / f"{'frontier' if name == 'accuracy' else re.sub('[^a-z]+', '-', name.lower()).strip('-')}.png"
        plots.frontier(points, name, path)
        say(f"Plot: {path}")


def _complete_with(folder: Path, config: Config) -> bool:
    """Whether a run is complete, and its data are where these are."""
    if not (folder / "report.json").exists():
        return False
    return names.located(Folder.open(folder).config).data == names.located(config).data


def _rows(config: Config, key: str, folder: Path, card: DataCard | None) -> list[dict[str, float]]:
    """What came out of each run there that differs in ``key`` alone: the numbers that all of them have, since earlier
    versions had fewer."""
    rows = []
    for run in (Run.open(path.parent) for path in folder.glob(f"{key}-*/config.json")):
        value = getattr(run.config, key)
        same = _alike(run.config, replace(config, **{key: value})) and not _other_data(run.folder, card)
        if same and (outcome := run.outcome) is not None:
            known = {key: value, "sparsity": outcome["sparsity"], "accuracy": outcome["accuracy"]}
            rows.append(known | outcome["figures"])
    shared = set.intersection(*map(set, rows))
    return sorted(({name: row[name] for name in row if name in shared} for row in rows), key=lambda row: row[key])


def _table(rows: Sequence[dict[str, float]], key: str) -> str:
    cells = []
    for row in rows:
        known = [f"{row[key]:g}", f"{row['sparsity']:.2%}", f"{row['accuracy']:.2%}"]
        cells.append(known + [_figure(value) for value in list(row.values())[3:]])
    return markdown.table(list(rows[0]), cells, words=0)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _configs(config: Config, key: str, values: Sequence[float]) -> dict[float, Config]:
    """The settings of every run, none of which will be refused when it begins."""
    if key == "final" and config.target is not None:
        raise ConfigError(
            "Cannot walk along `final` with `target` set, which replaces it. Drop `target`, or write `--targets`."
        )
    configs = {value: replace(config, **{key: value}) for value in values}  # type: ignore[arg-type]
    for changed in configs.values():
        rehearse(changed)
    return configs


def _run(config: Config, folder: Path, card: DataCard | None) -> Run:
    if not (folder / "history.jsonl").exists():  # training never began there
        return Run(Folder.create(folder, config), config)  # rehearsed already
    home = Folder.open(folder)
    if not _alike(home.config, config):
        raise ConfigError(f"{folder} holds a run with other settings. Choose another folder with `--out`.")
    if difference := _other_data(folder, card):
        raise ConfigError(
            f"{folder} holds a run on other data: it had {difference} now. Choose another folder with `--out`."
        )
    return Run(home, config)


def _other_data(folder: Path, card: DataCard | None) -> str:
    """What a run had, and what these data have; nothing where they agree, or nobody knows."""
    before = type(card).read(folder / "data.json") if card else None
    return before.difference(card) if before and card else ""


def _alike(one: Config, other: Config) -> bool:
    """Whether two runs have the same result, wherever they are trained and wherever their files lie."""
    return one.shaping() == other.shaping() and names.kind_of_data(one) == names.kind_of_data(other)
