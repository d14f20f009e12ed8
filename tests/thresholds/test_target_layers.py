"""A target layer by layer: budgets, and densities that no layer falls below."""

import pytest
import torch
from torch import nn
from torch.optim import SGD

import softprune as sp
from digit_classifier import run


def zeros(model: nn.Module) -> dict[str, float]:
    return {layer.name: layer.sparsity for layer in sp.summarize(model).layers}


@pytest.mark.parametrize(
    ("target", "budget"),
    [
        (0.9, sp.uniform),
        (0.9, sp.erdos_renyi),
        (0.9, sp.erk),
        (0.861, {"0": 0.2, "3": 0.95, "7": 0.8}),
        (0.936, {"0": 0.0, "3": 0.95, "7": 0.95}),
    ],
)
def test_a_budget_is_kept_by_every_parameter(target, budget):
    _, pruner = run(target=target, budget=budget)
    table = budget(pruner.params, target) if callable(budget) else {f"{name}.weight": s for name, s in budget.items()}
    wanted = {name: table[name] * p.numel() for name, p in pruner.params.items()}
    zeros = {name: int((p == 0).sum()) for name, p in pruner.params.items()}
    assert all(abs(zeros[name] - wanted[name]) < 1 for name in wanted)
    assert sum(zeros.values()) == round(sum(wanted.values()))


def test_no_layer_falls_below_the_minimum_and_the_target_is_met_all_the_same():
    model, pruner = run(target=0.975, min_density=0.02)
    assert pruner.sparsity() == pytest.approx(0.975, abs=1e-3)
    for name, p in pruner.params.items():
        assert int((p != 0).sum()) >= 0.02 * p.numel(), name
    assert any(0.019 < 1 - sparsity < 0.021 for sparsity in zeros(model).values())  # the guard had work to do


def test_equal_weights_do_not_empty_a_guarded_layer():
    """Those as large as the smallest that must stay, stay too."""
    torch.manual_seed(0)
    params = {f"{i}": nn.Parameter(0.01 * torch.randn(100, dtype=torch.bfloat16)) for i in range(100)}
    opt = SGD(params.values(), lr=0.0)
    pruner = sp.Pruner(params, opt, threshold=sp.TargetSparsity(0.98, 1, min_density=0.01))
    opt.step()
    assert all((p != 0).any() for p in params.values())
    assert pruner.sparsity() == pytest.approx(0.98, abs=0.01)


def test_an_unguarded_layer_that_dies_is_named():
    with pytest.warns(UserWarning, match=r"Nothing is left of 0\.weight\."):
        run(target=0.901, min_density=0.0, budget={"0": 1.0, "3": 0.9, "7": 0.9})


@pytest.mark.parametrize(
    "threshold",
    [
        sp.TargetSparsity(0.9, 20, min_density=0.0),
        sp.TargetSparsity(0.9, 20, min_density=0.0, arrive=0.05),
        sp.GradualSparsity(0.9, 20, min_density=0.0),
    ],
)
def test_a_layer_that_dies_is_named_whoever_looks(threshold):
    small, large = nn.Parameter(1e-3 * torch.rand(100)), nn.Parameter(1 + torch.rand(400))
    opt = SGD([small, large], lr=0.0)
    pruner = sp.Pruner({"small": small, "large": large}, opt, threshold=threshold)

    def train():
        for _ in range(20):
            opt.step()

    with pytest.warns(UserWarning, match=r"Nothing is left of small\."):
        train()
    pruner.detach()
    assert not small.any()


@pytest.mark.parametrize(("side", "target"), [(3, 0.84), (4, 0.9)])
def test_a_budget_of_tiny_layers_has_the_sum_it_promises(side, target):
    torch.manual_seed(0)
    model = nn.ModuleList(nn.Linear(side, side, bias=False) for _ in range(200))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    threshold = sp.TargetSparsity(target, 3, budget=sp.uniform, min_density=0)
    with sp.Pruner(sp.select(model), optimizer, threshold=threshold) as pruner:
        for _ in range(3):
            optimizer.zero_grad(set_to_none=False)
            optimizer.step()
        assert pruner.sparsity() == pytest.approx(target, abs=1e-3)
