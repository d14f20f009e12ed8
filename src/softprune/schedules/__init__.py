"""Schedules: step -> d. Frozen, printable, picklable values.

    base       Schedule, Ramp (d rises from 0 to D), Constant
    stds       Sine, Linear, Log2: the shape g is a formula
    slats      SLATS, PGH, CosineLATS: g is the integral of the learning-rate curve
    curves     learning-rate curves and their integrals (``sp.curves``): Cosine, Polynomial, Steps
    penalty    Theorem 1: a schedule is an L1 penalty, and back

Standard library only: no torch. Imports ``errors``; every room above may import it.
"""
