"""What a pruner does now, in a few numbers: for the logs of trainers."""

from __future__ import annotations

import math
import statistics

from softprune.pruner.pruner import Pruner


def measurements(pruner: Pruner) -> dict[str, float]:
    """Sparsity, threshold and implied penalty as plain numbers; means where layers differ. Without a learning rate
    there is no penalty. With a target sparsity also the final sparsity that is forecast."""
    numbers = {"sparsity": pruner.sparsity(), "threshold": statistics.fmean(pruner.threshold.values())}
    if math.isfinite(penalty := statistics.fmean(pruner.penalty.values())):
        numbers["penalty"] = penalty
    if pruner.rule.forecast is not None:
        numbers["forecast"] = pruner.rule.forecast
    return numbers
