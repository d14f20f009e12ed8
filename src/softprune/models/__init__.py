"""The paper's networks, and small ones. The core never imports this package.

Each is a function ``(num_classes, in_channels)``; ``build`` finds it by name, for the command line.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from softprune.errors import ConfigError, did_you_mean
from softprune.models.mobilenet import MobileNetV1, mobilenet_v1, mobilenet_v1_cifar
from softprune.models.resnet import ResNet, resnet18, resnet50
from softprune.models.small import digits_resnet, mlp, resnet18_cifar, resnet20
from softprune.spiking.sew import SEWResNet, sew_digits, sew_resnet18, sew_resnet18_cifar

__all__ = [
    "NETWORKS",
    "MobileNetV1",
    "ResNet",
    "SEWResNet",
    "build",
    "digits_resnet",
    "mlp",
    "mobilenet_v1",
    "mobilenet_v1_cifar",
    "resnet18",
    "resnet18_cifar",
    "resnet20",
    "resnet50",
    "sew_digits",
    "sew_resnet18",
    "sew_resnet18_cifar",
]

NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    "digits_resnet": digits_resnet,
    "mlp": mlp,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v1_cifar": mobilenet_v1_cifar,
    "resnet18": resnet18,
    "resnet18_cifar": resnet18_cifar,
    "resnet20": resnet20,
    "resnet50": resnet50,
    "sew_digits": sew_digits,
    "sew_resnet18": sew_resnet18,
    "sew_resnet18_cifar": sew_resnet18_cifar,
}


def build(name: str, num_classes: int, in_channels: int = 3) -> nn.Module:
    """The network called ``name``. ``NETWORKS[name] = function`` adds one.

    >>> sum(p.numel() for p in build("resnet20", num_classes=10).parameters())
    269722
    """
    if name not in NETWORKS:
        raise ConfigError(
            f"`build(name=...)` must be one of {', '.join(sorted(NETWORKS))}. Got {name!r}."
            f"{did_you_mean(name, NETWORKS)} To add your own: `softprune.models.NETWORKS[name] = function`."
        )
    for argument, value in (("num_classes", num_classes), ("in_channels", in_channels)):
        if value < 1:
            raise ConfigError(f"`build({argument}=...)` must be >= 1. Got {value}.")
    return NETWORKS[name](num_classes, in_channels)
