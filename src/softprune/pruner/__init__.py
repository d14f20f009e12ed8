"""The pruner: Algorithm 1 in an optimizer's step hooks.

    pruner      Algorithm 1
    hidden      θ, and its swap with w
    checks      refusals at construction
    state       what a pruner saves, by name
    registry    which pruner has a parameter
    plan        what a trainer's callback is asked for, before there is an optimizer

Imports thresholds, prox, attach and kernels; reports, trainers and the command import it.
"""
