"""Firing rates and synaptic operations against loops that count, and against spikingjelly's counters."""

import copy
import warnings
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from spikingjelly.activation_based import functional, neuron, op_counter
from spikingjelly.activation_based import layer as layers
from torch import Tensor, nn

from softprune.errors import ConfigError
from softprune.spiking.activity import Activity
from softprune.spiking.meter import Meter
from softprune.spiking.neurons import IF, LIF
from softprune.spiking.sew import SEWResNet, inverted_and, sew_resnet18


def count(conv: nn.Conv2d, x: Tensor, dense: bool) -> int:
    """Each spike to each weight that it meets, one by one."""
    total = 0
    outputs, per_group, high, wide = conv.weight.shape
    rows, columns = conv(x).shape[2:]
    for n, c, i, j in x.nonzero().tolist():
        for o, a, b, p, q in product(range(outputs), range(high), range(wide), range(rows), range(columns)):
            group = o // (outputs // conv.groups)
            here = (
                c // per_group == group
                and p * conv.stride[0] + a * conv.dilation[0] - conv.padding[0] == i
                and q * conv.stride[1] + b * conv.dilation[1] - conv.padding[1] == j
            )
            if here and (dense or conv.weight[o, c % per_group, a, b] != 0):
                total += int(x[n, c, i, j])
    return total


def prune(network: nn.Module, share: float = 0.7) -> None:
    with torch.no_grad():
        for m in network.modules():
            if isinstance(m, nn.Conv2d | nn.Linear):
                m.weight.mul_(torch.rand_like(m.weight) > share)


def watch(network: nn.Module, *batches: Tensor) -> Activity:
    with Meter(network) as meter, torch.no_grad():
        for x in batches:
            network(x)
    return meter.result()


@pytest.mark.parametrize(
    "conv",
    [
        partial(nn.Conv2d, 2, 4, 3, padding=1, bias=False),
        partial(nn.Conv2d, 2, 4, 3, stride=2, padding=1),
        partial(nn.Conv2d, 4, 4, (3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 2), groups=2),
        partial(nn.Conv2d, 2, 3, 1, stride=2, bias=False),
    ],
)
def test_operations_are_counted_exactly_at_borders_and_strides(conv):
    conv = conv()
    prune(conv)
    x = torch.poisson(torch.full((3, conv.in_channels, 6, 5), 0.4))  # ADD lets several spikes meet
    with Meter(conv) as meter:
        conv(x[:2])
        conv(x[2:])
    (seen,) = meter._weights.values()
    assert (seen.received * seen.dense).sum() == count(conv, x, dense=True)
    assert (seen.received * seen.pruned).sum() == count(conv, x, dense=False)
    assert seen.spikes


