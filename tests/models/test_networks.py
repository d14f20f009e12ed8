"""Names, shapes, counts and initial values of the networks, against rules written here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from softprune import select
from softprune.models import (
    digits_resnet,
    mlp,
    mobilenet_v1,
    mobilenet_v1_cifar,
    resnet18,
    resnet18_cifar,
    resnet20,
    resnet50,
)

Shapes = dict[str, tuple[int, ...]]
Make = Callable[..., nn.Module]

NETWORKS: list[Make] = [
    digits_resnet,
    mlp,
    mobilenet_v1,
    mobilenet_v1_cifar,
    resnet18,
    resnet18_cifar,
    resnet20,
    resnet50,
]
each_network = pytest.mark.parametrize("make", NETWORKS)


def conv_bn(conv: str, bn: str, outputs: int, inputs: int, kernel: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{conv}.weight", (outputs, inputs, kernel, kernel)
    for name in ("weight", "bias", "running_mean", "running_var"):
        yield f"{bn}.{name}", (outputs,)
    yield f"{bn}.num_batches_tracked", ()


def torchvision_shapes(depths: tuple[int, ...], bottleneck: bool) -> Shapes:
    """torchvision's state dict of a ResNet, in its order."""
    shapes = dict(conv_bn("conv1", "bn1", 64, 3, 7))
    inputs = 64
    for stage, depth in enumerate(depths, start=1):
        width = 32 * 2**stage
        outputs = 4 * width if bottleneck else width
        for block in range(depth):
            at = f"layer{stage}.{block}"
            if bottleneck:
                convs = [(width, inputs, 1), (width, width, 3), (outputs, width, 1)]
            else:
                convs = [(width, inputs, 3), (outputs, width, 3)]
            for number, shape in enumerate(convs, start=1):
                shapes |= conv_bn(f"{at}.conv{number}", f"{at}.bn{number}", *shape)
            if inputs != outputs:
                shapes |= conv_bn(f"{at}.downsample.0", f"{at}.downsample.1", outputs, inputs, 1)
            inputs = outputs
    return shapes | {"fc.weight": (1000, inputs), "fc.bias": (1000,)}


def on_meta(make: Make, *arguments: int) -> nn.Module:
    with torch.device("meta"):
        return make(*arguments)


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("make", "depths", "bottleneck"), [(resnet18, (2, 2, 2, 2), False), (resnet50, (3, 4, 6, 3), True)]
)
def test_state_dict_is_torchvisions(make, depths, bottleneck):
    state = on_meta(make).state_dict()
    expected = torchvision_shapes(depths, bottleneck)
    assert {key: tuple(value.shape) for key, value in state.items()} == expected
    assert list(state) == list(expected)  # optimizers store their state by position


@pytest.mark.parametrize(
    ("make", "num_classes", "in_channels", "parameters"),
    [
        (resnet50, 1000, 3, 25_557_032),
        (resnet18, 1000, 3, 11_689_512),
        (mobilenet_v1, 1000, 3, 4_231_976),
        (mobilenet_v1_cifar, 10, 3, 3_217_226),
        (resnet18_cifar, 10, 3, 11_173_962),
        (resnet20, 10, 3, 269_722),
        (digits_resnet, 10, 1, 77_754),
        (mlp, 10, 1, 26_122),
    ],
)
def test_parameter_counts(make, num_classes, in_channels, parameters):
    assert count(on_meta(make, num_classes, in_channels)) == parameters
    assert count(on_meta(make)) == parameters  # these are the defaults


@pytest.mark.parametrize("make", [resnet18, resnet50, resnet18_cifar, resnet20])
def test_residual_networks_start_as_torchvision_starts_them(make):
    torch.manual_seed(0)
    model = make(10)
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            deviation = math.sqrt(2 / (m.out_channels * m.kernel_size[0] ** 2))  # fan_out
            tolerance = 5 * deviation / math.sqrt(m.weight.numel())
            assert m.bias is None
            assert m.weight.mean().abs() < tolerance
            assert m.weight.std().item() == pytest.approx(deviation, abs=tolerance)
        elif isinstance(m, nn.BatchNorm2d):  # zero_init_residual=False: the last γ of a block is 1 as well
            assert (m.weight == 1).all()
            assert (m.bias == 0).all()
    bound = 1 / math.sqrt(model.fc.in_features)
    assert 0.99 * bound < model.fc.weight.abs().max() <= bound
    assert model.fc.bias.abs().max() <= bound


