"""A report tells groups as well as weights."""

import json

import pytest
import torch
from torch import nn

import softprune as sp


def pruned(groups: sp.Grouping | None, model: nn.Module, d: float = 1.0) -> sp.Pruner:
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    return sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(d), groups=groups)


def perceptron() -> nn.Sequential:
    """Four neurons, of which the second and the fourth are small."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[2.0], [0.1], [3.0], [0.2]]).expand(4, 3))
        model[0].bias.zero_()
        model[2].weight.copy_(torch.tensor([2.0, 0.1, 3.0, 0.2]).expand(2, 4))
    return model


def test_blocks_are_counted_layer_by_layer():
    model = nn.Sequential(nn.Conv2d(6, 2, 3, bias=False), nn.Linear(5, 3))
    with torch.no_grad():
        for p in sp.select(model).values():
            p.fill_(2.0)
        model[0].weight[0, :4, 1, 1] = 0.5  # a block of four
        model[0].weight[1, 4:, 0, 0] = 0.5  # one of two, at the edge
        model[1].weight[2, 0] = 0.5  # its block is large enough
    report = sp.summarize(pruned(sp.Blocks(1, 4), model))
    assert [(layer.groups, layer.dead) for layer in report.layers] == [(2 * 2 * 9, 2), (3 * 2, 0)]
    assert (report.groups, report.dead, report.zeros, report.places) == (42, 2, 6, ())
    assert "2 of 42 groups are dead." in str(report)
    assert str(report).splitlines()[0].split()[-2:] == ["groups", "dead"]
    assert report.to_markdown().splitlines()[0].endswith("| groups | dead |")


@pytest.mark.parametrize("detached", [False, True])
def test_units_are_counted_place_by_place(detached):
    model = perceptron()
    pruner = pruned(sp.Channels(model, torch.zeros(1, 3)), model, d=0.5)
    if detached:
        pruner.detach()
    report = sp.summarize(pruner, model)
    (place,) = report.places
    assert (place.name, place.groups, place.dead, place.alive) == ("0", 4, 2, 2)
    assert [(layer.groups, layer.dead) for layer in report.layers] == [(None, None)] * len(report.layers)
    lines = str(report).splitlines()
    assert lines[lines.index("place  groups  alive") + 2].split() == ["0", "4", "2"]
    assert "2 of 4 groups are dead." in lines
    assert "| 0 | 4 | 2 |" in report.to_markdown().splitlines()


def test_groups_by_hand_are_one_place():
    model = perceptron()
    groups = sp.Groups({i: [("0.weight", 0, [i]), ("2.weight", 1, [i])] for i in range(4)})
    report = sp.summarize(pruned(groups, model))
    assert [(place.name, place.groups, place.dead) for place in report.places] == [("groups", 4, 2)]


def test_without_groups_nothing_is_said_of_them():
    report = sp.summarize(pruned(None, perceptron()))
    assert (report.groups, report.dead, report.places) == (None, None, ())
    assert "group" not in str(report)
    assert "group" not in report.to_markdown()


def test_a_report_with_groups_is_read_back_and_so_is_one_of_an_earlier_version():
    model = perceptron()
    report = sp.summarize(pruned(sp.Channels(model, torch.zeros(1, 3)), model), model)
    values = json.loads(json.dumps(report.to_dict()))
    assert sp.Report.from_dict(values) == report
    del values["places"], values["groups"], values["dead"]
    for layer in values["layers"]:
        del layer["groups"], layer["dead"]
    older = sp.Report.from_dict(values)
    assert (older.layers, older.places) == (report.layers, ())
