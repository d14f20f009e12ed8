"""A report counts what it says it counts."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import STEPS, Run, network, refused
from softprune.report.report import summarize_tensors


def by_hand() -> tuple[nn.Sequential, torch.optim.SGD, sp.Pruner]:
    """θ = (3, 2, 1, 0.5) and (0.5, 0.25), under d = 0, 1, 2, ... and a step of 1."""
    model = nn.Sequential(nn.Linear(4, 1, bias=False), nn.LayerNorm(1), nn.Linear(1, 2)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 2.0, 1.0, 0.5]]))
        model[2].weight.copy_(torch.tensor([[0.5], [0.25]]))
    optimizer = torch.optim.SGD(model.named_parameters(), lr=1.0)
    return model, optimizer, sp.Pruner(sp.select(model), optimizer, threshold=sp.Linear(10.0, 10))


def push(model: nn.Sequential, optimizer: torch.optim.SGD, gradient: list[float]) -> None:
    model[0].weight.grad = torch.tensor([gradient]).double()
    optimizer.step()
    optimizer.zero_grad()


def test_counts_by_hand():
    model, optimizer, pruner = by_hand()
    first = sp.summarize(pruner)
    assert (first.zeros, first.parameters, first.dropped, first.regrown, first.zeroed) == (0, 6, None, None, ())

    push(model, optimizer, [0, 0, 0, 0])  # d = 1: 2, 1, 0, 0 and 0, 0 are left
    second = sp.summarize(pruner).since(first)
    assert [layer.zeros for layer in second.layers] == [2, 2]
    assert [layer.sparsity for layer in second.layers] == [0.5, 1.0]
    assert [layer.threshold for layer in second.layers] == [1.0, 1.0]
    assert (second.dropped, second.regrown) == (4, 0)
    assert (second.zeros, second.sparsity) == (4, pytest.approx(4 / 6))
    assert second.zeroed == ("2.weight",)
    assert (second.step, second.penalty) == (1, 1.0)
    assert pruner.sparsity() == second.sparsity

    push(model, optimizer, [2, 0, -3, 0])  # d = 2, θ = 1, 2, 4, 0.5: two are dropped, one regrows
    third = sp.summarize(pruner).since(second)
    assert (third.layers[0].dropped, third.layers[0].regrown) == (2, 1)
    assert (third.dropped, third.regrown, third.zeros) == (2, 1, 5)

    push(model, optimizer, [-9, -9, -9, 0])  # d rises to 3 and sparsity falls
    fourth = sp.summarize(pruner).since(third)
    assert (fourth.dropped, fourth.regrown) == (0, 2)
    assert fourth.sparsity < third.sparsity
    assert sp.summarize(pruner).since(fourth).dropped == 0  # nothing moved since
    assert sp.summarize(pruner).since(first).dropped == 3  # over all three steps
    assert sp.summarize(pruner) == sp.summarize(pruner)  # and asking changes nothing


def test_everything_is_accounted_for():
    model, _, pruner = by_hand()
    report = sp.summarize(pruner)
    assert report.not_pruned == {"1.weight": 1, "1.bias": 1, "2.bias": 2}
    assert report.parameters + sum(report.not_pruned.values()) == sum(p.numel() for p in model.parameters())
    model = network()  # of an optimizer that knows no names
    optimizer = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1)
    report = sp.summarize(sp.Pruner({"0.weight": model[0].weight}, optimizer, threshold=sp.Constant(0.1)))
    assert report.not_pruned == {"group 0 parameter 1": 7, "group 1 parameter 0": 21, "group 1 parameter 1": 3}


def test_a_model_alone():
    model = network()
    with torch.no_grad():
        model[0].weight[:3] = 0
    report = sp.summarize(model)
    assert [(layer.name, layer.zeros, layer.parameters) for layer in report.layers] == [
        ("0.weight", 18, 42),
        ("2.weight", 0, 21),
    ]
    assert report.not_pruned == {"0.bias": 7, "2.bias": 3}
    assert (report.step, report.penalty, report.dropped, report.layers[0].threshold) == (None,) * 4
    assert sp.summarize(torch.compile(model)) == report


class Speaker(nn.Module):
    """16 tokens of width 4, and all that a language model has."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(16, 4)
        self.position = nn.Parameter(torch.zeros(3, 4))
        self.norm = nn.LayerNorm(4)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))
        self.head = nn.Linear(4, 16, bias=False)


def test_what_is_left_alone_is_told_by_kind():
    model = Speaker()
    report = sp.summarize(model)
    kinds = {"embeddings": 64, "the head": 64, "biases": 12, "other parameters": 12, "norms": 8}
    assert report.left_alone == kinds
    assert sum(kinds.values()) == sum(report.not_pruned.values())
    assert str(report).endswith(
        "Left alone: 64 in embeddings, 64 in the head, 12 in other parameters, 12 in biases, 8 in norms."
    )


