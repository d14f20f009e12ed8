"""NIR files, read back and simulated from NIR's own equations, fire the network's spikes."""

from graphlib import TopologicalSorter

import nir
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from softprune.errors import ConfigError
from softprune.spiking.export import to_nir
from softprune.spiking.neurons import IF, LIF
from softprune.spiking.sew import SEWResNet, inverted_and, logical_and


def simulate(graph: nir.NIRGraph, x: Tensor, T: int, dt: float) -> dict[str, list[Tensor]]:
    """What each node gives at each time step, by Euler's method; knows nothing but NIR's documentation."""
    sources: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        sources[target].append(source)
    order = list(TopologicalSorter(sources).static_order())
    potentials: dict[str, Tensor] = {}
    record: dict[str, list[Tensor]] = {name: [] for name in order}
    for _ in range(T):
        for name in order:
            arriving = [record[source][-1] for source in sources[name]]
            value = x if name == "input" else torch.stack(arriving).sum(0)
            record[name].append(step(name, graph.nodes[name], value, potentials, dt))
    return record


def step(name: str, node: nir.NIRNode, x: Tensor, potentials: dict[str, Tensor], dt: float) -> Tensor:
    def array(value: np.ndarray) -> Tensor:
        return torch.from_numpy(np.asarray(value))

    def pair(value: np.ndarray) -> list[int]:
        return np.asarray(value).tolist()

    match node:
        case nir.Input() | nir.Output():
            return x
        case nir.Conv2d():
            assert pair(node.dilation) == [1, 1]
            weight, bias = array(node.weight), array(node.bias)
            return nn.functional.conv2d(x, weight, bias, pair(node.stride), pair(node.padding))
        case nir.SumPool2d():
            pooled = nn.functional.avg_pool2d(x, pair(node.kernel_size), pair(node.stride), pair(node.padding))
            return pooled * float(np.prod(node.kernel_size))
        case nir.AvgPool2d():
            return nn.functional.avg_pool2d(x, pair(node.kernel_size), pair(node.stride), pair(node.padding))
        case nir.Threshold():
            return (x > array(node.threshold)).double()
        case nir.Flatten():
            return x.flatten(1)
        case nir.Affine():
            return x @ array(node.weight).T + array(node.bias)
        case nir.IF() | nir.LIF():
            v = potentials.get(name, torch.zeros_like(x))
            if isinstance(node, nir.IF):
                v = v + dt * array(node.r) * x
            else:
                v = v + dt / array(node.tau) * ((array(node.v_leak) - v) + array(node.r) * x)
            spikes = v > array(node.v_threshold)
            potentials[name] = torch.where(spikes, array(node.v_reset), v)
            return spikes.double()
    raise AssertionError(node)


NETWORKS = {
    "small, IF": (1e-4, (2, 8, 8), lambda: SEWResNet((2, 1), 3, 2, width=4, small=True)),
    "small, LIF": (1.0, (2, 8, 8), lambda: SEWResNet((2, 1), 3, 2, width=4, small=True, neuron=lambda: LIF(1.5), T=6)),
    "with max-pooling": (1e-4, (3, 32, 40), lambda: SEWResNet((1, 1), 5, 3, width=8)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_file_read_back_fires_the_same_spikes(name, tmp_path):
    dt, shape, make = NETWORKS[name]
    network = make().double()
    for _ in range(2):
        network(torch.randn(4, *shape, dtype=torch.double))  # batch normalisation gets to know what it will see
    network.eval()
    with torch.no_grad():
        for m in network.modules():
            if isinstance(m, nn.Conv2d):
                m.weight.mul_(torch.rand_like(m.weight) > 0.3)
            elif isinstance(m, nn.BatchNorm2d):
                m.weight.uniform_(0.8, 1.2)
                m.bias.uniform_(0.4, 0.8)
    nir.write(tmp_path / "network.nir", to_nir(network, shape, dt))
    graph = nir.read(tmp_path / "network.nir")
    spikes: dict[str, Tensor] = {}
    for at, m in network.named_modules():
        if isinstance(m, IF | LIF):
            m.register_forward_hook(lambda _, inputs, out, at=at: spikes.update({at: out}))
    x = torch.randn(2, *shape, dtype=torch.double)
    with torch.no_grad():
        logits = network(x)
        record = simulate(graph, x, network.T, dt)
    for at, expected in spikes.items():
        node = at.replace("downsample.1", "downsample_sn").replace(".", "_")
        assert torch.equal(torch.stack(record[node]), expected), at
        assert 0 < expected.mean() < 1
    torch.testing.assert_close(torch.stack(record["output"]).mean(0), logits)


def test_zero_weights_stay_zero():
    network = SEWResNet((1,), 3, 1, width=4, small=True)
    with torch.no_grad():
        network.layer1[0].conv1[0].weight[:, 1] = 0
    weight = to_nir(network, (1, 8, 8)).nodes["layer1_0_conv1"].weight
    assert (weight == 0).sum() == (network.layer1[0].conv1[0].weight == 0).sum() == 36


@pytest.mark.parametrize("connect", [logical_and, inverted_and])
def test_products_of_spikes_are_refused(connect):
    with pytest.raises(ConfigError, match=rf"Cannot write blocks joined by `{connect.__name__}` as NIR. This is bec"):
        to_nir(SEWResNet((1,), 3, 1, width=4, small=True, connect=connect), (1, 8, 8))


def test_a_step_takes_time():
    with pytest.raises(ConfigError, match=r"`to_nir\(dt=...\)` must be > 0. Got 0."):
        to_nir(SEWResNet((1,), 3, 1, width=4, small=True), (1, 8, 8), dt=0)
