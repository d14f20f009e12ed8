"""Activity of a spiking network: how often its neurons fire, and what that costs on event-driven hardware."""

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
    """A layer of weights, for one image: additions if its input is ``spikes``, else multiply-accumulates.

    ``dense`` counts all weights and ``pruned`` the nonzero ones, for the same spikes: each spike times the fan-out of
    its neuron. ``picojoules`` is the energy of one operation.
    """

    name: str
    spikes: bool
    dense: float
    pruned: float
    picojoules: float


@dataclass(frozen=True)
class Activity:
    """What was measured on ``images`` images. Operations and energies are averages over them."""

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
        """Synaptic operations if no weight was zero."""
        return sum(layer.dense for layer in self.operations if layer.spikes)

    @property
    def pruned(self) -> float:
        """Synaptic operations."""
        return sum(layer.pruned for layer in self.operations if layer.spikes)

    def nanojoules(self, *, dense: bool = False) -> float:
        """Energy of the arithmetic in all layers, multiply-accumulates included; memory is not counted."""
        return sum((layer.dense if dense else layer.pruned) * layer.picojoules for layer in self.operations) / 1000

    def figures(self) -> dict[str, float]:
        """The numbers that runs are compared by."""
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
                f"no weight was zero; about {self.nanojoules():,.3g} nJ, {self.nanojoules(dense=True):,.3g} nJ dense.",
                markdown.table(["neurons", "number", "firing rate"], firing),
                markdown.table(["weights", "input", "dense operations", "operations", "nJ"], counted),
                "Operations are of one image: additions where the input is spikes, multiply-accumulates where it is "
                "values. The last row counts synaptic operations alone, but the energy of all layers.",
            ]
        )
