"""What `select` refuses."""

import pytest
from torch import nn

import softprune as sp
from oracles import network, refused


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_a_pattern_that_matches_nothing(argument):
    text = f"`select({argument}=...)` pattern '2.wieght' matches no trainable parameter. Candidates: 2.weight"
    refused(lambda: sp.select(network(), **{argument: ["2.wieght"]}), text)
    text = f"`select({argument}=...)` must be a list of patterns. Got the string '2.*': write `{argument}=['2.*']`."
    refused(lambda: sp.select(network(), **{argument: "2.*"}), text, TypeError)


def test_a_selection_of_nothing():
    text = "name, and that is no embedding, no normalisation and no head of a language model. Candidates: "
    refused(lambda: sp.select(nn.LayerNorm(4)), text + "weight, bias.")
    refused(lambda: sp.select(network(), exclude=["*"]), text + "0.weight, 0.bias, 2.weight, 2.bias.")
    refused(lambda: sp.select(nn.Sequential(*(nn.LayerNorm(2) for _ in range(9)))), "6 more.")


def test_a_model_without_shapes():
    text = "0.weight, 0.bias have no shape yet. Run one batch through the model first."
    refused(lambda: sp.select(nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2))), text)
