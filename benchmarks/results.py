"""What `benchmarks/findings.py` and `benchmarks/beyond.py` measured, by method, and in tables."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import ttest_ind

from grid import Job, Tables
from softprune.report.markdown import table
from softprune.thresholds.odds import odds
from summary import percent

BATCHES = 97  # of CIFAR-10, an epoch at batch 512
FAMILY = "cifar10"
LEVELS = (0.9, 0.95, 0.98, 0.99)
BEYOND = 0.2  # in log odds: 90% beside runs that reached 91.7%
CHANCE = 0.1  # the accuracy of a network that has stopped to learn
SURE = 0.05  # p below which two means are told apart


@dataclass(frozen=True)
class Outcome:
    accuracy: float
    sparsity: float
    zeroed: int
    job: str
    loss: float = math.nan  # in validation; the findings on CIFAR-10 have none


@dataclass(frozen=True)
class Series:
    """One method at several values of a setting: {value: its runs, a seed each}."""

    points: dict[float, list[Outcome]]

    def first(self, value: float) -> str | None:
        """The run of the first seed there, which has a curve and layers."""
        return next((run.job for run in self.points.get(value, []) if Job(run.job).first_seed), None)

    def at(self, sparsity: float) -> list[float]:
        """Each seed's accuracy there: linear in the log odds between its runs, and a little beyond them.

        A seed with fewer runs than the others is left out.
        """
        found = []
        seeds: dict[str, list[Outcome]] = {}
        for run in (run for runs in self.points.values() for run in runs):
            seeds.setdefault(Job(run.job).changes["seed"], []).append(run)
        for runs in seeds.values():
            if len(runs) < len(self.points):
                continue
            curve = dict(sorted((log_odds(run.sparsity), run.accuracy) for run in runs if 0 < run.sparsity < 1))
            odds, accuracies, x = list(curve), list(curve.values()), log_odds(sparsity)
            if len(odds) > 1 and odds[0] - BEYOND <= x <= odds[-1] + BEYOND:
                i = min(max(bisect(odds, x), 1), len(odds) - 1)
                slope = (accuracies[i] - accuracies[i - 1]) / (odds[i] - odds[i - 1])
                found.append(accuracies[i] + slope * (x - odds[i]))
        return found


def log_odds(share: float) -> float:
    return math.log(odds(share))


class Results:
    def __init__(self, folder: Path) -> None:
        self.tables = Tables(folder)
        self.outcomes = [
            Outcome(
                float(row["accuracy"]),
                float(row["sparsity"]),
                int(row["zeroed"] or 0),
                row["job"],
                float(row.get("validation loss", math.nan)),
            )
            for row in self.tables.runs
        ]

    def series(self, method: str, key: str, family: str = FAMILY, **settings: str) -> Series:
        """The runs of a recipe that differ in ``key`` and in their seed only."""
        points: dict[float, list[Outcome]] = {}
        for outcome in self.outcomes:
            changes = Job(outcome.job).changes
            same = changes.keys() == {key, "seed", *settings} and settings.items() <= changes.items()
            if Job(outcome.job).recipe == f"{family}/{method}" and same:
                points.setdefault(float(changes[key]), []).append(outcome)
        for runs in points.values():
            runs.sort(key=lambda run: run.job)
        return Series(dict(sorted(points.items())))

    def dense(self, family: str = FAMILY, **settings: str) -> list[Outcome]:
        jobs = [(outcome, Job(outcome.job)) for outcome in self.outcomes]
        return [
            outcome
            for outcome, job in jobs
            if job.recipe == f"{family}/dense"
            and job.changes.items() - {("seed", job.changes["seed"])} == settings.items()
        ]

    def targets(self) -> Series:
        """The runs with a target, by the D of the S-LATS run that set it."""
        found: dict[float, list[Outcome]] = {}
        for outcome in self.outcomes:
            if "target" in (changes := Job(outcome.job).changes):
                found.setdefault(float(changes["final"]), []).append(outcome)
        return Series(dict(sorted(found.items())))

    def curve(self, job: str | None, field: str) -> tuple[list[float], list[float]]:
        """Epochs, and a column of the run's curve; nothing of no run."""
        rows = [row for row in self.tables.curve(job or "") if row[field] != ""]
        return [int(row["step"]) / BATCHES for row in rows], [float(row[field]) for row in rows]

    def numbers(self, job: str) -> dict[str, str]:
        return next(row for row in self.tables.runs if row["job"] == job)


def trained_ones(runs: Sequence[Outcome]) -> list[Outcome]:
    return [run for run in runs if run.accuracy > CHANCE]


def accuracies(runs: Sequence[Outcome]) -> str:
    """Runs at chance stand beside the others, unless there are no others."""
    good = trained_ones(runs) or runs
    lost = f"; {len(runs) - len(good)} of {len(runs)} at {CHANCE:.0%}" if len(good) < len(runs) else ""
    return percent([run.accuracy for run in good]) + lost


def sparsities(runs: Sequence[Outcome]) -> str:
    return percent([run.sparsity for run in runs])


def side_by_side(key: str, methods: dict[str, Series]) -> str:
    """Accuracy and sparsity at each value of a setting, a pair of columns for each method."""
    head = [key, *(f"{name}: {what}" for name in methods for what in ("accuracy", "sparsity"))]
    values = sorted({value for series in methods.values() for value in series.points})
    rows = []
    for value in values:
        cells = [f"{value:g}"]
        for series in methods.values():
            runs = series.points.get(value, [])
            cells += [accuracies(runs), sparsities(runs)]
        rows.append(cells)
    return table(head, rows)


def at_equal_sparsity(methods: dict[str, Series], levels: Sequence[float] = LEVELS) -> str:
    """An asterisk: not the accuracy of the first method."""
    first = next(iter(methods.values()))
    rows = [
        [name, *(percent(series.at(level)) + "*" * differ(first.at(level), series.at(level)) for level in levels)]
        for name, series in methods.items()
    ]
    return table(["accuracy at", *(f"{level:.0%}" for level in levels)], rows)


def differ(some: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the means are told apart: Welch's t-test."""
    enough = len(some) > 1 and len(others) > 1 and some != others
    return enough and bool(ttest_ind(some, others, equal_var=False).pvalue < SURE)
