"""Every prunable weight, and nothing else, under its plain name."""

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import network
from softprune.errors import ArgumentError


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
def test_prunable_weights(module, names):
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
    with pytest.raises(ValueError, match=r"'experts\.\*' matches no prunable weight, only experts\.up\. Give"):
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
        (None, (), ["a.weight", "b.weight", "head.weight"]),  # no embedding
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
    assert list(chosen) == names
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


def language_model(head: nn.Module) -> nn.ModuleDict:
    return nn.ModuleDict({"embed": nn.Embedding(5, 4), "up": nn.Linear(4, 5), "down": nn.Linear(5, 4), "head": head})


def test_the_head_of_a_language_model_is_left_alone():
    """The last linear layer, if it has the shape of an embedding; others of that shape are no heads."""
    model = language_model(nn.Linear(4, 5))
    assert list(sp.select(model)) == ["up.weight", "down.weight"]
    assert list(sp.select(model, include=["*", "head.weight"])) == ["up.weight", "down.weight", "head.weight"]
    with pytest.raises(
        ArgumentError, match=r"'head\.\*' matches no prunable weight, only head\.weight, head\.bias\. Give"
    ):
        sp.select(model, include=["head.*"])
    normed = language_model(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)))
    assert list(sp.select(normed)) == ["up.weight", "down.weight"]  # what is left alone is not refused


def test_the_last_layer_of_a_classifier_is_pruned():
    assert "head.weight" in sp.select(language_model(nn.Linear(4, 3)))
    assert "2.weight" in sp.select(network())


def test_a_model_that_names_its_head_is_believed():
    """As those of Hugging Face do, wherever they are in the model; a classifier among them names none."""

    class Naming(nn.Module):
        def __init__(self, head):
            super().__init__()
            self.lm_head, self.names = nn.Linear(4, 7), head
            self.rest = language_model(nn.Linear(4, 5))

        def get_output_embeddings(self):
            return self.lm_head if self.names else None

    rest = ["rest.up.weight", "rest.down.weight", "rest.head.weight"]
    assert list(sp.select(Naming(True))) == rest
    assert list(sp.select(Naming(False))) == ["lm_head.weight", *rest]
    assert list(sp.select(nn.Sequential(Naming(True), nn.Linear(4, 5)))) == [
        *(f"0.{name}" for name in rest),
        "1.weight",
    ]


def test_experts_in_one_tensor_are_weights():
    experts = {
        "gate_up_proj": torch.ones(2, 8, 4),
        "gate_up_proj_bias": torch.ones(2, 8),
        "down_proj": torch.ones(2, 4, 4),
    }
    model = nn.ModuleDict({"experts": nn.ParameterDict(experts), "router": nn.Linear(4, 2)})
    assert set(sp.select(model)) == {"experts.gate_up_proj", "experts.down_proj", "router.weight"}


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, lambda model: nn.DataParallel(torch.compile(model))])
def test_wrappers_do_not_show_in_the_names(wrap):
    model = network()
    assert list(sp.select(wrap(model))) == ["0.weight", "2.weight"]
    assert all(p is q for p, q in zip(sp.select(wrap(model)).values(), sp.select(model).values(), strict=True))


def test_a_compiled_part_is_searched_too():
    model = network()
    model[0] = torch.compile(model[0])
    assert list(sp.select(model).values()) == [model[0].weight, model[2].weight]


def test_spectral_norm_keeps_zeros_so_its_weights_are_selected_and_pruned():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 5)), nn.Tanh(), nn.Linear(5, 3))
    params = sp.select(model)
    assert set(params) == {"0.parametrizations.weight.original", "2.weight"}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sp.Pruner(params, optimizer, threshold=sp.Constant(0.1, start=1))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
    assert (model[0].weight == 0).any()
    assert torch.equal(model[0].weight == 0, params["0.parametrizations.weight.original"] == 0)


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize(
    "parametrized",
    [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.orthogonal],
    ids=["weight norm by hooks", "weight norm", "orthogonal"],
)
def test_other_parametrizations_are_refused_until_they_are_excluded(parametrized):
    """A row of zeros has no direction; an orthogonal matrix is not sparse where its original is."""
    model = nn.Sequential(parametrized(nn.Linear(4, 3)), nn.Linear(3, 2))
    for include in (None, ["*"], ["0.*"]):
        with pytest.raises(ArgumentError, match=r"^Cannot prune 0\.[\w., ]+\. This is because a parametrization"):
            sp.select(model, include=include)
    assert list(sp.select(model, exclude=["0.*"])) == ["1.weight"]
    assert list(sp.select(model, include=["1.*"])) == ["1.weight"]
    assert [layer.name for layer in sp.summarize(model).layers] == ["1.weight"]


def test_weight_norm_of_a_recurrent_layer_is_refused_too():
    model = nn.utils.parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0")
    with pytest.raises(ArgumentError, match=r"Cannot prune parametrizations\.weight_hh_l0\.original0, "):
        sp.select(model)
    assert list(sp.select(model, exclude=["*.weight_hh_l0.*"])) == ["weight_ih_l0"]


def test_models_of_which_nothing_is_trained():
    with pytest.raises(ArgumentError, match=r"^`select` found nothing to prune: all 4 parameters are frozen\.$"):
        sp.select(network().requires_grad_(False))
    with pytest.raises(ArgumentError, match=r"^`select` found nothing to prune: the model has no parameters\.$"):
        sp.select(nn.ReLU())


def test_arguments_of_another_kind_are_refused_in_sentences():
    with pytest.raises(TypeError, match=r"^`select\(model\)` must be given a module\. Got OrderedDict\.$"):
        sp.select(network().state_dict())
    for include in ([nn.Linear], nn.Linear, [0]):
        with pytest.raises(TypeError, match=r"^`select\(include=...\)` must be a list of patterns for parameter"):
            sp.select(network(), include=include)