@pytest.fixture
def network() -> SEWResNet:
    """Pruned, at work, with blocks of both kinds and spikes that meet."""
    torch.manual_seed(0)
    network = SEWResNet((2, 1), 3, 2, width=4, small=True)
    for _ in range(3):
        network(torch.randn(16, 2, 8, 8))
    prune(network, 0.5)
    return network.eval()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 5), (3, 4, 6)),
        (nn.Conv1d(2, 3, 3, stride=2, padding=1), (4, 2, 9)),
        (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (4, 2, 6, 7)),
        (nn.Conv2d(2, 3, (3, 5), padding="same"), (4, 2, 6, 7)),
        (nn.Conv3d(1, 2, 3), (2, 1, 5, 4, 4)),
        (nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), (4, 2, 5, 5)),
        (layers.Conv2d(2, 3, 3, step_mode="m"), (4, 3, 2, 5, 5)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_every_kind_of_weights(layer, shape):
    """Operations are what comes out where weights are ones: here forwards, there backwards."""
    torch.manual_seed(0)
    with torch.no_grad():
        layer.weight.mul_(torch.rand_like(layer.weight) > 0.6)
    network = nn.Sequential(layer, IF())
    x = (torch.rand(shape) > 0.5).float()
    with Meter(network) as meter, torch.inference_mode():
        network(x)
    (found,) = meter.result().operations
    ones = copy.deepcopy(layer)
    nn.init.zeros_(ones.bias)
    for name, mask in (("pruned", layer.weight != 0), ("dense", torch.ones_like(layer.weight))):
        ones.weight.data = mask.float()
        assert getattr(found, name) * meter.images == pytest.approx(ones(x).sum().item())


def test_neurons_that_take_one_time_step_at_a_time():
    network = nn.Sequential(nn.Linear(3, 7), neuron.IFNode(step_mode="s"))
    (firing,) = watch(network, torch.rand(5, 3)).firing
    assert firing.neurons == 7


def test_a_whole_network_layer_by_layer(network):
    x = torch.randn(2, 2, 8, 8)
    seen: dict[str, Tensor] = {}
    for name, m in network.named_modules():
        if isinstance(m, nn.Conv2d | nn.Linear):
            m.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
    activity = watch(network, x)
    assert activity.images == 2
    for layer in activity.operations:
        module = network.get_submodule(layer.name)
        assert layer.spikes == (layer.name not in ("conv1", "fc"))
        if layer.spikes:
            assert layer.dense * 2 == pytest.approx(count(module, seen[layer.name], dense=True), abs=1e-9)
            assert layer.pruned * 2 == pytest.approx(count(module, seen[layer.name], dense=False), abs=1e-9)
    assert max(float(x.max()) for name, x in seen.items() if name not in ("conv1", "fc")) > 1
    stem, *_, fc = activity.operations
    assert (fc.dense, fc.pruned) == (24, network.fc.weight.count_nonzero())
    assert stem.pruned == count(network.conv1, torch.ones(1, 2, 8, 8), dense=False)
    assert (stem.picojoules, fc.picojoules, activity.operations[1].picojoules) == (4.6, 4.6, 0.9)
    energy = 4.6 * (stem.pruned + fc.pruned) + 0.9 * activity.pruned
    assert activity.nanojoules() == pytest.approx(energy / 1000)


def test_firing_rates_are_spikes_over_chances(network):
    spikes: dict[str, list[Tensor]] = {}
    for name, m in network.named_modules():
        if isinstance(m, IF):
            m.register_forward_hook(lambda _, inputs, out, name=name: spikes.setdefault(name, []).append(out))
    activity = watch(network, torch.randn(5, 2, 8, 8), torch.randn(2, 2, 8, 8))
    assert activity.images == 7
    fired = {name: sum(float(x.sum()) for x in many) for name, many in spikes.items()}
    chances = {name: sum(x.numel() for x in many) for name, many in spikes.items()}
    assert [layer.name for layer in activity.firing] == list(spikes)
    for layer in activity.firing:
        assert layer.rate == pytest.approx(fired[layer.name] / chances[layer.name])
        assert 0 < layer.rate < 1
    assert activity.rate == pytest.approx(sum(fired.values()) / sum(chances.values()))


def test_spikingjellys_counter_agrees_where_it_counts():
    """It takes inputs of 0 and 1 alone (so IAND, not ADD), and sees zero weights when weights are 0 and 1 too."""
    torch.manual_seed(1)
    network = SEWResNet((1, 1), 3, 2, width=4, small=True, connect=inverted_and, neuron=lambda: LIF(tau=1.2))
    for _ in range(3):
        network(torch.randn(16, 2, 8, 8))
    prune(network, 0.5)
    network.eval()
    x = torch.randn(3, 2, 8, 8)
    activity = watch(network, x)

    def theirs() -> dict[str, int]:
        counter = op_counter.SynOpCounter()
        with op_counter.DispatchCounterMode([counter]), torch.no_grad():
            network(x)
        return {name.removeprefix("SEWResNet."): sum(c.values()) for name, c in counter.get_counts().items()}

    dense = theirs()
    for layer in activity.operations:
        if layer.spikes:
            assert layer.dense * 3 == pytest.approx(dense[layer.name], abs=1e-9)
    for layer in activity.operations[1:3]:  # their inputs do not depend on these weights
        module = network.get_submodule(layer.name)
        spikes = {}
        hook = module.register_forward_pre_hook(lambda _, inputs, spikes=spikes: spikes.update(x=inputs[0]))
        network(x)
        hook.remove()
        counter = op_counter.SynOpCounter()
        with op_counter.DispatchCounterMode([counter]), torch.no_grad():
            nn.functional.conv2d(spikes["x"], (module.weight != 0).float(), None, module.stride, module.padding)
        assert layer.pruned * 3 == pytest.approx(counter.get_total(), abs=1e-9)


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")  # the compiler's own
def test_a_compiled_network_is_measured_too(network):
    x = torch.randn(4, 2, 8, 8)
    expected = watch(network, x)
    torch._dynamo.reset()
    network.compile(backend="eager")
    with torch.inference_mode():
        network(x)
    assert watch(network, x) == expected
    assert not any(m._forward_hooks for m in (network, network.conv1))


def test_processes_add_up_what_they_saw(network, monkeypatch):
    """Two processes that saw the same images: twice the images, everything else as before."""
    x = torch.randn(4, 2, 8, 8)
    alone = watch(network, x)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda value: value.mul_(2))
    assert watch(network, x) == replace(alone, images=8)


