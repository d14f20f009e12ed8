"""Spiking networks: their neurons, what they fire and what that costs, and their exchange format.

Pruning them needs nothing of this package: the core sees parameters and their gradients, and a network unrolled over
time has those like any other.
"""

from softprune.errors import needs

needs("spikingjelly", "spikingjelly", "softprune.spiking", extra="snn")
