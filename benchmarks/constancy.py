"""How constant a penalty is, over a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def constancy(penalties: Sequence[float]) -> dict[str, float]:
    """``spread``: deviation over mean between 10% and 90% of training; ``last``: the mean over the last 5% in units of
    that mean, the last step left out. Nothing where there are too few numbers, or only zeros."""
    middle = penalties[len(penalties) // 10 : -len(penalties) // 10]
    if len(middle) < 20 or not (mean := statistics.fmean(middle)):
        return {}
    return {
        "spread": statistics.stdev(middle) / mean,
        "last": statistics.fmean(penalties[-len(penalties) // 20 : -1]) / mean,
    }
