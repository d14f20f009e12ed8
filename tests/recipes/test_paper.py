"""The paper's budget tables: names and overall sparsities agree with the networks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

import softprune as sp
from softprune.models import mobilenet_v1, resnet50
from softprune.recipes.paper import TABLES, PaperBudget, finals
from softprune.spiking.sew import sew_resnet18

COLUMNS = [(n, table, final) for n, tables in TABLES.items() for table in tables for final in finals(n, table=table)]


NETWORKS = {"resnet50": resnet50, "mobilenet_v1": mobilenet_v1, "sew_resnet18": sew_resnet18}


def sizes(network: str) -> dict[str, int]:
    """{layer: weights}"""
    with torch.device("meta"):
        model = NETWORKS[network]()
    return {name.removesuffix(".weight"): p.numel() for name, p in sp.select(model).items()}


SIZES = {network: sizes(network) for network in TABLES}


@pytest.mark.parametrize(("network", "table", "final"), COLUMNS)
def test_layers_make_the_overall_sparsity(network, table, final):
    budget, counts = sp.budgets(network, final, table=table), SIZES[network]
    assert list(budget) == list(counts)
    assert all(0 <= sparsity <= 1 for sparsity in budget.values())
    overall = sum(counts[layer] * sparsity for layer, sparsity in budget.items()) / sum(counts.values())
    if (network, table, final) == ("sew_resnet18", "slats", 7.0):  # a misprint: the row of fc
        assert budget.overall == budget["fc"]
        assert overall == pytest.approx(0.9058, abs=1e-4)
    else:
        assert overall == pytest.approx(budget.overall, abs=1e-4)  # 0.01 points
    assert 0.4 < budget.accuracy < 0.8


def test_columns_of_each_table():
    counts = {(n, table): len(finals(n, table=table)) for n, tables in TABLES.items() for table in tables}
    assert counts == {
        ("resnet50", "slats-b256"): 18,
        ("resnet50", "slats-b1024"): 18,
        ("resnet50", "pgh-init"): 4,
        ("mobilenet_v1", "slats"): 4,
        ("sew_resnet18", "slats"): 9,
        ("sew_resnet18", "sine"): 5,
    }
    assert [len(SIZES[network]) for network in TABLES] == [54, 28, 21]


def test_numbers_of_the_paper():
    assert sp.budgets("resnet50", 6)["fc"] == 0.996
    assert sp.budgets("resnet50", 1.0).accuracy == 0.6964
    assert sp.budgets("resnet50", 1.0, table="slats-b1024").accuracy == 0.7167
    assert sp.budgets("resnet50", 0.1, table="pgh-init")["layer4.2.conv2"] == 0.9996
    assert sp.budgets("mobilenet_v1", 0.4)["model.4.0"] == 0.0269
    assert sp.budgets("sew_resnet18", 0.6, table="sine").accuracy == 0.61114


def test_a_budget_is_a_mapping():
    budget = sp.budgets("resnet50", 0.5)
    assert isinstance(budget, PaperBudget)
    assert isinstance(budget, Mapping)
    assert budget == sp.budgets("resnet50", 0.5, table="slats-b256") == dict(budget)
    assert budget != sp.budgets("resnet50", 0.6)
    assert len(budget) == 54
    assert "layer1.0.conv1" in budget
    assert "Overall" not in budget
    assert (budget.network, budget.table, budget.final) == ("resnet50", "slats-b256", 0.5)
    with pytest.raises(AttributeError):
        budget.overall = 0.0


def test_what_does_not_exist_is_refused_with_what_does():
    with pytest.raises(
        ValueError, match=r"^`budgets\(network=...\)` must be one of resnet50, mobilenet_v1, sew_resnet18"
    ):
        sp.budgets("resnet18", 0.5)
    with pytest.raises(
        ValueError, match=r"must be one of slats-b256, slats-b1024, pgh-init for resnet50. Got 'sine'.$"
    ):
        sp.budgets("resnet50", 0.5, table="sine")
    with pytest.raises(
        ValueError, match=r"must be one of 0.4, 0.6, 0.8, 0.9 in table 'slats' of mobilenet_v1. Got 0.5.$"
    ):
        sp.budgets("mobilenet_v1", 0.5)
    with pytest.raises(ValueError, match=r"Got '0.4'.$"):
        sp.budgets("mobilenet_v1", "0.4")
