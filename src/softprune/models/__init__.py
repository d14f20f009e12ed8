"""Networks: plain modules, each made by a function ``(num_classes, in_channels) -> module``.

    resnet      ResNet-18 and ResNet-50, with torchvision's layer names
    mobilenet   MobileNet-V1
    small       networks for CIFAR and for scikit-learn's digits, and a perceptron

Imports torch alone; no registry. ``spiking.sew`` builds on the residual stages, the command gives the networks names.
The core never imports it.

>>> sum(p.numel() for p in resnet20().parameters())
269722
"""

from softprune.models.mobilenet import MobileNetV1, mobilenet_v1, mobilenet_v1_cifar
from softprune.models.resnet import ResNet, resnet18, resnet50
from softprune.models.small import digits_resnet, mlp, resnet18_cifar, resnet20

__all__ = [
    "MobileNetV1",
    "ResNet",
    "digits_resnet",
    "mlp",
    "mobilenet_v1",
    "mobilenet_v1_cifar",
    "resnet18",
    "resnet18_cifar",
    "resnet20",
    "resnet50",
]