def test_mobilenet_layers():
    with torch.device("meta"):
        model, small = mobilenet_v1(), mobilenet_v1(small=True)
    names = ["model.0.0", *(f"model.{n}.{k}" for n in range(1, 14) for k in (0, 3)), "fc"]
    assert [name.removesuffix(".weight") for name in select(model)] == names
    assert select(model)["model.12.0.weight"].shape == (512, 1, 3, 3)
    assert select(model)["model.12.3.weight"].shape == (1024, 512, 1, 1)
    assert model.state_dict().keys() == small.state_dict().keys()
    for network, size, last in ((model, 224, 7), (small, 32, 4)):
        features = network.model[:-1](torch.empty(2, 3, size, size, device="meta"))
        assert features.shape == (2, 1024, last, last)


def test_cifar_networks_keep_the_resolution():
    image = torch.empty(2, 3, 32, 32, device="meta")
    for make, last in ((resnet18_cifar, (2, 512, 4, 4)), (resnet20, (2, 64, 8, 8))):
        model = on_meta(make)
        stem = model.maxpool(model.conv1(image))
        assert stem.shape[2:] == (32, 32)
        assert nn.Sequential(*(model.get_submodule(stage) for stage in model.stages))(stem).shape == last
    assert "layer2.0.downsample.0.weight" in on_meta(resnet18_cifar).state_dict()


def test_resnet20_shortcuts_have_no_parameters():
    model = resnet20()
    assert not any("downsample" in name for name in model.state_dict())
    assert len(select(model)) == 20
    x = torch.randn(2, 16, 32, 32)
    shortcut = model.layer2[0].downsample(x)
    assert shortcut.shape == (2, 32, 16, 16)
    assert torch.equal(shortcut[:, :16], x[:, :, ::2, ::2])
    assert (shortcut[:, 16:] == 0).all()


SIZES = {digits_resnet: 8, mlp: 28, mobilenet_v1: 64, resnet18: 64, resnet50: 64}


@each_network
def test_outputs_gradients_and_the_round_trip(make):
    torch.manual_seed(0)
    size, channels = SIZES.get(make, 32), 1 if make in (digits_resnet, mlp) else 3
    model, again = make(7, channels), make(7, channels)
    x = torch.randn(4, channels, size, size)
    out = model(x)
    assert out.shape == (4, 7)
    nn.functional.cross_entropy(out, torch.arange(4)).backward()
    for parameter, p in model.named_parameters():
        assert p.grad is not None, parameter
        assert p.grad.isfinite().all(), parameter
        assert p.grad.any(), parameter
    again.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model.eval()(x), again.eval()(x))


@each_network
def test_in_channels(make):
    out = on_meta(make, 3, 2)(torch.empty(2, 2, 32, 32, device="meta"))
    assert out.shape == (2, 3)


def test_imagenet_networks_take_224_pixels():
    for function in (resnet18, resnet50, mobilenet_v1):
        with torch.device("meta"):
            assert function()(torch.empty(1, 3, 224, 224)).shape == (1, 1000)


def test_mlp_takes_any_size_and_sees_each_image_alone():
    torch.manual_seed(0)
    model = mlp(num_classes=5, in_channels=3).double()
    for size in ((8, 8), (1, 1), (13, 32)):
        assert model(torch.randn(2, 3, *size, dtype=torch.double)).shape == (2, 5)
    x, y = torch.randn(6, 3, 8, 8, dtype=torch.double), torch.arange(6) % 5
    whole, *halves = (
        torch.autograd.grad(nn.functional.cross_entropy(model(x[part]), y[part]), list(model.parameters()))
        for part in (slice(None), slice(3), slice(3, 6))
    )
    for g, a, b in zip(whole, *halves, strict=True):
        torch.testing.assert_close(g, (a + b) / 2)


def test_an_erased_block_stays_erased_and_an_erased_classifier_does_not():
    """What pruning at initialization lives and dies by (docs/results.md, 4)."""

    def gradients(*erased: str) -> dict[str, float]:
        torch.manual_seed(0)
        network = resnet20()
        weights = select(network)
        with torch.no_grad():
            for name in erased:
                weights[f"{name}.weight"].zero_()
        loss = nn.functional.cross_entropy(network(torch.randn(8, 3, 16, 16)), torch.arange(8))
        loss.backward()
        return {name.removesuffix(".weight"): float(weight.grad.abs().max()) for name, weight in weights.items()}

    classifier = gradients("fc")
    assert classifier["fc"] > 0
    assert classifier["conv1"] == 0  # at first; what the classifier learns opens the way

    second = gradients("layer3.1.conv2")
    assert second["layer3.1.conv2"] > 0

    block = ("layer3.1.conv1", "layer3.1.conv2")
    for erased in (block, block[:1]):
        without = {name for name, gradient in gradients(*erased).items() if gradient == 0}
        assert without == {*block}  # the shortcut serves all others

    assert max(gradients("conv1").values()) == 0