def test_the_report_in_words(network):
    activity = watch(network, torch.randn(4, 2, 8, 8))
    text = activity.to_markdown()
    assert f"Firing rate {activity.rate:.2%}" in text
    assert "| layer2.0.downsample.1 |" in text
    assert "| layer1.0.conv1.0 | spikes |" in text
    assert "| conv1 | values |" in text
    values = activity.to_dict()
    assert values["synaptic_operations"] == {"dense": activity.dense, "pruned": activity.pruned}
    assert 0 < activity.pruned < 0.7 * activity.dense
    assert activity.figures()["firing rate"] == activity.rate


def test_max_pooling_keeps_spikes_spikes():
    network, x = sew_resnet18(num_classes=3), torch.randn(2, 3, 64, 64)
    values = {layer.name for layer in watch(network, x).operations if not layer.spikes}
    assert values == {"conv1", "fc"}


def test_weights_that_are_not_counted_are_named():
    network = nn.Sequential(nn.Linear(4, 4), IF(), nn.MultiheadAttention(4, 1))
    with warnings.catch_warnings(action="error"), pytest.raises(UserWarning), Meter(network):
        pass
    assert not network._forward_hooks  # nothing is left of a meter that did not open
    with (
        pytest.warns(UserWarning, match=r"of 2.in_proj_weight are not counted. .* Meter knows Linear, Conv1d"),
        Meter(network),
    ):
        pass


class EachStep(nn.Sequential):
    """The logits of every time step, T × N × classes, in a dictionary: what loops over time average themselves."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": super().forward(x.expand(4, *x.shape))}


def test_images_are_counted_whatever_the_output_is():
    neurons, x = IF(), torch.rand(5, 6)
    network = EachStep(nn.Linear(6, 8), neurons, nn.Linear(8, 3))
    spikes = int(neurons(network[0](x.expand(4, 5, 6))).sum())
    neurons.reset()
    seen = watch(network, x)
    assert spikes > 0
    assert seen.images == 5
    assert seen.operations[1].dense == 3 * spikes / 5  # each to three classes


def test_time_steps_are_not_taken_for_images():
    network = nn.Sequential(neuron.IFNode(step_mode="s"), nn.Linear(3, 2))
    with Meter(network):
        network(torch.ones(2, 3))
        with pytest.raises(ConfigError, match="still hold the potentials of the call before"):
            network(torch.ones(2, 3))
        functional.reset_net(network)
        network(torch.ones(2, 3))
