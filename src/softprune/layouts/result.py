"""What a conversion gives: the network with other layers, and a table of them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from softprune.report.markdown import columns


@dataclass(frozen=True)
class Layer:
    """A Linear layer that was looked at.

    Args:
        name: of the layer.
        outputs: rows of its weight.
        inputs: columns of its weight.
        zeros: the share of its weights that is zero.
        reason: why it stayed dense; empty if it was converted.
    """

    name: str
    outputs: int
    inputs: int
    zeros: float
    reason: str = ""


@dataclass(frozen=True)
class Converted:
    """A network that computes the same from weights in another layout.

    Args:
        model: a copy of the network with other layers.
        layout: what the layers that were converted are now.
        layers: all Linear layers, converted or not.
    """

    model: nn.Module
    layout: str
    layers: tuple[Layer, ...]

    @property
    def converted(self) -> tuple[str, ...]:
        """The names of the layers that were converted."""
        return tuple(layer.name for layer in self.layers if not layer.reason)

    def __str__(self) -> str:
        rows = [("layer", "weight", "zeros", "now")]
        for layer in self.layers:
            now = f"dense: {layer.reason}" if layer.reason else self.layout
            rows.append((layer.name or "(itself)", f"{layer.outputs} x {layer.inputs}", f"{layer.zeros:.2%}", now))
        lines = [line.rstrip() for line in columns(rows, numbers=(1, 2))]
        count = f"{len(self.converted)} of {len(self.layers)} Linear layers were converted."
        return "\n".join([*(lines if self.layers else []), count])
