"""A few numbers for many: of a run, and of several seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def constancy(penalties: Sequence[float], thresholds: Sequence[float]) -> dict[str, float]:
    """How constant a penalty is, and how quietly the threshold arrives.

    ``spread``: the penalty's deviation over its mean, between 10% and 90% of training; ``landing``: by how much
    of itself the threshold moves in the last 5%. Nothing where there are too few numbers, or only zeros.
    """
    middle = penalties[len(penalties) // 10 : -len(penalties) // 10]
    if len(middle) < 20 or not (mean := statistics.fmean(middle)):
        return {}
    return {
        "spread": statistics.stdev(middle) / abs(mean),
        "landing": thresholds[-1] / thresholds[-1 - len(thresholds) // 20] - 1,
    }


def percent(values: Sequence[float]) -> str:
    """Mean ± deviation, in percent."""
    if not values:
        return ""
    deviation = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.2f}{deviation}"
