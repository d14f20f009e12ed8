"""Which units a network has, and whether they are what they are said to be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from softprune import models
from softprune.errors import ArgumentError
from softprune.structure import Kind, Structure, analyse
from structure.zoo import ZOO, Net, build


def found(structure: Structure) -> dict[str, int]:
    return {site.name: len(site.units) for site in structure.sites}


@pytest.mark.parametrize("name", ZOO)
def test_units_of_each_network(name: str) -> None:
    net, example, sites = build(name)
    structure = analyse(net, example)
    assert found(structure) == sites
    assert structure.unknown == ()
    numbers = [unit for site in structure.sites for unit in site.units]
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("name", ZOO)
def test_what_nobody_reads_does_not_matter(name: str) -> None:
    """Zeros where a unit is read: whatever makes or follows it, the outputs are the same."""
    net, example, _ = build(name)
    structure = analyse(net, example)
    before = {n: t.clone() for n, t in net.state_dict().items()}
    whole = net(example)
    for site in structure.sites:
        for unit in (site.units[0], site.units[-1]):
            outputs = []
            for factor in (1.0, 7.0):
                state = {n: t.clone() for n, t in before.items()}
                for axis in structure.axes:
                    scale = torch.where(axis.units == unit, 0.0 if axis.reads else factor, 1.0)
                    state[axis.name] *= scale.view([-1 if d == axis.dim else 1 for d in range(state[axis.name].dim())])
                net.load_state_dict(state)
                outputs.append(net(example))
            torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
            assert not torch.allclose(outputs[0], whole)


def test_kinds() -> None:
    kinds = {name: {site.kind for site in analyse(*build(name)[:2]).sites} for name in ("concat", "gated", "attention")}
    assert kinds == {"concat": {Kind.CHANNEL}, "gated": {Kind.NEURON}, "attention": {Kind.HEAD}}


def test_resnet50_has_a_site_for_each_inner_convolution_and_each_stream() -> None:
    structure = analyse(models.resnet50(), torch.zeros(1, 3, 32, 32))
    assert len(structure.sites) == 1 + 16 * 2 + 4
    assert sum(len(site.units) for site in structure.sites) == 64 + 6 * 64 + 8 * 128 + 12 * 256 + 6 * 512 + 15 * 256
    assert {axis.name: len(axis.units) for axis in structure.axes if axis.reads}["fc.weight"] == 2048


def test_mobilenet_follows_through_its_depthwise_layers() -> None:
    structure = analyse(models.mobilenet_v1_cifar(), torch.zeros(1, 3, 32, 32))
    assert list(found(structure).values()) == [32, *(outputs for outputs, _ in models.mobilenet.BLOCKS)]
    assert all(not axis.reads for axis in structure.axes if axis.name == "model.5.0.weight")


@pytest.mark.parametrize(("model", "example"), [
    (models.gpt_small(), torch.zeros(1, 8, dtype=torch.int64)),
    (models.vit_digits(), torch.zeros(1, 1, 8, 8)),
])  # fmt: skip
def test_transformers_have_heads_and_neurons_and_one_stream(model: nn.Module, example: Tensor) -> None:
    width = {"GPT": 512, "VisionTransformer": 256}[type(model).__name__]
    assert list(found(analyse(model, example)).values()) == [4, width] * 4


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_llama_has_key_value_groups(attention: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=1,
        vocab_size=50, attn_implementation=attention,
    )  # fmt: skip
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    example = {"input_ids": torch.arange(8).view(2, 4), "attention_mask": mask}
    structure = analyse(transformers.LlamaForCausalLM(config), example)
    assert [(site.kind, len(site.units)) for site in structure.sites] == [(Kind.HEAD, 2), (Kind.NEURON, 48)]
    queries = next(axis for axis in structure.axes if axis.name.endswith("q_proj.weight"))
    assert torch.equal(queries.units, torch.tensor([0, 1]).repeat_interleave(16))


def test_multihead_attention_is_seen_inside() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    assert found(analyse(layer, torch.randn(2, 3, 8))) == {"self_attn": 2, "linear1": 12}


def test_an_unknown_operation_keeps_what_it_touches() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.last(net.second(net.first(x).sort(-1).values))

    net = Net(forward, first=nn.Linear(4, 5), second=nn.Linear(5, 6), last=nn.Linear(6, 2))
    structure = analyse(net, torch.randn(2, 4))
    assert structure.unknown == ("sort",)
    assert found(structure) == {"second": 6}


def test_constants_that_cannot_shrink_keep_the_channels_they_meet() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.last(net.first(x) * torch.arange(5.0))

    assert analyse(Net(forward, first=nn.Linear(4, 5), last=nn.Linear(5, 2)), torch.randn(2, 4)).sites == ()


def test_one_unit_that_is_repeated_to_a_size_keeps_what_it_meets() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.last(net.first(x) + net.other(x)[:, :1].expand(-1, 5))

    net = Net(forward, first=nn.Linear(4, 5), other=nn.Linear(4, 3), last=nn.Linear(5, 2))
    assert analyse(net, torch.randn(2, 4)).sites == ()


def test_writing_into_a_buffer_keeps_what_is_written() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = torch.zeros(2, 8)
        y[:, :5] = net.first(x)
        return net.last(y)

    assert analyse(Net(forward, first=nn.Linear(4, 5), last=nn.Linear(8, 2)), torch.randn(2, 4)).sites == ()


def test_the_model_is_left_as_it_was() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 2)).train()
    net[2].eval()
    before = {n: t.clone() for n, t in net.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    analyse(net, torch.randn(2, 4, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.rand(1), expected)
    assert [m.training for m in net] == [True, True, False, True]
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())


def test_a_model_without_memory_is_refused() -> None:
    with pytest.raises(ArgumentError, match="not on the meta device"):
        analyse(nn.Linear(2, 2, device="meta"), torch.zeros(1, 2))


def test_rows_that_are_chosen_by_number_stay() -> None:
    """The head is the embedding; what it gives is read, but a table without some rows gives other rows."""

    def forward(net: Net, tokens: Tensor) -> Tensor:
        return net.last(nn.functional.linear(net.table(tokens), net.table.weight))

    net = Net(forward, table=nn.Embedding(7, 4), last=nn.Linear(7, 2))
    assert found(analyse(net, torch.tensor([[1, 2]]))) == {"table": 4}


def test_a_parameter_that_is_summed_elsewhere_stays() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.last(net.first(x) * net.scale + net.scale.sum())

    net = Net(forward, first=nn.Linear(4, 5), scale=nn.Parameter(torch.rand(5)), last=nn.Linear(5, 2))
    assert analyse(net, torch.randn(2, 4)).sites == ()


def test_a_scale_of_channels_that_also_scales_each_head_stays() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = nn.functional.batch_norm(net.first(x), net.mean, net.variance, net.scale)
        q, k, v = net.qkv(y).view(-1, 1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return net.last(nn.functional.scaled_dot_product_attention(q * net.scale, k, v).flatten(1))

    layers = {"first": nn.Linear(5, 4), "qkv": nn.Linear(4, 24), "last": nn.Linear(8, 2)}
    net = Net(forward, **layers, scale=nn.Parameter(torch.rand(4)), mean=torch.zeros(4), variance=torch.ones(4))
    assert found(analyse(net, torch.randn(3, 5))) == {"qkv": 2}


def test_what_is_returned_stays() -> None:
    def forward(net: Net, x: Tensor) -> dict[str, list[Tensor]]:
        hidden = net.first(x)
        return {"outputs": [hidden, net.last(net.second(hidden))]}

    net = Net(forward, first=nn.Linear(4, 5), second=nn.Linear(5, 6), last=nn.Linear(6, 2))  # type: ignore[arg-type]
    assert found(analyse(net, torch.randn(2, 4))) == {"second": 6}


def test_a_unit_that_is_all_of_a_layer_stays() -> None:
    """The channels 0, 1, 2 of ``first`` are one unit by the norm; its channel 3 is one with all of ``other``."""

    def forward(net: Net, x: Tensor) -> Tensor:
        x = net.first(x)
        return net.last(nn.functional.group_norm(torch.cat([x, net.other(x)], 1), 2))

    net = Net(forward, first=nn.Conv2d(3, 4, 1), other=nn.Conv2d(4, 2, 1), last=nn.Conv2d(6, 2, 1))
    assert analyse(net, torch.randn(1, 3, 4, 4)).sites == ()


def test_outputs_that_cannot_be_seen_are_refused() -> None:
    class Box:
        def __init__(self, value: Tensor) -> None:
            self.value = value

    def forward(net: Net, x: Tensor) -> Box:
        return Box(net.first(x))

    with pytest.raises(ArgumentError, match="returns Box, in which no tensor is found"):
        analyse(Net(forward, first=nn.Linear(4, 5)), torch.randn(2, 4))  # type: ignore[arg-type]


def test_the_layout_of_images_does_not_matter():
    """Pooled to one pixel in channels_last, an image gets other strides."""
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
        )
        structure = analyse(model.to(memory_format=layout), torch.zeros(2, 3, 8, 8).to(memory_format=layout))
        assert structure.unknown == ()
        found.append([(axis.name, axis.dim, axis.units.tolist()) for axis in structure.axes])
    assert found[0] == found[1]
    assert ("5.weight", 1, list(range(8))) in found[0]
