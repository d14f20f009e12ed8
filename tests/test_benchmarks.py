"""The findings: runs are made once, and docs/results.md says what its tables say."""

import re
import sys
from itertools import product
from pathlib import Path

import pytest

import beyond
import beyond_tables
import figures
import filter_rivals
import findings
import grid
import patterns
import patterns_tables
import short_runs
from grid import Job, Tables
from pages import README, RESULTS
from results import BEYOND, Outcome, Series, accuracies, at_equal_sparsity, log_odds
from softprune import recipes
from softprune.thresholds.odds import odds, share

PAGES = [RESULTS, README, patterns_tables.PAGE]


def outcome(accuracy: float, sparsity: float, seed: int) -> Outcome:
    return Outcome(accuracy, sparsity, 0, f"cifar10/slats seed={seed}")


def test_accuracy_at_a_sparsity_is_linear_in_the_log_odds():
    low, high, middle = 0.9, 0.99, share((odds(0.9) * odds(0.99)) ** 0.5)
    series = Series({1.0: [outcome(0.8, low, 0)], 2.0: [outcome(0.6, high, 0)]})
    assert series.at(low) == [pytest.approx(0.8)]
    assert series.at(middle) == [pytest.approx(0.7)]
    slope = -0.2 / (log_odds(high) - log_odds(low))
    near, far = (share(odds(high) * 2.718 ** (part * BEYOND)) for part in (0.9, 1.1))
    assert series.at(near) == [pytest.approx(0.6 + slope * 0.9 * BEYOND, abs=1e-4)]
    assert series.at(far) == []


def test_a_seed_that_lacks_a_run_is_left_out():
    both = {1.0: [outcome(0.8, 0.9, 0), outcome(0.7, 0.9, 1)], 2.0: [outcome(0.6, 0.99, 0)]}
    assert Series(both).at(0.9) == [pytest.approx(0.8)]


def test_runs_at_chance_stand_beside_the_others():
    runs = [outcome(accuracy, 0.9, seed) for seed, accuracy in enumerate((0.8, 0.82, 0.1))]
    assert accuracies(runs) == "81.00 ± 1.41; 1 of 3 at 10%"
    assert accuracies(runs[2:]) == "10.00"


def test_an_asterisk_marks_what_differs_from_the_first_row():
    def series(*accuracies: float) -> Series:
        return Series(
            {D: [outcome(a, D, seed) for seed, a in enumerate(accuracies)] for D in (0.9, 0.95)}  # flat
        )

    methods = {"first": series(0.900, 0.902, 0.901), "near": series(0.902, 0.900, 0.898), "far": series(0.88, 0.881)}
    rows = at_equal_sparsity(methods, (0.9,)).splitlines()[2:]
    assert rows == ["| first | 90.10 ± 0.10 |", "| near | 90.00 ± 0.20 |", "| far | 88.05 ± 0.07* |"]


@pytest.mark.slow
def test_a_grid_does_only_what_is_missing(tmp_path, capfd):
    names = [f"digits/{method} epochs=2 seed={seed}" for method, seed in (("slats", 0), ("str", 0), ("slats", 1))]
    jobs = [Job(name) for name in names]
    grid.run(lambda rows: [*jobs[:2], Job("digits/slats epochs=0 seed=0")], None, Tables(tmp_path), 1)
    assert "failed: digits/slats epochs=0 seed=0: `epochs` must be" in capfd.readouterr().out
    first = (tmp_path / "runs.csv").read_text()
    grid.run(lambda rows: jobs, None, Tables(tmp_path), 1)
    assert (tmp_path / "runs.csv").read_text().startswith(first)
    tables = Tables(tmp_path)
    assert [row["job"] for row in tables.runs] == names
    assert len(tables.layers(names[0])) > 3 < len(tables.curve(names[0]))
    assert tables.layers(names[2]) == tables.curve(names[2]) == []  # of the first seed only
    assert any(row["pull"] for row in tables.curve(names[1]))


@pytest.fixture
def copies(tmp_path):
    made = [tmp_path / page.name for page in PAGES]
    for copy, page in zip(made, PAGES, strict=True):
        copy.write_text(page.read_text())
    return made


