"""Proximal maps: θ, d -> w, and the gradient back.

    base        Prox: the map, its certificate, its inverse, its derivative, and what it claims
    soft        SoftThreshold, Blend
    power       PowerThreshold, from soft to hard
    group       Grouped, for groups of weights
    gradient    identity, calm, subgradient
    nm          NM, at most n of m neighbours

Imports ``kernels``; thresholds and the pruner import it.
"""
