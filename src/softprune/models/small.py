"""Networks for small images: ResNets for CIFAR and for scikit-learn's digits, and a perceptron."""

from __future__ import annotations

from torch import Tensor, nn

from softprune.models.resnet import BasicBlock, ResNet


class Pad(nn.Module):
    """A shortcut without parameters: every ``stride``-th pixel, and zeros for the channels that are missing."""

    def __init__(self, stride: int, channels: int) -> None:
        super().__init__()
        self.stride, self.channels = stride, channels

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.channels))


class PaddedBlock(BasicBlock):
    """The block of He et al. for CIFAR (their option A)."""

    def project(self, inputs: int, outputs: int, stride: int) -> nn.Module:
        return Pad(stride, outputs - inputs)


def resnet18_cifar(num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """ResNet-18 for 32 × 32 pixels: 3 × 3 stem, no max-pooling; 11,173,962 parameters for 10 classes."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, in_channels, small=True)


def resnet20(num_classes: int = 10, in_channels: int = 3) -> ResNet:
    """ResNet-20 for 32 × 32 pixels (He et al. 2016, section 4.2): 269,722 parameters for 10 classes."""
    return ResNet(PaddedBlock, (3, 3, 3), num_classes, in_channels, width=16, small=True)


def digits_resnet(num_classes: int = 10, in_channels: int = 1) -> ResNet:
    """Three residual blocks of 16, 32 and 64 channels for 8 × 8 pixels: 77,754 parameters for 10 classes, 1 channel."""
    return ResNet(BasicBlock, (1, 1, 1), num_classes, in_channels, width=16, small=True)


def mlp(num_classes: int = 10, in_channels: int = 1, *, width: int = 128) -> nn.Sequential:
    """Two hidden layers on the image averaged to 8 × 8 pixels, so that it takes images of any size.

    Without batch normalisation the loss of a batch is the mean over its parts: N processes compute what one does.
    26,122 parameters for 10 classes and 1 channel.
    """
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(8),
        nn.Flatten(),
        nn.Linear(64 * in_channels, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, num_classes),
    )
