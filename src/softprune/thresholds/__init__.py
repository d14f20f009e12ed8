"""Thresholds: where d comes from.

    base         Threshold, a value, and Rule, what it becomes when it is bound to weights and an optimizer
    scheduled    Scheduled (any step -> d), LATS
    trained      STR, GPO
    target       TargetSparsity, with its clock, its guard and the odds that tell D
    quantile     order statistics of |θ| over many parameters
    budgets      uniform, erdos_renyi, erk: who shares a threshold, and how sparse each is to be

Imports ``schedules``, ``prox``, ``attach`` and ``kernels``; the pruner imports it.
"""