def test_a_pruner_with_its_model_tells_what_else_there_is():
    """By name, frozen parameters and weights that were left out too; a trained threshold is no part of the network."""
    model = Speaker()
    model.tokens.requires_grad_(False)
    params = sp.select(model, exclude=["mlp.2.*"])
    model.threshold = sp.STR(params, init=-2.0)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    pruner = sp.Pruner(params, optimizer, threshold=model.threshold)
    alone, report = sp.summarize(pruner), sp.summarize(pruner, torch.compile(model))
    assert alone.left_alone == {}
    assert "Left alone" not in str(alone)
    assert report.layers == alone.layers
    assert report.left_alone["weights not selected"] == report.not_pruned["mlp.2.weight"] == 32
    assert report.left_alone["embeddings"] == report.not_pruned["tokens.weight"] == 64
    assert sum(report.left_alone.values()) == 4 * 16 * 2 + 12 + 8 + 12 + 32
    assert sp.Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    assert report.since(alone).left_alone == report.left_alone


def test_the_report_outlives_the_pruner():
    run = Run.of("momentum")
    run.train()
    before = sp.summarize(run.pruner)
    run.pruner.detach()
    after = sp.summarize(run.pruner).since(before)
    assert (after.zeros, after.step, after.dropped, after.regrown) == (before.zeros, STEPS, 0, 0)
    assert sp.summarize(run.model).zeros == before.zeros


@pytest.mark.parametrize("method", ["str", "gpo"])
def test_trained_thresholds_are_told_layer_by_layer(method):
    run = Run.of("momentum", method)
    run.train()
    report = sp.summarize(run.pruner)
    assert {layer.name: layer.threshold for layer in report.layers} == run.pruner.threshold
    assert len(set(run.pruner.threshold.values())) == 2
    assert report.penalty is None
    assert "threshold" in str(report)
    assert sum(report.not_pruned.values()) == 10  # the biases, not s


def test_gpo_is_counted_by_the_weights_that_it_leaves():
    """Its w is k·θ below d: small and nowhere zero. What detaching leaves is exactly sparse."""
    run = Run.of("momentum", "gpo")
    run.train()
    assert not any((p == 0).any() for p in run.pruner.params.values())
    counted = sp.summarize(run.pruner).zeros
    assert counted == round(run.pruner.sparsity() * 63) > 0
    run.pruner.detach()
    assert sum(int((p == 0).sum()) for p in run.pruner.params.values()) == counted
    assert sp.summarize(run.pruner).zeros == counted


def test_for_machines():
    model, optimizer, pruner = by_hand()
    before = sp.summarize(pruner)
    push(model, optimizer, [0, 0, 0, 0])
    report = json.loads(json.dumps(sp.summarize(pruner).since(before).to_dict()))
    assert report["layers"][0] == {
        "name": "0.weight",
        "shape": [1, 4],
        "parameters": 4,
        "zeros": 2,
        "sparsity": 0.5,
        "threshold": 1.0,
        "dropped": 2,
        "regrown": 0,
        "groups": None,
        "dead": None,
    }
    del report["layers"]
    assert report == {
        "step": 1,
        "penalty": 1.0,
        "sparsity": pytest.approx(2 / 3),
        "parameters": 6,
        "zeros": 4,
        "dropped": 4,
        "regrown": 0,
        "groups": None,
        "dead": None,
        "zeroed": ["2.weight"],
        "not_pruned": {"1.weight": 1, "1.bias": 1, "2.bias": 2},
        "left_alone": {},
        "places": [],
    }


def test_a_report_written_down_reads_back_the_same():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.3)) as pruner:
        report = sp.summarize(pruner).since(sp.summarize(pruner))
    assert sp.Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_for_readers():
    model, optimizer, pruner = by_hand()
    before = sp.summarize(pruner)
    push(model, optimizer, [0, 0, 0, 0])
    report = sp.summarize(pruner).since(before)
    assert (
        str(report)
        == """\
layer     shape  parameters  zeros  sparsity  threshold  dropped  regrown
-------------------------------------------------------------------------
0.weight  1×4             4      2    50.00%          1        2        0
2.weight  2×1             2      2   100.00%          1        2        0
-------------------------------------------------------------------------
total                     6      4    66.67%                   4        0
66.67% of 6 pruned parameters are zero; 4 parameters in 3 tensors are not pruned (40.00% of all 10).
Nothing is left of 1 layer: 2.weight.
After 1 step; the last step implied an L1 penalty of 1."""
    )


def test_for_documents():
    report = sp.summarize(network()).to_markdown()
    head, rule, *rows = report.split("\n\n")[0].splitlines()
    assert head == "| layer | shape | parameters | zeros | sparsity |"
    assert rule == "| --- | --- | ---: | ---: | ---: |"
    assert rows[0] == "| 0.weight | 7×6 | 42 | 0 | 0.00% |"
    assert rows[-1] == "| total |  | 63 | 0 | 0.00% |"
    assert report.split("\n\n")[1].startswith("- 0.00% of 63 pruned parameters are zero; 10 parameters in 2 tensors")


