"""2:4 weights as torch's semi-structured tensors; what needs a GPU is in test_gpu.py."""

import pytest
import torch
from torch import Tensor, nn

import softprune as sp
from softprune.layouts import to_semi_structured
from softprune.layouts.convert import _why_not_semi_structured, two_of_four
from softprune.prox.nm import NM


def pruned(inputs: int, outputs: int, n: int = 2) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    layer.weight.data = NM(n, 4)(layer.weight.data, 100.0)
    return layer


@pytest.mark.parametrize(
    ("row", "holds"),
    [
        ([1, 0, 2, 0], True),
        ([1, 0, 0, 0], True),
        ([0, 0, 0, 0], True),
        ([1, 0, 2, 3], False),
        ([0, 0, 1, 1, 1, 1, 0, 0], True),
        ([0, 1, 1, 1, 1, 0, 0, 0], False),
        ([1, 1, 0, 0, 0, 0], False),
    ],
)
def test_two_of_four_are_neighbours_in_whole_groups(row, holds):
    assert two_of_four(torch.tensor([row, row]).float()) is holds


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (pruned(32, 16).bfloat16(), ""),
        (pruned(32, 16).half(), ""),
        (pruned(32, 16), "its weights are float32, not half precision: `model.bfloat16()`"),
        (pruned(32, 24).bfloat16(), "its sides are no multiples of 16"),
        (pruned(32, 16, n=3).bfloat16(), "more than 2 of 4 neighbours are left somewhere"),
    ],
)
def test_a_layer_that_stays_dense_says_why(layer, reason):
    assert _why_not_semi_structured(layer) == reason


def test_without_a_gpu_a_sentence_says_what_it_needs():
    with pytest.raises(sp.errors.UsageError, match=r"compute capability 8.0 or more .* It is on cpu"):
        to_semi_structured(nn.Sequential(pruned(32, 16)))
    with pytest.raises(sp.errors.ArgumentTypeError, match=r"must be a module. Got Tensor"):
        to_semi_structured(Tensor())