@pytest.mark.parametrize(
    ("module", "tables"),
    [
        (figures, list(figures.FINDINGS)),
        (beyond_tables, ["beyond", *(f"beyond {name}" for name in beyond_tables.CASES)]),
        (short_runs, ["short", "after"]),
        (patterns_tables, ["patterns channels", "patterns blocks"]),
    ],
    ids=["figures", "beyond", "short", "patterns"],
)
def test_the_pages_say_what_the_tables_say(module, tables, copies, tmp_path, monkeypatch):
    images = [] if module is short_runs else ["--images", str(tmp_path)]  # it draws none
    monkeypatch.setattr(sys, "argv", [module.__name__, *images, "--pages", *map(str, copies)])
    module.main()
    assert [copy.read_text() for copy in copies] == [page.read_text() for page in PAGES]
    for name in tables:
        (block,) = re.findall(f"<!-- {name} -->\n(.*?)<!-- end -->", "".join(map(Path.read_text, copies)), re.DOTALL)
        assert block.startswith("| ")
        assert block.count("<!--") == 0


def test_pictures_of_the_pages_exist():
    for page in PAGES:
        for image in re.findall(r"\]\(([a-z/]*images/.*?)\)", page.read_text()):
            assert (page.parent / image).exists()


def test_a_finding_that_lacks_runs_stays_as_it_was(tmp_path, monkeypatch, capsys):
    rows = (findings.TABLES / "runs.csv").read_text().splitlines()
    kept = [row for row in rows if row.startswith("job,") or "warmup=10" in row]
    (tmp_path / "runs.csv").write_text("\n".join(kept))
    page = tmp_path / "page.md"
    page.write_text("<!-- warmup -->\nold\n<!-- end -->\n<!-- init -->\nold\n<!-- end -->\n")
    arguments = ["--tables", str(tmp_path), "--images", str(tmp_path), "--pages", str(page)]
    monkeypatch.setattr(sys, "argv", ["figures.py", *arguments])
    figures.main()
    first, second = page.read_text().split("<!-- end -->\n")[:2]
    assert first.startswith("<!-- warmup -->\n| D |")
    assert second == "<!-- init -->\nold\n"
    assert "init lacks runs: `python benchmarks/findings.py --only init` makes them" in capsys.readouterr().out


def test_the_tables_hold_every_run_of_every_finding_once():
    rows = Tables(findings.TABLES).runs
    wanted = {job.text for section in findings.SECTIONS.values() for job in section(rows)}
    assert sorted(row["job"] for row in rows) == sorted(wanted)


def test_the_tables_hold_every_run_beyond_the_paper_once():
    wanted = [job.text for section in beyond.SECTIONS.values() for job in section]
    assert sorted(row["job"] for row in Tables(beyond.TABLES).runs) == sorted(wanted)


def test_the_tables_hold_every_run_of_a_pattern_once():
    wanted = [job.text for section in patterns.SECTIONS.values() for job in section]
    assert sorted(row["job"] for row in Tables(patterns.TABLES).runs) == sorted(wanted)


def test_a_rival_has_all_seeds_at_one_learning_rate():
    rows = filter_rivals.read(patterns.TABLES / "rivals.csv")
    shared = [row for row in rows if float(row["lr"]) == filter_rivals.SHARED]
    cells = product(("l1", "lasso"), filter_rivals.TARGETS, filter_rivals.SEEDS)
    assert sorted((row["rival"], float(row["target"]), int(row["seed"])) for row in shared) == sorted(cells)


def test_no_other_learning_rate_is_much_better_for_a_rival():
    rows = [row for row in filter_rivals.read(patterns.TABLES / "rivals.csv") if row["seed"] == "0"]
    best = {
        (row["rival"], row["target"]): float(row["accuracy"])
        for row in rows
        if float(row["lr"]) == filter_rivals.SHARED
    }
    assert max(float(row["accuracy"]) - best[row["rival"], row["target"]] for row in rows) < 0.003


def test_the_table_holds_every_short_run_once():
    rows = short_runs.read(short_runs.TABLE)
    assert short_runs.missing(rows) == []
    assert len(rows) == len(short_runs.missing([]))


def test_the_name_of_a_run_repeats_it():
    """Whatever defaults a target has later, the name says its prox and its arrival."""
    for folder in (findings.TABLES, beyond.TABLES, patterns.TABLES):
        for row in Tables(folder).runs:
            job = Job(row["job"])
            config = recipes.get(job.recipe).config.override(job.text.split()[1:])
            if "target" in job.changes:
                assert config.arrive is not None
                assert config.power is not None or config.method == "gmp"
