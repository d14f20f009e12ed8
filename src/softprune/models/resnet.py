"""ResNets: a stem, stages of residual blocks, an average and a linear layer, with torchvision's layer names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from torch import Tensor, nn


class ResNet(nn.Module):
    """conv1, bn1, layer1 ... layerN, fc.

    Stage n has ``width`` · 2ⁿ⁻¹ channels, times the block's expansion, and halves the resolution for n > 1. The stem
    of ImageNet divides it by four before (7 × 7 at stride 2, max-pooling).

    Initial values are those of torchvision: convolutions normal with variance 2 / fan_out, batch normalisation
    γ = 1 and β = 0, the last of each block included (``zero_init_residual=False``), the linear layer torch's default.

    Args:
        block: ``BasicBlock`` or ``Bottleneck``.
        depths: how many blocks each stage has.
        num_classes: the number of logits.
        in_channels: channels of an image.
        width: channels of the first stage.
        small: a 3 × 3 stem at stride 1 without max-pooling, for images of 8 to 64 pixels.
    """

    def __init__(
        self,
        block: type[Block],
        depths: Sequence[int],
        num_classes: int,
        in_channels: int = 3,
        *,
        width: int = 64,
        small: bool = False,
    ) -> None:
        super().__init__()
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(in_channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        stages, inputs = stack(block, depths, width, block.expansion)
        self.stages = list(stages)
        for name, stage in stages.items():
            self.add_module(name, stage)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, num_classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        return self.fc(self.avgpool(x).flatten(1))  # type: ignore[no-any-return]


def stack(
    block: Callable[[int, int, int], nn.Module], depths: Sequence[int], width: int, expansion: int = 1
) -> tuple[dict[str, nn.Sequential], int]:
    """Stages of ``block(inputs, width, stride)`` by name, and the number of channels after the last."""
    stages: dict[str, nn.Sequential] = {}
    inputs = width
    for number, depth in enumerate(depths):
        blocks: list[nn.Module] = []
        for index in range(depth):
            blocks.append(block(inputs, width << number, 2 if number > 0 and index == 0 else 1))
            inputs = (width << number) * expansion
        stages[f"layer{number + 1}"] = nn.Sequential(*blocks)
    return stages, inputs


def initialize(network: nn.Module) -> None:
    """torchvision's initial values of convolutions; the rest keeps torch's defaults."""
    for m in network.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")


class Block(nn.Module):
    """Convolutions beside a shortcut, which is the identity, or ``project`` where the shape changes."""

    expansion: ClassVar[int] = 1
    downsample: nn.Module | None

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.convolutions(inputs, width, stride)
        outputs = width * self.expansion
        self.downsample = None if stride == 1 and inputs == outputs else self.project(inputs, outputs, stride)

    def convolutions(self, inputs: int, width: int, stride: int) -> None:
        raise NotImplementedError

    def residual(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def project(self, inputs: int, outputs: int, stride: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.relu(self.residual(x) + shortcut)  # type: ignore[no-any-return]


class BasicBlock(Block):
    """3 × 3, 3 × 3."""

    def convolutions(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def residual(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))  # type: ignore[no-any-return]


class Bottleneck(Block):
    """1 × 1, 3 × 3, which has the stride, 1 × 1 with four times the channels."""

    expansion = 4

    def convolutions(self, inputs: int, width: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)

    def residual(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))  # type: ignore[no-any-return]


def resnet18(num_classes: int = 1000, in_channels: int = 3) -> ResNet:
    """ResNet-18 for ImageNet: 11,689,512 parameters, state dicts interchangeable with torchvision's."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, in_channels)


def resnet50(num_classes: int = 1000, in_channels: int = 3) -> ResNet:
    """ResNet-50 for ImageNet: 25,557,032 parameters, state dicts interchangeable with torchvision's.

    The stride is at the 3 × 3 convolution (version 1.5). ``sp.budgets("resnet50", ...)`` has its layer names.
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, in_channels)
