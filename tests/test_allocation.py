"""Budgets sum to what they promise."""

import pytest
import torch
from torch import nn

import softprune as sp
from softprune.models import build

PARAMS = sp.select(build("resnet18_cifar", 10))
SIZE = sum(p.numel() for p in PARAMS.values())


@pytest.mark.parametrize("budget", [sp.uniform, sp.erdos_renyi, sp.erk])
@pytest.mark.parametrize("target", [0.0, 0.5, 0.9, 0.98, 0.995])
def test_the_sum_is_the_target(budget, target):
    shares = budget(PARAMS, target)
    assert list(shares) == list(PARAMS)
    assert all(0 <= share <= 1 for share in shares.values())
    assert sum(shares[name] * p.numel() for name, p in PARAMS.items()) == pytest.approx(target * SIZE, rel=1e-12)


def test_erk_by_hand():
    """Two layers: densities in the ratio of (4 + 2 + 3 + 3) / 72 to (10 + 10) / 100."""
    shares = sp.erk({"conv": torch.empty(4, 2, 3, 3), "linear": torch.empty(10, 10)}, 0.9)
    conv, linear = 1 - shares["conv"], 1 - shares["linear"]
    assert conv / linear == pytest.approx((12 / 72) / (20 / 100))
    assert 72 * conv + 100 * linear == pytest.approx(17.2)


def test_a_layer_that_would_be_more_than_dense_is_dense_and_the_rest_makes_up_for_it():
    shares = sp.erdos_renyi({"tiny": torch.empty(2, 2), "large": torch.empty(100, 100)}, 0.5)
    assert shares["tiny"] == 0.0
    assert 10_000 * shares["large"] == pytest.approx(0.5 * 10_004)


def test_flops_per_weight_by_hand():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 25, 4))
    uses = sp.flops_per_weight(model, torch.zeros(7, 3, 10, 10))
    assert uses == {"0.weight": 25.0, "3.weight": 1.0}
    assert model.training
    assert not model[0]._forward_hooks
    frozen = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2).eval(), nn.Linear(2, 2))
    sp.flops_per_weight(frozen, torch.zeros(3, 2))
    assert [module.training for module in frozen] == [True, False, True]
    tokens = sp.flops_per_weight(nn.Linear(6, 5), torch.zeros(2, 11, 6))
    assert tokens == {"weight": 11.0}


def test_resnet50_multiplies_four_billion_times():
    model = build("resnet50", 1000)
    uses = sp.flops_per_weight(model, torch.zeros(1, 3, 224, 224))
    total = sum(uses[name] * p.numel() for name, p in sp.select(model).items())
    assert total == 4_089_184_256


def test_flops_count_samples_and_not_rows():
    class Flat(nn.Module):
        """Tokens of all samples in one row of a matrix, and the same weight twice."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.up = nn.Linear(6, 6), nn.Linear(6, 6), nn.ConvTranspose1d(6, 2, 3)
            self.second.weight = self.first.weight

        def forward(self, batch):
            tokens = batch["tokens"]
            return self.up(self.second(self.first(tokens.flatten(0, 1))).view(tokens.shape).transpose(1, 2))

    uses = sp.flops_per_weight(Flat(), {"name": "x", "tokens": torch.zeros(2, 11, 6)})
    assert uses == {"first.weight": 22.0, "up.weight": 11.0}
    with pytest.raises(ValueError, match="at least one sample"):
        sp.flops_per_weight(nn.Linear(2, 2), torch.zeros(0, 2))
    with pytest.raises(ValueError, match="not on the meta device"):
        sp.flops_per_weight(nn.Linear(2, 2, device="meta"), torch.zeros(1, 2, device="meta"))


def test_flops_of_attention_and_recurrence():
    tokens, width = 7, 8
    attention = nn.TransformerEncoderLayer(width, nhead=2, dim_feedforward=16, batch_first=True)
    uses = sp.flops_per_weight(attention, torch.randn(3, tokens, width))
    assert uses == dict.fromkeys(sp.select(attention), float(tokens))
    crossed = nn.MultiheadAttention(width, 2, batch_first=True)
    uses = sp.flops_per_weight(crossed, torch.randn(3, 4, width), *(torch.randn(3, 10, width),) * 2)
    assert uses == {"in_proj_weight": (4 + 10 + 10) / 3, "out_proj.weight": 4.0}
    lstm = nn.LSTM(width, 5, num_layers=2, bidirectional=True, batch_first=True)
    assert sp.flops_per_weight(lstm, torch.randn(3, tokens, width)) == dict.fromkeys(sp.select(lstm), float(tokens))
    cast = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    with torch.autocast("cpu", torch.bfloat16):
        assert sp.flops_per_weight(cast, torch.randn(3, 6)) == {"0.weight": 1.0, "1.weight": 1.0}


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


def test_equal_weights_in_double_precision():
    model = nn.Linear(10, 10, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(5.0).view(-1)[:90] = 0.7  # not a number of single precision
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sp.Pruner(sp.select(model), optimizer, threshold=sp.TargetSparsity(0.9, 3)) as pruner:
        for _ in range(3):
            optimizer.step()
        assert pruner.sparsity() == 0.9
