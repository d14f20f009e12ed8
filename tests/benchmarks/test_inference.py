"""The benchmark of inference: budgets are those of the paper, and a small network is measured on a CPU."""

import sys

import pytest
import torch
from torch import nn

import inference
import softprune as sp
from inference import Row, markdown, read, write
from softprune import engine
from sparse_networks import CASES, Case


@pytest.mark.parametrize(("network", "level"), [(n, level) for n in ("resnet50", "mobilenet_v1") for level in (0.9,)])
def test_budgets_are_the_papers_where_it_has_them(network, level):
    with torch.device("meta"):
        model = CASES[network].build()
    budgets = CASES[network].budgets(model, level)
    weights = sp.select(model)
    assert budgets.keys() == weights.keys()
    zeros = sum(share * weights[name].numel() for name, share in budgets.items())
    assert zeros / sum(p.numel() for p in weights.values()) == pytest.approx(level, abs=0.011)
    columns = [sp.budgets(network, final)["fc"] for final in sp.recipes.paper.finals(network)]
    assert budgets["fc.weight"] in columns


def test_elsewhere_budgets_are_moved_together():
    with torch.device("meta"):
        model = CASES["mobilenet_v1"].build()
    weights, budgets = sp.select(model), CASES["mobilenet_v1"].budgets(model, 0.75)
    zeros = sum(share * weights[name].numel() for name, share in budgets.items())
    assert zeros / sum(p.numel() for p in weights.values()) == pytest.approx(0.75, abs=1e-4)
    paper = sp.budgets("mobilenet_v1", 0.4)
    assert sorted(budgets, key=budgets.get) == sorted(budgets, key=lambda name: paper[name.removesuffix(".weight")])


def tiny() -> Case:
    return Case(lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), (16,), (0.5,))


def test_a_small_network_is_measured_and_its_rows_are_read_back(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(inference.CASES, "mlp", tiny())
    monkeypatch.setattr(inference, "RIVALS", ())
    monkeypatch.setattr(engine, "compile", lambda model, example, **options: model, raising=False)
    out = tmp_path / "rows.csv"
    arguments = ["--networks", "mlp", "--batches", "1", "3", "--threads", "1", "--rounds", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["inference.py", *arguments])
    for _ in range(2):  # the second time in the place of the first
        inference.main()
    found = read(out)
    names = [
        "torch eager",
        "int8 1x4, 50%",
        "int8 2x4, 50%",
        *(f"{p} unstructured, 50%" for p in ("fp32", "int16", "int8")),
    ]
    assert [row.candidate for row in found] == names * 2
    assert [row.batch for row in found] == [1] * 6 + [3] * 6
    assert {row.sparsity for row in found} == {0.0, 0.5}
    assert all(row.ms > 0 and row.error < 1e-5 and row.x_torch > 0 for row in found)
    assert f"| mlp, {inference.machine()} | batch 1, 1 thread | batch 3, 1 thread |" in capsys.readouterr().out


def row(machine: str = "CPU", **values: object) -> Row:
    numbers = (0.9, 1.0, *(2.0,) * 3, *(0.5,) * 3, 0.0, 5, "wall", 0.0, machine, "2")
    return Row(values["network"], values["batch"], 1, values["candidate"], *numbers)


def test_rows_of_another_machine_stay(tmp_path):
    mine, other, newer = (row(machine, network="a", batch=1, candidate=c) for machine, c in ("Ax", "By", "Az"))
    for rows in ([mine, other], [newer]):
        write(tmp_path / "rows.csv", rows)
    assert read(tmp_path / "rows.csv") == [other, newer]
    assert [line for line in markdown([other, newer]).splitlines() if "a, " in line] == [
        f"| a, {machine} | batch 1, 1 thread |" for machine in "BA"
    ]


def test_tables_have_a_dash_where_nothing_was_measured(tmp_path):
    rows = [row(network="a", batch=b, candidate=c) for b, c in ((1, "x"), (1, "y"), (16, "x"))]
    lines = markdown(rows).splitlines()
    assert lines[2:] == ["| x | 2.00 / 0.50 | 2.00 / 0.50 |", "| y | 2.00 / 0.50 | - |"]
    write(tmp_path / "rows.csv", rows)
    assert read(tmp_path / "rows.csv") == rows


def test_cpu_time_needs_one_thread(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["inference.py", "--cpu-time"])
    with pytest.raises(SystemExit):
        inference.main()
    assert "--cpu-time needs --threads 1" in capsys.readouterr().err
