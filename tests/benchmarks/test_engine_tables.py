"""Tables of the engine: what is fastest at each accuracy, and that pages hold what the data say."""

import pytest

from engine_tables import PAGES, points, tables

DENSE, BLOCKS, ANYWHERE = (f"cifar10/{method} epochs=15 seed=0" for method in ("dense", "block4", "target"))


def row(job: str, runtime: str, right: float, ms: float) -> dict[str, str]:
    numbers = {"accuracy": str(right), "ms": str(ms), "torch ms": "20", "sparsity": "0" if job == DENSE else "0.9"}
    return {"job": job, "runtime": runtime, "machine": "CPU", **numbers}


def of(job: str, right: float, ms: float) -> list[dict[str, str]]:
    return [row(job, runtime, right, ms * factor) for runtime, factor in (("fp32", 4), ("int16", 2), ("int8", 1))]


def test_what_nothing_beats_is_bold():
    rows = [*of(DENSE, 0.9, 5.0), row(DENSE, "OpenVINO int8", 0.91, 3.0), *of(BLOCKS, 0.88, 1.0), *of(ANYWHERE, 0.9, 2)]
    lines = [line.strip("| ").split(" | ") for line in points(rows).splitlines()]
    assert [line[0] for line in lines[2:6]] == [
        "**engine int8**",
        "**engine int8**",
        "**OpenVINO int8**",
        "engine int16",
    ]
    assert [line[2] for line in lines[2:4]] == ["90%", "90%"]
    assert lines[-1] == ["torch fp32", "dense", "", "90.00", "20.00"]
    assert not any(line[1] == "blocks of 1 × 4" and line[0] != "**engine int8**" for line in lines)


def test_without_rivals_there_is_nothing_to_choose_from():
    assert points(of(DENSE, 0.9, 5.0)) == ""


@pytest.mark.parametrize("name", tables())
def test_pages_hold_what_the_data_say(name):
    made = tables()[name]
    assert any(f"<!-- {name} -->\n{made}\n<!-- end -->" in page.read_text(encoding="utf-8") for page in PAGES)
