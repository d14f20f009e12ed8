"""Networks: plain modules, each made by a function ``(num_classes, in_channels) -> module``.

    resnet      ResNet-18 and ResNet-50, with torchvision's layer names
    mobilenet   MobileNet-V1
    small       networks for CIFAR and for scikit-learn's digits, and a perceptron
    vit         vision transformers, which are also told the size of the images
    gpt         transformers for text: ``(num_tokens, context) -> module``
    transformer the block of both

Imports torch and ``errors``; no registry. ``spiking.sew`` builds on the residual stages, the command gives the networks
names. The core never imports it.

>>> sum(p.numel() for p in resnet20().parameters())
269722
"""

from softprune.models.gpt import GPT, gpt, gpt_small
from softprune.models.mobilenet import MobileNetV1, mobilenet_v1, mobilenet_v1_cifar
from softprune.models.resnet import ResNet, resnet18, resnet50
from softprune.models.small import digits_resnet, mlp, resnet18_cifar, resnet20
from softprune.models.vit import VisionTransformer, vit, vit_digits

__all__ = [
    "GPT",
    "MobileNetV1",
    "ResNet",
    "VisionTransformer",
    "digits_resnet",
    "gpt",
    "gpt_small",
    "mlp",
    "mobilenet_v1",
    "mobilenet_v1_cifar",
    "resnet18",
    "resnet18_cifar",
    "resnet20",
    "resnet50",
    "vit",
    "vit_digits",
]
