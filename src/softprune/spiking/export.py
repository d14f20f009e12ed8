"""SEW networks as NIR graphs, which neuromorphic chips and other simulators read.

    nir.write("network.nir", to_nir(network, shape=(3, 32, 32)))

The graph computes what the network computes in evaluation. Batch normalisation is folded into the convolution before
it. NIR adds what reaches a node over several edges, so ADD needs no node of its own. Max-pooling of spikes is a sum,
cut to 0 or 1 by a threshold. A NIR neuron fires above its threshold, ours at its threshold, so the file holds the next
smaller number. The graph's output is the logits of one time step; the network's are their average. Zero weights stay
zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from spikingjelly.activation_based import neuron
from torch.nn.utils.fusion import fuse_conv_bn_weights

from softprune.errors import ConfigError, needs
from softprune.spiking.sew import SEWBlock, SEWResNet, Synapses, add

nir = needs("nir", "nir", "softprune.spiking.export", extra="snn")

Shape = tuple[int, ...]


def to_nir(network: SEWResNet, shape: Shape, dt: float = 1e-4) -> Any:
    """A network as ``nir.NIRGraph``.

    NIR's time is continuous. Simulated by Euler's method with steps of ``dt``, the graph fires the network's spikes.

    Args:
        network: a SEW ResNet whose blocks are joined by ``add``, of ``IF`` or ``LIF`` neurons.
        shape: C × H × W of an image.
        dt: how long a time step lasts.
    """
    if not dt > 0:
        raise ConfigError(f"`to_nir(dt=...)` must be > 0. Got {dt}.")
    graph = _Graph(dt, _array(network.fc.weight).dtype)
    graph.nodes["input"] = nir.Input({"input": np.array(shape)})
    at, shape = graph.conv("conv1", (network.conv1, network.bn1), ["input"], shape)
    sources = [graph.neurons("sn1", network.sn1, at, shape)]
    if isinstance(network.maxpool, Synapses):
        sources, shape = graph.maximum("maxpool", network.maxpool, sources, shape)
    for stage in network.stages:
        for number, block in enumerate(network.get_submodule(stage).children()):
            assert isinstance(block, SEWBlock)
            sources, shape = graph.block(f"{stage}_{number}", block, sources, shape)
    whole = np.array(shape[1:])
    at = graph.put("avgpool", nir.AvgPool2d(whole, whole, np.zeros(2, dtype=int)), sources)
    at = graph.put("flatten", nir.Flatten({"input": np.array([shape[0], 1, 1])}, start_dim=0, end_dim=-1), [at])
    at = graph.put("fc", nir.Affine(_array(network.fc.weight), _array(network.fc.bias)), [at])
    graph.put("output", nir.Output({"output": np.array([network.fc.out_features])}), [at])
    return nir.NIRGraph(graph.nodes, graph.edges, metadata={})


class _Graph:
    """Nodes and edges so far. Each method adds some and returns the names of the last ones, with their shape."""

    def __init__(self, dt: float, dtype: Any) -> None:
        self.dt = dt
        self.dtype = dtype
        self.nodes: dict[str, Any] = {}
        self.edges: list[tuple[str, str]] = []

    def put(self, name: str, node: Any, sources: Sequence[str]) -> str:
        self.nodes[name] = node
        self.edges += [(source, name) for source in sources]
        return name

    def block(self, name: str, block: SEWBlock, sources: Sequence[str], shape: Shape) -> tuple[list[str], Shape]:
        if block.connect is not add:
            raise ConfigError(
                f"Cannot write blocks joined by `{getattr(block.connect, '__name__', block.connect)}` as NIR. This is "
                "because NIR adds what reaches a node and has no product of spikes. Use a network with `connect=add`."
            )
        at, inner = self.conv(f"{name}_conv1", block.conv1, sources, shape)
        at = self.neurons(f"{name}_sn1", block.sn1, at, inner)
        at, outer = self.conv(f"{name}_conv2", block.conv2, [at], inner)
        out = self.neurons(f"{name}_sn2", block.sn2, at, outer)
        if block.downsample is None:
            return [out, *sources], outer
        synapses: Any
        synapses, neurons = block.downsample
        at, _ = self.conv(f"{name}_downsample", synapses, sources, shape)
        return [out, self.neurons(f"{name}_downsample_sn", neurons, at, outer)], outer

    def conv(self, name: str, layers: Iterable[Any], sources: Sequence[str], shape: Shape) -> tuple[str, Shape]:
        conv, bn = layers
        weight, bias = fuse_conv_bn_weights(
            conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
        )
        geometry = (conv.stride, conv.padding, conv.dilation, conv.groups)
        node = nir.Conv2d(shape[1:], _array(weight), *geometry, _array(bias))
        return self.put(name, node, sources), tuple(int(n) for n in node.output_type["output"])

    def neurons(self, name: str, neurons: Any, source: str, shape: Shape) -> str:
        def full(value: float) -> Any:
            return np.full(shape, value, dtype=self.dtype)

        if neurons.v_reset is None:
            raise ConfigError("Cannot write neurons with a soft reset (v_reset=None) as NIR, which resets to a value.")
        below = np.nextafter(self.dtype.type(neurons.v_threshold), self.dtype.type(-np.inf))
        if isinstance(neurons, neuron.IFNode):
            node = nir.IF(full(1 / self.dt), full(below), full(neurons.v_reset))
        elif isinstance(neurons, neuron.LIFNode) and neurons.decay_input:
            rest = full(neurons.v_reset)
            node = nir.LIF(full(neurons.tau * self.dt), full(1), rest, full(below), rest)
        else:
            raise ConfigError(f"Cannot write {type(neurons).__name__} neurons as NIR. Use `IF` or `LIF`.")
        return self.put(name, node, [source])

    def maximum(self, name: str, layers: Iterable[Any], sources: list[str], shape: Shape) -> tuple[list[str], Shape]:
        (pool,) = layers
        kernel, stride, padding = pool.kernel_size, pool.stride, pool.padding
        shape = (shape[0], *((n + 2 * padding - kernel) // stride + 1 for n in shape[1:]))
        at = self.put(name, nir.SumPool2d(*(np.array([n, n]) for n in (kernel, stride, padding))), sources)
        return [self.put(f"{name}_any", nir.Threshold(np.full(shape, 0.5)), [at])], shape


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy()
