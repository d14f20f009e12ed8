"""Vision transformers: an image is cut into patches, and every patch is a token."""

from __future__ import annotations

from torch import Tensor, nn

from softprune.errors import ArgumentError
from softprune.models.transformer import Block, initialize


class VisionTransformer(nn.Module):
    """patches, positions, blocks.0 ... blocks.N, norm, head.

    The classes are read from the mean over all patches; there is no class token. The positions are learned, so that it
    takes images of one size only.

    Args:
        num_classes: the number of logits.
        in_channels: channels of an image.
        rows: pixels from top to bottom.
        columns: pixels from left to right.
        patch: the side of a patch in pixels.
        layers: how many blocks.
        width: numbers that stand for a patch.
        heads: of the attention; they divide the width.
        std: deviation of the initial weights.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int,
        rows: int,
        columns: int,
        *,
        patch: int,
        layers: int,
        width: int,
        heads: int,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        if rows % patch or columns % patch:
            raise ArgumentError(
                f"An image must have sides that a patch of {patch} pixels divides. Got {rows} × {columns} pixels."
            )
        self.patches = nn.Conv2d(in_channels, width, patch, stride=patch)
        self.positions = nn.Embedding((rows // patch) * (columns // patch), width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)
        initialize(self, std)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))  # type: ignore[no-any-return]


def vit(num_classes: int = 10, in_channels: int = 3, rows: int = 32, columns: int = 32) -> VisionTransformer:
    """Six blocks of width 256 on patches of 4 × 4 pixels, for CIFAR: 4,770,570 parameters for 10 classes."""
    return VisionTransformer(num_classes, in_channels, rows, columns, patch=4, layers=6, width=256, heads=4)


def vit_digits(num_classes: int = 10, in_channels: int = 1, rows: int = 8, columns: int = 8) -> VisionTransformer:
    """Four blocks of width 64 on patches of 2 × 2 pixels, for scikit-learn's digits: 202,058 parameters."""
    return VisionTransformer(num_classes, in_channels, rows, columns, patch=2, layers=4, width=64, heads=4, std=0.12)
