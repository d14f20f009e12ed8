"""Thresholds: where d comes from.

    base         Threshold, a value, and Rule, what it becomes when it is bound to weights and an optimizer
    scheduled    Stepwise, computed by the host: Scheduled (any step -> d), LATS
    trained      Trainable, with parameters of its own: STR, GPO
    aim          what thresholds with a target share: arrive, hold
    target       TargetSparsity: the penalty that leads to a target
    gradual      GradualSparsity: the quantile on a sparsity curve
    keep         KeepZeros: for fine-tuning
    odds         the rule behind TargetSparsity: how the odds of being zero grow, and which D ends at those wanted
    clock        the learning done and to come, when to solve
    hold         when to look again, once a target is reached
    guard        no layer collapses by accident
    race         whether weights outrun the threshold
    quantile     order statistics of |θ| over many parameters
    budgets      uniform, erdos_renyi, erk: who shares a threshold, and how sparse each is to be

Imports ``schedules``, ``prox``, ``attach`` and ``kernels``; the pruner imports it.
"""
