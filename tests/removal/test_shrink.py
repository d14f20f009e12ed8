"""Smaller networks that compute the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune

from softprune import models
from softprune.errors import ArgumentError, ArgumentTypeError
from softprune.removal import Shrunk, shrink
from softprune.structure import Structure, analyse
from structure.zoo import ZOO, Net, build


def kill(model: nn.Module, structure: Structure, units: list[int], reads: bool) -> None:
    """Zeros where these units are read, or else where they are made."""
    own = dict(model.named_parameters())
    for axis in structure.axes:
        if axis.reads == reads and axis.name in own:
            dead = torch.isin(axis.units, torch.tensor(units))
            own[axis.name].data[(slice(None),) * axis.dim + (dead,)] = 0


def after(shrunk: Shrunk) -> dict[str, int]:
    return {change.name: change.after for change in shrunk.sites}


def compare(model: nn.Module, shrunk: Shrunk, example: Any, tolerance: float) -> None:
    inputs = example if isinstance(example, tuple) else (example,)
    inputs = tuple(torch.randn_like(x) if x.is_floating_point() else x for x in inputs)
    expected, got = model.eval()(*inputs), shrunk.model.eval()(*inputs)
    assert (expected - got).abs().max() <= tolerance * expected.abs().max()


def every_other(structure: Structure) -> list[int]:
    return [unit for site in structure.sites for unit in list(site.units)[::2]]


UNREAD = [(name, True) for name in ZOO]
# An embedding that is the head makes what it reads; a weight that is reshaped is not known to read constants.
CONSTANT = [(name, False) for name in ZOO if name not in ("shared", "einsum")]


@pytest.mark.parametrize(("name", "reads"), UNREAD + CONSTANT)
def test_half_of_each_network(name: str, reads: bool) -> None:
    net, example, sites = build(name)
    structure = analyse(net, example)
    kill(net, structure, every_other(structure), reads)
    before = {n: t.clone() for n, t in net.state_dict().items()}
    shrunk = shrink(net, example)
    assert after(shrunk) == {site: count // 2 for site, count in sites.items()}
    assert shrunk.parameters[1] < shrunk.parameters[0]
    assert shrunk.multiplications[1] < shrunk.multiplications[0]
    compare(net, shrunk, example, 1e-10)
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())


@pytest.mark.parametrize(("model", "example"), [
    (models.resnet50, torch.randn(1, 3, 32, 32)),
    (models.resnet18_cifar, torch.randn(1, 3, 16, 16)),
    (models.resnet20, torch.randn(1, 3, 16, 16)),
    (models.mobilenet_v1_cifar, torch.randn(1, 3, 16, 16)),
    (models.gpt_small, torch.randint(256, (2, 8))),
    (models.vit_digits, torch.randn(2, 1, 8, 8)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_half_of_our_models(model: Any, example: Tensor, dtype: torch.dtype) -> None:
    net = model().to(dtype)
    example = example.to(dtype) if example.is_floating_point() else example
    structure = analyse(net, example)
    kill(net, structure, every_other(structure), reads=True)
    shrunk = shrink(net, example)
    assert all(change.after == change.before // 2 for change in shrunk.sites)
    compare(net, shrunk, example, 1e-10 if dtype == torch.float64 else 1e-5)
    assert all(p.dtype == dtype for p in shrunk.model.parameters())


def test_constants_go_through_norms_and_activations_into_the_bias() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 3, bias=False), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    ).double()  # fmt: skip
    with torch.no_grad():
        net[0].weight[:3] = 0
        net[1].bias.copy_(torch.randn(8))
    shrunk = shrink(net, torch.randn(2, 3, 6, 6, dtype=torch.float64))
    assert after(shrunk) == {"0": 5, "3": 4}
    assert shrunk.model[3].bias is not None
    compare(net, shrunk, torch.randn(2, 3, 9, 9, dtype=torch.float64), 1e-10)


@pytest.mark.parametrize("activation", [nn.Hardswish, nn.LogSigmoid, nn.Hardsigmoid, nn.Mish, nn.Softplus, nn.ELU])
def test_every_activation_lets_dead_channels_through(activation: type[nn.Module]) -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8), activation(), nn.Conv2d(8, 4, 1)).double()
    with torch.no_grad():
        net[0].weight[:3] = 0
        net[3].weight[:, 5] = 0
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    shrunk = shrink(net, x)
    assert after(shrunk) == {"0": 4}
    compare(net, shrunk, x, 1e-10)


def test_a_constant_that_a_padded_convolution_reads_stays_unless_it_is_zero() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1), nn.Flatten(), nn.Linear(64, 2))
    with torch.no_grad():
        net[0].weight[:4] = 0
        net[0].bias[:4] = torch.tensor([1.0, 2.0, -1.0, -2.0])
    shrunk = shrink(net, torch.randn(1, 3, 4, 4))
    assert after(shrunk)["0"] == 6
    compare(net, shrunk, torch.randn(1, 3, 4, 4), 1e-6)


def test_death_spreads_backwards() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        net[4].weight[:, :3] = 0  # nobody reads the first three of the second layer,
        net[2].weight[3:, :5] = 0  # and they alone read the first five of the first
    shrunk = shrink(net, torch.randn(2, 4))
    assert after(shrunk) == {"0": 1, "2": 3}
    compare(net, shrunk, torch.randn(2, 4), 1e-6)


def test_nothing_is_dead() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    shrunk = shrink(net, torch.randn(2, 4))
    assert str(shrunk) == "Nothing is dead: the network stays as it is."
    assert shrunk.parameters[0] == shrunk.parameters[1]


def test_everything_is_dead() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        net[2].weight.zero_()
    shrunk = shrink(net, torch.randn(2, 4))
    assert after(shrunk) == {"0": 1}
    compare(net, shrunk, torch.randn(2, 4), 1e-6)


def test_a_size_in_the_forward_pass_is_left_alone_and_the_rest_goes() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.out(net.second(net.first(x).view(-1, 6).relu()).relu())

    net = Net(forward, first=nn.Linear(4, 6), second=nn.Linear(6, 8), out=nn.Linear(8, 2))
    with torch.no_grad():
        net.second.weight[:, :3] = 0
        net.out.weight[:, :4] = 0
    shrunk = shrink(net, torch.randn(2, 4))
    assert after(shrunk) == {"first": 6, "second": 4}
    assert "left alone: its forward pass needs the size" in str(shrunk)
    compare(net, shrunk, torch.randn(2, 4), 1e-6)


def test_a_size_that_changes_the_values_is_left_alone() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.first(x).relu()
        return net.out(y / y.shape[-1])

    net = Net(forward, first=nn.Linear(4, 6), out=nn.Linear(6, 2))
    with torch.no_grad():
        net.out.weight[:, :3] = 0
    shrunk = shrink(net, torch.randn(2, 4))
    assert after(shrunk) == {"first": 6}
    assert "left alone: the outputs would differ" in str(shrunk)


def test_multihead_attention_keeps_its_heads_and_loses_neurons() -> None:
    net = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    with torch.no_grad():
        net.self_attn.out_proj.weight[:, :4] = 0
        net.linear2.weight[:, ::2] = 0
    shrunk = shrink(net, torch.randn(2, 3, 8))
    assert after(shrunk) == {"self_attn": 2, "linear1": 6}
    compare(net, shrunk, torch.randn(2, 3, 8), 1e-5)


def test_an_unknown_operation_is_named() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.last(net.first(x).sort(-1).values)

    net = Net(forward, first=nn.Linear(4, 5), last=nn.Linear(5, 2))
    with torch.no_grad():
        net.last.weight[:, :2] = 0
    assert "what goes through sort" in str(shrink(net, torch.randn(2, 4)))


def test_tied_weights_stay_tied() -> None:
    net, example, _ = build("shared")
    structure = analyse(net, example)
    kill(net, structure, [0, 2], reads=True)
    kill(net, structure, [0, 2], reads=False)
    net.again = nn.Linear(6, 11, bias=False)
    net.again.weight = net.table.weight
    shrunk = shrink(net, example)
    assert shrunk.model.again.weight is shrunk.model.table.weight
    assert shrunk.model.table.weight.shape == (11, 4)


def test_modes_flags_and_buffers_are_kept() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)).train()
    net[3].eval()
    net[0].weight.requires_grad_(False)
    with torch.no_grad():
        net[3].weight[:, :3] = 0
    small = shrink(net, torch.randn(2, 4)).model
    assert [m.training for m in small] == [True, True, True, False] == [m.training for m in net]
    assert not small[0].weight.requires_grad
    assert small[3].weight.requires_grad
    assert small[1].num_features == 3 == len(small[1].running_var)
    assert copy.deepcopy(small)(torch.randn(2, 4)).shape == (2, 2)


def test_writing_in_place_is_seen() -> None:
    """What is written through a view reaches the whole: the channels that look constant are not."""

    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.first(x)
        z = y.view(-1, 6)
        z += net.other(x)
        return net.out(y)

    net = Net(forward, first=nn.Linear(4, 6), other=nn.Linear(4, 6), out=nn.Linear(6, 2))
    with torch.no_grad():
        net.first.weight[:3] = 0
    shrunk = shrink(net, torch.randn(1, 4))
    assert after(shrunk) == {"first": 6}
    assert shrunk.sites[0].dead == 0


def test_a_constant_times_what_varies_varies() -> None:
    net, example, _ = build("gated")
    with torch.no_grad():
        net.gate.weight[:3] = 0
        net.gate.bias[0] = 0  # silu(0) = 0: this one alone is dead
    shrunk = shrink(net, example[:1, :1])
    assert (shrunk.sites[0].dead, shrunk.sites[0].after) == (1, 6)
    compare(net, shrunk, example, 1e-10)


def test_a_constant_that_differs_at_the_border_of_larger_images_stays() -> None:
    """On an image of one pixel nobody could tell."""
    net = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 1)).double()
    with torch.no_grad():
        net[0].weight[0] = 0
        net[1].weight[0, 1] = 0
    shrunk = shrink(net, torch.randn(1, 3, 1, 1, dtype=torch.float64))
    compare(net, shrunk, torch.randn(1, 3, 5, 5, dtype=torch.float64), 1e-10)


class OverTime(nn.Module):
    """Half of its neurons are numbers; what the head reads is made of them over time."""

    def __init__(self, summary: Any) -> None:
        super().__init__()
        self.up, self.head, self.summary = nn.Linear(8, 16), nn.Linear(16, 3), summary
        with torch.no_grad():
            self.up.weight[:8] = 0

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.summary(torch.sigmoid(self.up(x))))


SUMMARIES = {
    "mean": (lambda x: x.mean(1), 8),
    "sum": (lambda x: x.sum(1), 16),
    "norm": (lambda x: x.norm(dim=1), 16),
    "last sum": (lambda x: x.cumsum(1)[:, -1], 16),
}


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("name", SUMMARIES)
def test_a_number_that_is_another_at_another_length_stays(name: str, length: int) -> None:
    summary, neurons = SUMMARIES[name]
    net = OverTime(summary).double()
    shrunk = shrink(net, torch.randn(1, length, 8, dtype=torch.float64))
    assert after(shrunk) == {"up": neurons}
    for other in (1, 2, 5, 9):
        compare(net, shrunk, torch.randn(3, other, 8, dtype=torch.float64), 1e-10)


def test_a_network_that_takes_one_size_shrinks() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.Sigmoid(), nn.Linear(6, 2))
    with torch.no_grad():
        net[1].weight[:4] = 0
    assert after(shrink(net, torch.randn(1, 3, 2, 2))) == {"1": 2}


def test_in_inference_mode_it_sees_the_same_and_makes_what_can_be_trained() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        net[2].weight[:, :5] = 0
    with torch.inference_mode():
        shrunk = shrink(net, torch.ones(1, 4))
    assert after(shrunk) == {"0": 3}
    assert shrunk.multiplications == (48, 18)
    shrunk.model(torch.ones(1, 4)).sum().backward()


def test_functional_weights_and_keyword_examples() -> None:
    class Raw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(6, 2))

        def forward(self, x: Tensor, *, scale: float) -> Tensor:
            return functional.relu(x @ self.up) @ self.down * scale

    net = Raw()
    with torch.no_grad():
        net.up[:, :2] = 0
        net.down[2:4] = 0
    x = torch.randn(3, 4)
    shrunk = shrink(net, {"x": x, "scale": 2.0})
    assert shrunk.model.up.shape == (4, 2)
    torch.testing.assert_close(shrunk.model(x, scale=2.0), net(x, scale=2.0))


def test_masks_of_torch_count_as_zeros() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    prune.ln_structured(net[2], "weight", amount=2, n=2, dim=1)
    x = torch.randn(3, 4)
    expected = net(x)  # the masked weight carries gradients now
    shrunk = shrink(net, x)
    assert after(shrunk) == {"0": 4}
    assert [name for name, _ in shrunk.model.named_parameters()] == ["0.weight", "0.bias", "2.bias", "2.weight"]
    assert prune.is_pruned(net)
    torch.testing.assert_close(shrunk.model(x), expected)


def test_wrappers_are_looked_through() -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        net[2].weight[:, :3] = 0
    shrunk = shrink(nn.DataParallel(net), torch.randn(3, 4))
    assert isinstance(shrunk.model, nn.Sequential)
    assert after(shrunk) == {"0": 3}


def test_latency_and_table() -> None:
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 8))
    with torch.no_grad():
        net[2].weight[:, :500] = 0
    shrunk = shrink(net, torch.randn(256, 64))
    latency = shrunk.latency(rounds=5)
    assert latency.after < latency.before
    assert "x faster" in str(latency)
    with pytest.raises(ArgumentError, match="rounds"):
        shrunk.latency(rounds=0)


def test_no_module_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="must be given a module"):
        shrink("resnet50", torch.zeros(1))  # type: ignore[arg-type]