@pytest.mark.parametrize("size", [1, 7, 8, 9, 1000])
def test_dropped_and_regrown_weights_are_counted_at_every_size(size):
    """What is remembered is one bit for each weight: no size may lose some."""
    model = nn.Linear(size, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.0))
    was = torch.rand(size) < 0.5
    now = torch.rand(size) < 0.5
    reports = []
    for mask in (was, now):
        with torch.no_grad():
            model.weight.copy_(mask.float())
        reports.append(sp.summarize(pruner))
    report = reports[1].since(reports[0])
    assert (report.dropped, report.regrown) == (int((was & ~now).sum()), int((now & ~was).sum()))


def test_reports_that_cannot_be_compared():
    first, other = sp.summarize(Run.of("sgd").pruner), sp.summarize(Run.of("sgd", kind="conv").pruner)
    refused(lambda: first.since(other), "must be a report on the same parameters")
    model, shape = sp.summarize(network()), "must be a report on the same parameters"
    refused(lambda: model.since(model), "Got one of a model")
    wider = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))
    optimizer = torch.optim.SGD(wider.parameters(), lr=0.1)
    refused(
        lambda: first.since(sp.summarize(sp.Pruner(sp.select(wider), optimizer, threshold=sp.Constant(0.1)))), shape
    )
    read = sp.Report.from_dict(json.loads(json.dumps(first.to_dict())))
    refused(lambda: first.since(read), "Got one of a model, or one that was read from a file.")


def test_reports_of_earlier_versions_are_read():
    row = sp.summarize(Run.of("sgd").pruner).to_dict()
    del row["left_alone"]
    layers = [{**layer, "left": 3, "returned": 1} for layer in row["layers"]]
    for layer in layers:
        del layer["dropped"], layer["regrown"]
    report = sp.Report.from_dict({**row, "layers": layers})
    assert (report.dropped, report.regrown) == (6, 2)


def test_bf16_weights_are_counted():
    run = Run.of("momentum", dtype=torch.bfloat16)
    run.train()
    assert sp.summarize(run.pruner).zeros == sum(int((p == 0).sum()) for p in run.pruner.params.values()) > 0


def of_a_file(model: nn.Module) -> sp.Report:
    """All but the kinds, which a file does not tell."""
    report = summarize_tensors(model.state_dict())
    assert report.left_alone == {}
    return replace(report, left_alone=sp.summarize(model).left_alone)


def test_a_file_of_recurrent_weights_is_reported_as_its_model():
    model = nn.LSTM(4, 3)
    with torch.no_grad():
        model.weight_ih_l0[:6] = 0
    assert of_a_file(model) == sp.summarize(model)


def test_a_file_is_reported_without_batch_statistics():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    assert of_a_file(model) == sp.summarize(model)
    assert summarize_tensors({"bias": torch.ones(2)}).sparsity == 0.0


def test_a_frozen_model_has_a_report():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with torch.no_grad():
        model[1].weight.zero_()
    whole = sp.summarize(model)
    assert whole.zeros == 8
    model[0].requires_grad_(False)
    assert sp.summarize(model) == whole
    assert sp.summarize(model.requires_grad_(False)) == whole


def test_summarize_takes_a_pruner_or_a_model():
    refused(lambda: sp.summarize([1]), "`summarize` takes a Pruner (and its model), or a model. Got list.", TypeError)
    refused(lambda: sp.summarize(network(), network()), "or a model. Got Sequential.", TypeError)


def test_a_model_with_nothing_to_prune():
    report = sp.summarize(nn.LayerNorm(4))
    assert str(report).splitlines()[0].split() == ["layer", "shape", "parameters", "zeros", "sparsity"]
    assert report.to_markdown().splitlines()[1].count("---") == 5


def test_the_penalty_of_a_resumed_pruner_is_not_known_before_a_step():
    run, other = Run.of("sgd"), Run.of("sgd")
    run.train(range(4))
    other.optimizer.load_state_dict(run.optimizer.state_dict())
    assert sp.summarize(other.pruner).penalty is None
    assert str(sp.summarize(other.pruner)).endswith("After 4 steps.")


def test_landing_late_does_not_change_the_penalty_of_the_last_step():
    run = Run.of("sgd", lambda params: sp.TargetSparsity(0.5, STEPS))
    run.train(range(STEPS - 1))
    before = run.pruner.penalty
    run.pruner.detach()
    assert run.pruner.penalty == before


def test_a_pruner_is_not_summarized_with_another_model():
    layer = nn.Linear(4, 4)
    pruner = sp.Pruner(sp.select(layer), torch.optim.SGD(layer.parameters(), lr=0.1), threshold=sp.Constant(0.1))
    with pytest.raises(ValueError, match=r"`summarize\(pruner, model\)` needs the model that is pruned"):
        sp.summarize(pruner, nn.Linear(4, 3))
