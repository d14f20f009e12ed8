"""Thresholds: where d comes from.

    base         Threshold, a value, and Rule, what it becomes when it is bound to weights and an optimizer
    scheduled    Stepwise, computed by the host: Scheduled (any step -> d), LATS
    trained      Trainable, with parameters of its own: STR, GPO
    target       TargetSparsity: a target sparsity is met
    odds         the rule behind it: how the odds of being zero grow, and which D ends at those wanted
    clock        the learning done and to come, when to solve, when a run ends
    guard        no layer collapses by accident
    quantile     order statistics of |θ| over many parameters
    budgets      uniform, erdos_renyi, erk: who shares a threshold, and how sparse each is to be

Imports ``schedules``, ``prox``, ``attach`` and ``kernels``; the pruner imports it.
"""
