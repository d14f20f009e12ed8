"""SEW ResNets: a ResNet's layers, a block by hand, outputs and gradients, and time."""

import subprocess
import sys

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table

import softprune as sp
from softprune.models import resnet18
from softprune.spiking.neurons import IF, LIF
from softprune.spiking.sew import (
    SEWBlock,
    SEWResNet,
    add,
    inverted_and,
    logical_and,
    sew_digits,
    sew_resnet18,
    sew_resnet18_cifar,
)

CONNECT = {"ADD": add, "AND": logical_and, "IAND": inverted_and}


def test_layers_are_those_of_a_resnet_each_in_a_wrapper():
    with torch.device("meta"):
        model, plain = sew_resnet18(), resnet18()
    shapes = {name.removesuffix(".weight"): tuple(p.shape) for name, p in sp.select(model).items()}
    ann = {name.removesuffix(".weight"): tuple(p.shape) for name, p in sp.select(plain).items()}
    renamed = {f"{name}.0" if "layer" in name else name: shape for name, shape in ann.items()}
    assert list(shapes.items()) == list(renamed.items())
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in plain.parameters()) == 11_689_512


@pytest.mark.parametrize(
    ("make", "channels", "size"), [(sew_resnet18, 3, 64), (sew_resnet18_cifar, 2, 16), (sew_digits, 1, 8)]
)
def test_outputs_gradients_and_the_round_trip(make, channels, size):
    model, again = make(7, channels), make(7, channels)
    x = torch.randn(4, channels, size, size)
    out = model(x)
    assert out.shape == (4, 7)
    nn.functional.cross_entropy(out, torch.arange(4)).backward()
    for name, p in model.named_parameters():
        assert p.grad.isfinite().all(), name
        assert p.grad.any(), name
    again.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model.eval()(x), again.eval()(x))


def by_hand(block: SEWBlock, x: Tensor, connect: str) -> Tensor:
    """Step by step, one image at a time and each neuron's u written out; batch normalisation as it evaluates."""

    def fire(layers: nn.Sequential, inputs: list[Tensor]) -> list[Tensor]:
        conv, bn = layers
        u, out = torch.zeros(()), []
        for value in inputs:
            current = nn.functional.conv2d(value, conv.weight, stride=conv.stride, padding=conv.padding)
            scale = bn.weight / (bn.running_var + bn.eps).sqrt()
            u = u + (current - bn.running_mean[:, None, None]) * scale[:, None, None] + bn.bias[:, None, None]
            s = (u >= 1).to(u)
            u = torch.where(s == 1, torch.zeros_like(u), u)
            out.append(s)
        return out

    images = []
    for n in range(x.shape[1]):
        inputs = [x[t, n] for t in range(len(x))]
        spikes = fire(block.conv2, fire(block.conv1, inputs))
        shortcut = inputs if block.downsample is None else fire(block.downsample[0], inputs)
        join = {
            "ADD": lambda a, s: a + s,
            "AND": lambda a, s: (a.bool() & s.bool()).double(),
            "IAND": lambda a, s: (~a.bool() & s.bool()).double(),
        }[connect]
        images.append(torch.stack([join(a, s) for a, s in zip(spikes, shortcut, strict=True)]))
    return torch.stack(images, dim=1)


@pytest.mark.parametrize("connect", CONNECT)
@pytest.mark.parametrize(("outputs", "stride"), [(3, 1), (5, 2)])
def test_a_block_is_what_it_is_by_hand(connect, outputs, stride):
    block = SEWBlock(3, outputs, stride, IF, CONNECT[connect]).double().eval()
    for m in block.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(std=0.1)
            m.running_var.uniform_(0.2, 1.0)
            nn.init.normal_(m.bias, 0.3, 0.3)
    x = (torch.rand(4, 2, 3, 6, 6) < 0.4).double()
    out = block(x)
    expected = by_hand(block, x, connect)
    assert torch.equal(out, expected)
    assert 0 < out.mean() < 1


def test_a_still_image_is_a_sequence_that_does_not_move():
    for neuron in (IF, lambda: LIF(tau=1.2)):
        network = SEWResNet((1, 1), 5, 2, width=4, small=True, neuron=neuron, T=3).double()
        x = torch.randn(2, 2, 8, 8, dtype=torch.double)
        torch.testing.assert_close(network(x.expand(3, -1, -1, -1, -1)), network(x))
        moving = torch.stack([x, x.flip(3), x.roll(1, 3)])
        assert not torch.allclose(network(moving), network(x))


def test_logits_are_averaged_over_time():
    network = sew_digits().double()
    fired = []
    network.layer3.register_forward_hook(lambda module, inputs, out: fired.append(out))
    logits = network(torch.randn(3, 1, 8, 8, dtype=torch.double))
    (spikes,) = fired
    assert all(spikes.flatten(1).any(1))
    each = [network.fc(network.avgpool(spikes[t]).flatten(1)) for t in range(4)]
    torch.testing.assert_close(logits, sum(each) / 4)


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")  # the compiler's own
def test_compiled_it_is_one_graph_with_the_same_spikes():
    torch._dynamo.reset()
    network = SEWResNet((1,), 3, 1, width=4, small=True)
    x = torch.randn(4, 1, 6, 6)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    gradients = []
    for forward in (network, compiled, compiled):
        network.zero_grad()
        forward(x).square().sum().backward()
        gradients.append([p.grad for p in network.parameters()])
        assert all(m.v == 0.0 for m in network.modules() if isinstance(m, IF))
    for others in gradients[1:]:
        torch.testing.assert_close(others, gradients[0])


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")
def test_compiled_convolutions_get_gradients_in_channels_last():
    """Else a GPU would copy each of them. But for the stem, which sees an image once."""
    torch._dynamo.reset()
    found = []

    def backward(graph, inputs):
        nodes = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default)
        found.extend(node.args[0].meta["val"] for node in nodes)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(
        fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward),
        bw_compiler=backward,
        decompositions=select_decomp_table(),
    )
    network = SEWResNet((1, 1), 3, 1, width=4, small=True).to(memory_format=torch.channels_last)
    torch.compile(network, backend=backend)(torch.randn(2, 1, 6, 6)).square().sum().backward()
    assert [gradient.shape[0] for gradient in found] == [8, 8, 8, 8, 8, 2]
    assert all(gradient.is_contiguous(memory_format=torch.channels_last) for gradient in found[:-1])


def test_without_spikingjelly_it_says_what_is_missing():
    program = (
        "import sys; sys.modules['spikingjelly'] = None\n"
        "import softprune.models\n"
        "try: import softprune.spiking.sew\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "`softprune.spiking` needs spikingjelly, which is not installed. Write `pip install 'softprune[snn]'`."
    )
