"""What came out of a run, in a sentence. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from softprune.recipes.config import Config
from softprune.training import names

LOSS = "validation loss"
"""The name of the figure that every run has: cross entropy in nats, of text for each byte."""


def headline(config: Config, accuracy: float, figures: Mapping[str, float]) -> str:
    """Images are compared by accuracy, text by loss: many bytes could follow, and one of them does."""
    if names.NETWORKS.find(config.network).takes == "text":
        return f"Validation loss {figures[LOSS]:.4f} (accuracy {accuracy:.2%})"
    return f"Accuracy {accuracy:.2%}"
