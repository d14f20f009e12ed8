"""Formulas of the paper in numpy, which share no code with the library."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn


def cosine(x: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * x))


def shrink(x, d):
    return np.sign(x) * np.maximum(np.abs(x) - d, 0)


def parameter(values) -> nn.Parameter:
    """In double precision."""
    return nn.Parameter(torch.tensor(np.asarray(values), dtype=torch.float64))


def number(values: dict[str, float]) -> float:
    """The threshold or penalty of a pruner with one parameter."""
    (value,) = values.values()
    return value
