"""softprune: sparse neural networks by soft thresholding, while they train.

params = sp.select(model)
pruner = sp.Pruner(params, optimizer, threshold=sp.SLATS(final=0.5, steps=T))
"""

from softprune import curves
from softprune.gradient import identity, subgradient
from softprune.penalty import implied_penalty, threshold_from_penalty
from softprune.prox import Blend, Prox, SoftThreshold
from softprune.pruner import Pruner
from softprune.report import Report, summarize
from softprune.schedule import PGH, SLATS, Constant, CosineLATS, Linear, Log2, Schedule, Sine
from softprune.select import select
from softprune.threshold import GPO, LATS, STR, Threshold, Trainable

__version__ = "0.1.0"

__all__ = [
    "GPO",
    "LATS",
    "PGH",
    "SLATS",
    "STR",
    "Blend",
    "Constant",
    "CosineLATS",
    "Linear",
    "Log2",
    "Prox",
    "Pruner",
    "Report",
    "Schedule",
    "Sine",
    "SoftThreshold",
    "Threshold",
    "Trainable",
    "curves",
    "identity",
    "implied_penalty",
    "select",
    "subgradient",
    "summarize",
    "threshold_from_penalty",
]
