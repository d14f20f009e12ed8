"""Spiking networks: neurons, networks, what they fire, what that costs, and export to other simulators.

    neurons     IF and LIF, multi-step, on spikingjelly
    sew         SEW ResNets
    meter       measures firing rates and synaptic operations during an evaluation
    activity    what was measured: numbers, energy, tables
    export      a trained network as a NIR graph

Imports ``models`` and ``report``; the command imports it. Pruning needs nothing of it: the core sees parameters and
their gradients, and a network unrolled over time has those like any other.
"""

from softprune.errors import needs

needs("spikingjelly", "spikingjelly", "softprune.spiking", extra="snn")
