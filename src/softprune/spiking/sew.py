"""SEW ResNets (Fang et al. 2021): residual networks whose activations are spikes, over T time steps.

Each neuron's input is a convolution and its batch normalisation; a block joins what its convolutions fire to its
shortcut by ``add``, ``logical_and`` or ``inverted_and``. It is trained like any other network:
N images in, N rows of logits out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn

from softprune.errors import ConfigError
from softprune.models.resnet import initialize, stack
from softprune.spiking.meter import Meter
from softprune.spiking.neurons import IF, Spiking

Connect = Callable[[Tensor, Tensor], Tensor]


def add(spikes: Tensor, shortcut: Tensor) -> Tensor:
    """ADD: both reach the next layer, so that a value counts spikes."""
    return spikes + shortcut


def logical_and(spikes: Tensor, shortcut: Tensor) -> Tensor:
    """AND."""
    return spikes * shortcut


def inverted_and(spikes: Tensor, shortcut: Tensor) -> Tensor:
    """IAND: the shortcut's spikes, except where the block fires."""
    return (1 - spikes) * shortcut


class Synapses(nn.Sequential):
    """Layers that know no time, on all T × N images at once."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = super().forward(x.flatten(0, 1))  # type: ignore[no-untyped-call]
        return out.view(*x.shape[:2], *out.shape[1:])


class SEWBlock(nn.Module):
    """3 × 3, 3 × 3, each followed by neurons, beside a shortcut: the identity, or 1 × 1 where the shape changes."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, neuron: Callable[[], Spiking], connect: Connect = add
    ) -> None:
        super().__init__()
        self.connect = connect
        self.conv1 = Synapses(*_conv(inputs, outputs, 3, stride))
        self.sn1 = neuron()
        self.conv2 = Synapses(*_conv(outputs, outputs, 3, 1))
        self.sn2 = neuron()
        same = stride == 1 and inputs == outputs
        self.downsample = None if same else nn.Sequential(Synapses(*_conv(inputs, outputs, 1, stride)), neuron())

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        spikes = self.sn2(self.conv2(self.sn1(self.conv1(x))))
        # in four dimensions, since compiled code forgets channels_last in five
        return self.connect(spikes.flatten(0, 1), shortcut.flatten(0, 1)).view_as(spikes)


class SEWResNet(nn.Module):
    """conv1, bn1, sn1, layer1 ... layerN, fc, for ``T`` time steps; stages as in ``ResNet``.

    An image is shown T times, so the stem's convolution is computed once; ``forward`` also takes T × N × C × H × W,
    a sequence of images. The logits are averaged over time; since the last layer is linear, its input is averaged
    instead. The neurons are at rest before and after each batch. Initial values are those of ``ResNet``.

    Args:
        depths: how many blocks each stage has.
        num_classes: the number of logits.
        in_channels: channels of an image.
        T: time steps.
        connect: how a block joins what it fires to its shortcut: ``add``, ``logical_and`` or ``inverted_and``.
        neuron: makes one layer of neurons.
        width: channels of the first stage.
        small: a 3 × 3 stem without max-pooling, for images of 8 to 64 pixels.
    """

    def __init__(
        self,
        depths: Sequence[int],
        num_classes: int,
        in_channels: int = 3,
        *,
        T: int = 4,
        connect: Connect = add,
        neuron: Callable[[], Spiking] = IF,
        width: int = 64,
        small: bool = False,
    ) -> None:
        super().__init__()
        if T < 1 or int(T) != T:
            raise ConfigError(f"`SEWResNet(T=...)` must be a whole number >= 1: time goes in steps. Got {T}.")
        self.T = T
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1, self.bn1 = _conv(in_channels, width, kernel, stride)
        self.sn1 = neuron()
        self.maxpool = nn.Identity() if small else Synapses(nn.MaxPool2d(3, stride=2, padding=1))
        stages, outputs = stack(partial(SEWBlock, neuron=neuron, connect=connect), depths, width)
        self.stages = list(stages)
        for name, stage in stages.items():
            self.add_module(name, stage)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(outputs, num_classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        self.reset()
        x = self.maxpool(self.sn1(self.currents(x)))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        self.reset()
        return self.fc(self.avgpool(x.mean(0)).flatten(1))  # type: ignore[no-any-return]

    def currents(self, x: Tensor) -> Tensor:
        """What the first neurons get at each time step."""
        if x.ndim == 4:
            return self.bn1(self.conv1(x)).expand(self.T, -1, -1, -1, -1)  # type: ignore[no-any-return]
        if x.ndim != 5 or x.shape[0] != self.T:
            raise ConfigError(
                f"A network of T = {self.T} time steps takes N × C × H × W or {self.T} × N × C × H × W. "
                f"Got {' × '.join(map(str, x.shape))}."
            )
        out: Tensor = self.bn1(self.conv1(x.flatten(0, 1)))
        return out.view(*x.shape[:2], *out.shape[1:])

    def observer(self) -> Meter:
        """Measures firing rates and synaptic operations; the command asks for it when it evaluates a complete run."""
        return Meter(self)

    def reset(self) -> None:
        """Put every neuron at rest."""
        for m in self.modules():
            if m is not self and hasattr(m, "reset"):
                m.reset()  # type: ignore[operator]


def _conv(inputs: int, outputs: int, kernel: int, stride: int) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    return conv, nn.BatchNorm2d(outputs)


def sew_resnet18(
    num_classes: int = 1000,
    in_channels: int = 3,
    *,
    T: int = 4,
    connect: Connect = add,
    neuron: Callable[[], Spiking] = IF,
) -> SEWResNet:
    """SEW ResNet-18 for ImageNet: 11,689,512 parameters. ``sp.budgets("sew_resnet18", ...)`` has its layer names."""
    return SEWResNet((2, 2, 2, 2), num_classes, in_channels, T=T, connect=connect, neuron=neuron)


def sew_resnet18_cifar(num_classes: int = 10, in_channels: int = 3) -> SEWResNet:
    """SEW ResNet-18 for 32 × 32 pixels: 3 × 3 stem, no max-pooling; 11,173,962 parameters for 10 classes."""
    return SEWResNet((2, 2, 2, 2), num_classes, in_channels, small=True)


def sew_digits(num_classes: int = 10, in_channels: int = 1) -> SEWResNet:
    """Three blocks of 16, 32 and 64 channels for 8 × 8 pixels: 77,754 parameters for 10 classes, 1 channel."""
    return SEWResNet((1, 1, 1), num_classes, in_channels, width=16, small=True)
