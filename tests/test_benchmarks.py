"""The findings: runs are made once, and docs/results.md says what its tables say."""

import re
import sys
from pathlib import Path

import pytest

import figures
import findings
import grid
from grid import Job, Tables
from results import BEYOND, Outcome, Series, accuracies, at_equal_sparsity, log_odds
from softprune.thresholds.odds import odds, share

ROOT = Path(__file__).parent.parent


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


def test_the_pages_say_what_the_tables_say(tmp_path, monkeypatch):
    copies = [tmp_path / page.name for page in figures.PAGES]
    for copy, page in zip(copies, figures.PAGES, strict=True):
        copy.write_text(page.read_text())
    monkeypatch.setattr(sys, "argv", ["figures.py", "--images", str(tmp_path), "--pages", *map(str, copies)])
    figures.main()
    texts = [copy.read_text() for copy in copies]
    assert texts == [page.read_text() for page in figures.PAGES]
    for name in figures.FINDINGS:
        (block,) = re.findall(f"<!-- {name} -->\n(.*?)<!-- end -->", "".join(texts), re.DOTALL)
        assert block.startswith("| ")
        assert block.count("<!--") == 0
    for page in figures.PAGES:
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
