"""MobileNet-V1 (Howard et al. 2017): depthwise 3 × 3 and pointwise 1 × 1 convolutions in turn."""

from __future__ import annotations

from torch import Tensor, nn

# Output channels and stride of model.1 ... model.13; model.0 is a plain 3 × 3 convolution to 32 channels.
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


class MobileNetV1(nn.Module):
    """model.0.0, model.1.0 (depthwise), model.1.3 (pointwise) ... model.13.3, fc.

    Initial values are torch's defaults. The fan_out of ResNets would count all channels of a depthwise convolution and
    start its weights far below the threshold.

    Args:
        num_classes: the number of logits.
        in_channels: channels of an image.
        small: for images of 32 pixels: the resolution is divided by 8, not 32, since model.0 and model.2 have stride
            1. The parameters are the same.
    """

    def __init__(self, num_classes: int, in_channels: int = 3, *, small: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Sequential(*_conv(in_channels, 32, 3, 1 if small else 2))]
        inputs = 32
        for number, (outputs, stride) in enumerate(BLOCKS, start=1):
            if small and number == 2:
                stride = 1
            layers.append(nn.Sequential(*_conv(inputs, inputs, 3, stride, groups=inputs), *_conv(inputs, outputs, 1)))
            inputs = outputs
        self.model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.model(x).flatten(1))  # type: ignore[no-any-return]


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> tuple[nn.Module, ...]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)
    return conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)


def mobilenet_v1(num_classes: int = 1000, in_channels: int = 3, *, small: bool = False) -> MobileNetV1:
    """MobileNet-V1 for ImageNet: 4,231,976 parameters. ``sp.budgets("mobilenet_v1", ...)`` has its layer names."""
    return MobileNetV1(num_classes, in_channels, small=small)


def mobilenet_v1_cifar(num_classes: int = 10, in_channels: int = 3) -> MobileNetV1:
    """MobileNet-V1 for 32 × 32 pixels: 3,217,226 parameters for 10 classes."""
    return MobileNetV1(num_classes, in_channels, small=True)
