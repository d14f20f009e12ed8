"""Every weight that multiplies, and nothing else, under its plain name."""

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import network


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (nn.Linear(4, 4), ["weight"]),
        (nn.Bilinear(2, 3, 4), ["weight"]),
        (nn.Conv1d(2, 3, 3), ["weight"]),
        (nn.ConvTranspose2d(2, 3, 3), ["weight"]),
        (nn.Conv3d(2, 3, 3, groups=1), ["weight"]),
        (nn.LSTM(3, 4), ["weight_ih_l0", "weight_hh_l0"]),
        (nn.LSTM(3, 4, proj_size=2), ["weight_ih_l0", "weight_hh_l0", "weight_hr_l0"]),
        (nn.GRUCell(3, 4), ["weight_ih", "weight_hh"]),
        (nn.MultiheadAttention(4, 2), ["in_proj_weight", "out_proj.weight"]),
        (
            nn.MultiheadAttention(4, 2, kdim=3, vdim=5),
            ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"],
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_weights_that_multiply(module, names):
    assert list(sp.select(module)) == names


@pytest.mark.parametrize(
    "module",
    [
        nn.Embedding(5, 4),
        nn.EmbeddingBag(5, 4),
        nn.LayerNorm((3, 4)),  # its weight has two dimensions, and scales
        nn.RMSNorm((3, 4)),
        nn.GroupNorm(2, 4),
        nn.BatchNorm2d(4),
        nn.SyncBatchNorm(4),
        nn.InstanceNorm1d(4, affine=True),
        nn.PReLU(3),
    ],
    ids=lambda module: type(module).__name__,
)
def test_what_looks_up_or_scales_is_left_out(module):
    model = nn.Sequential(module, nn.Linear(4, 2))
    assert list(sp.select(model)) == ["1.weight"]


def test_weights_are_told_by_their_name():
    """A positional embedding or a token is a matrix and multiplies nothing."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.position = nn.Parameter(torch.zeros(1, 5, 4))
            self.weight = nn.Parameter(torch.zeros(4, 4))

    assert list(sp.select(Model())) == ["weight"]
    assert list(sp.select(Model(), include=["position"])) == ["position"]


def test_a_pattern_that_selects_nothing_is_refused():
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "experts": nn.ParameterDict({"up": torch.zeros(2, 4, 4)})})
    with pytest.raises(
        ValueError, match=r"'experts\.\*' matches no weight that multiplies, .*: only experts\.up\. Give"
    ):
        sp.select(model, include=["a.*", "experts.*"])
    assert list(sp.select(model, include=["a.*", "experts.up"])) == ["a.weight", "experts.up"]


def test_frozen_weights_are_left_out():
    model = network()
    model[0].weight.requires_grad_(False)
    assert list(sp.select(model)) == ["2.weight"]
    with pytest.raises(ValueError, match=r"pattern '0\.weight' matches no trainable parameter"):
        sp.select(model, include=["0.weight"])


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (None, (), ["embed.weight is out", "a.weight", "b.weight", "head.weight"]),
        (None, ["head.*"], ["a.weight", "b.weight"]),
        (["*"], (), ["a.weight", "b.weight", "head.weight"]),  # a pattern widens nothing
        (["a.*", "head.weight"], (), ["a.weight", "head.weight"]),
        (["[ab].*"], ["b.*"], ["a.weight"]),
        (["embed.weight", "a.*"], (), ["embed.weight", "a.weight"]),  # a full name does
        (["head.bias"], (), ["head.bias"]),
        (["a.weight", "b.weight"], ["a.weight"], ["b.weight"]),  # exclude has the last word
    ],
)
def test_include_keeps_and_exclude_then_drops(include, exclude, names):
    model = nn.ModuleDict(
        {"embed": nn.Embedding(5, 4), "a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "head": nn.Linear(4, 2)}
    )
    chosen = sp.select(model, include=include, exclude=exclude)
    assert list(chosen) == [name for name in names if " " not in name]
    assert all(p is model.get_parameter(name) for name, p in chosen.items())


def test_tied_parameters_appear_once_even_with_an_embedding():
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    model["b"].weight = model["a"].weight
    assert list(sp.select(model)) == ["a.weight"]
    tied = nn.ModuleDict({"embed": nn.Embedding(5, 4), "head": nn.Linear(4, 5), "a": nn.Linear(4, 4)})
    tied["head"].weight = tied["embed"].weight
    assert list(sp.select(tied)) == ["a.weight"]
    tied = nn.ModuleDict({"head": nn.Linear(4, 5), "embed": nn.Embedding(5, 4), "a": nn.Linear(4, 4)})
    tied["embed"].weight = tied["head"].weight
    assert list(sp.select(tied)) == ["a.weight"]  # in either order


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, lambda model: nn.DataParallel(torch.compile(model))])
def test_wrappers_do_not_show_in_the_names(wrap):
    model = network()
    assert list(sp.select(wrap(model))) == ["0.weight", "2.weight"]
    assert all(p is q for p, q in zip(sp.select(wrap(model)).values(), sp.select(model).values(), strict=True))


def test_a_compiled_part_is_searched_too():
    model = network()
    model[0] = torch.compile(model[0])
    assert list(sp.select(model).values()) == [model[0].weight, model[2].weight]


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_weight_normed_layers_are_left_out():
    """A row of zeros has no direction."""
    for norm in (nn.utils.weight_norm, nn.utils.parametrizations.weight_norm):
        model = nn.Sequential(norm(nn.Linear(4, 3)), nn.Linear(3, 2))
        assert list(sp.select(model)) == ["1.weight"]
