"""The paper's networks. The core never imports this package."""

from softprune.models.resnet import ResNet, resnet18, resnet50

__all__ = ["ResNet", "resnet18", "resnet50"]
