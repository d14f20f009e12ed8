"""What a spiking network did: how often its neurons fired, and what that costs on event-driven hardware."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from softprune.report import markdown


@dataclass(frozen=True)
class Firing:
    """A layer of neurons: ``rate`` is its number of spikes, averaged over time steps and neurons."""

    name: str
    rate: float
    neurons: int


@dataclass(frozen=True)
class Operations:
    """A layer of weights, for one image: additions that spikes cause, or multiplications where the input is no spikes.

    ``dense`` counts all weights and ``pruned`` those that are not zero, for the same spikes: each spike times the
    fan-out of its neuron. ``picojoules`` is what one of them costs.
    """

    name: str
    spikes: bool
    dense: float
    pruned: float
    picojoules: float


@dataclass(frozen=True)
class Activity:
    """Measured on ``images`` images. Numbers of operations and energies are those of one image, on average."""

    firing: tuple[Firing, ...]
    operations: tuple[Operations, ...]
    images: int

    @property
    def rate(self) -> float:
        """Spikes averaged over time steps and all neurons of the network."""
        neurons = sum(layer.neurons for layer in self.firing)
        return sum(layer.rate * layer.neurons for layer in self.firing) / neurons

    @property
    def dense(self) -> float:
        """Synaptic operations if no weight were zero."""
        return sum(layer.dense for layer in self.operations if layer.spikes)

    @property
    def pruned(self) -> float:
        """Synaptic operations."""
        return sum(layer.pruned for layer in self.operations if layer.spikes)

    def nanojoules(self, *, dense: bool = False) -> float:
        """Of all layers, those that multiply included; nothing else is counted, memory least of all."""
        return sum((layer.dense if dense else layer.pruned) * layer.picojoules for layer in self.operations) / 1000

    def figures(self) -> dict[str, float]:
        """What runs are compared by."""
        return {"firing rate": self.rate, "synaptic operations": self.pruned, "energy (nJ)": self.nanojoules()}

    def to_dict(self) -> dict[str, Any]:
        return {
            "images": self.images,
            "firing_rate": self.rate,
            "synaptic_operations": {"dense": self.dense, "pruned": self.pruned},
            "nanojoules": {"dense": self.nanojoules(dense=True), "pruned": self.nanojoules()},
            "firing": [asdict(layer) for layer in self.firing],
            "operations": [asdict(layer) for layer in self.operations],
        }

    def to_markdown(self) -> str:
        firing = [[layer.name, f"{layer.neurons:,}", f"{layer.rate:.2%}"] for layer in self.firing]
        firing.append(["all", f"{sum(layer.neurons for layer in self.firing):,}", f"{self.rate:.2%}"])
        counted = [
            [
                layer.name,
                "spikes" if layer.spikes else "values",
                f"{layer.dense:,.0f}",
                f"{layer.pruned:,.0f}",
                f"{layer.pruned * layer.picojoules / 1000:,.3g}",
            ]
            for layer in self.operations
        ]
        counted.append(["all", "spikes", f"{self.dense:,.0f}", f"{self.pruned:,.0f}", f"{self.nanojoules():,.3g}"])
        return "\n\n".join(
            [
                f"Firing rate {self.rate:.2%}; {self.pruned:,.0f} synaptic operations an image, {self.dense:,.0f} if "
                f"no weight were zero; about {self.nanojoules():,.3g} nJ, {self.nanojoules(dense=True):,.3g} nJ dense.",
                markdown.table(["neurons", "number", "firing rate"], firing),
                markdown.table(["weights", "input", "dense operations", "operations", "nJ"], counted),
                "Operations are of one image: additions where the input is spikes, multiply-accumulates where it is "
                "values. The line of all counts the synaptic ones, its energy every one.",
            ]
        )
