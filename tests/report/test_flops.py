"""Multiplications for each weight, as the model does them."""

import pytest
import torch
from torch import nn

import softprune as sp
from softprune.models import resnet50


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
    model = resnet50()
    uses = sp.flops_per_weight(model, torch.zeros(1, 3, 224, 224))
    total = sum(uses[name] * p.numel() for name, p in sp.select(model).items())
    assert total == 4_089_184_256


def test_flops_are_seen_in_inference_mode():
    model = nn.Linear(4, 2, bias=False)
    with torch.inference_mode():
        assert sp.flops_per_weight(model, torch.ones(3, 4)) == {"weight": 1.0}


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
