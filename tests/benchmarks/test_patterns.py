"""Patterns on a GPU: the page says what was measured, and the benchmark measures on a CPU too."""

import re
import sys

import pytest

import patterns_gpu
import patterns_gpu_tables
from patterns_gpu_tables import PAGE, ROWS, Row, cell, markdown, read

LARGE = [(4096, 14336), (14336, 4096)]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read(ROWS)


def faster(rows: list[Row], name: str, mode: str, tokens: range, shapes=LARGE) -> list[float]:
    found = [
        row.faster
        for row in rows
        if (row.candidate, row.mode, row.dtype) == (name, mode, "bf16") and row.tokens in tokens and row.shape in shapes
    ]
    assert found
    return found


def test_the_page_says_what_the_rows_say(tmp_path, monkeypatch):
    page = tmp_path / PAGE.name
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["patterns_gpu_tables.py", "--pages", str(page)])
    patterns_gpu_tables.main()
    text = page.read_text(encoding="utf-8")
    assert text == PAGE.read_text(encoding="utf-8")
    tables = re.findall(r"<!-- patterns (.*?) -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert [name for name, _ in tables] == ["graph bf16", "eager bf16", "graph fp8", "eager fp8"]
    assert all(table.count("\n") == 2 + 12 for _, table in tables)


def test_the_words_of_the_page_hold(rows):
    every, many, few = range(1, 20_000), range(4096, 20_000), range(1, 17)
    plain, searched = "2:4 cuSPARSELt", "2:4 cuSPARSELt, searched"
    both = [x for name in (plain, searched) for x in faster(rows, name, "graph", many)]
    assert [f"{x:.1f}" for x in (min(both), max(both))] == ["1.3", "1.6"]
    assert min(faster(rows, plain, "graph", range(256, 257), LARGE[:1])) >= 1.2
    assert f"{max(x for name in (plain, searched) for x in faster(rows, name, 'eager', every)):.2f}" == "1.33"
    assert max(x for name in (plain, searched) for x in faster(rows, name, "graph", few)) < 1
    nine = [f"{size} x {size} blocks, 90%" for size in (64, 128)]
    blocks = [x for name in nine for x in faster(rows, name, "graph", every)]
    assert [f"{x:.1f}" for x in (min(blocks), max(blocks))] == ["1.9", "5.5"]
    assert min(x for name in nine for x in faster(rows, name, "eager", many)) > 1.5
    small = [(768, 3072)]
    slow = [x for name in nine for x in faster(rows, name, "eager", range(1, 257), [*LARGE, *small])]
    assert [f"{1 / x:.0f}" for x in (max(slow), min(slow))] == ["5", "16"]
    assert max(x for name in nine for x in faster(rows, name, "eager", every, small)) < 1
    assert max(x for name in nine for x in faster(rows, name, "graph", range(1, 257), small)) < 1.5
    narrow = [f"{kept}% of neurons" for kept in (75, 50, 25)]
    fewer = [x for name in narrow for mode in ("eager", "graph") for x in faster(rows, name, mode, every)]
    assert [f"{x:.1f}" for x in (min(fewer), max(fewer))] == ["1.2", "4.1"]
    assert all(row.failure for row in rows if row.candidate == "2:4 CUTLASS")


def row(**values: object) -> Row:
    return Row("GPU", "2", "bf16", 8, 16, 4, **{"candidate": "2:4 CUTLASS", "kept": 0.5, "bar": 1.2, **values})


def test_a_cell_marks_what_reaches_the_bar_and_says_what_went_wrong():
    assert cell(row(mode="eager", ratio=0.8, error=0.0)) == "1.25*"
    assert cell(row(mode="eager", ratio=0.8, error=0.0), "**{}**") == "**1.25**"
    assert cell(row(mode="eager", ratio=0.9, error=0.0)) == "1.11"
    assert cell(row(mode="eager", ratio=0.8, error=0.1)) == "wrong"
    assert cell(row(mode="eager", failure="no")) == "failed"


def test_the_benchmark_measures_a_small_layer_and_its_rows_are_read_back(tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.csv"
    monkeypatch.setattr(patterns_gpu, "ROUNDS", (1, 1))
    monkeypatch.setattr(patterns_gpu, "TURN", 1e-4)
    names = ["50% of neurons", "64 x 64 blocks, 90%"]
    arguments = ["--quick", "--out", str(out), "--candidates", *names]
    monkeypatch.setattr(sys, "argv", ["patterns_gpu.py", *arguments])
    patterns_gpu.main()
    measured = [one for one in read(out) if one.mode == "eager"]
    assert [one.candidate for one in measured] == ["dense", *names]
    assert all(one.error < 0.05 and one.microseconds > 0 and not one.failure for one in measured)
    assert "times faster than dense, by tokens" in capsys.readouterr().out


def test_a_table_has_a_line_for_each_candidate(rows):
    lines = markdown(rows, "graph", "bf16").splitlines()
    assert lines[0] == "| tokens | 1 | 16 | 256 | 4096 | 16384 |"
    assert lines[7] == "| 2:4 CUTLASS | failed | failed | failed | failed | failed |"
