"""Activations in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from softprune.engine.graph import Activation

FUNCTIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.NONE: lambda x: x,
    Activation.RELU: torch.relu,
    Activation.RELU6: functional.relu6,
    Activation.GELU: functional.gelu,
    Activation.GELU_TANH: lambda x: functional.gelu(x, approximate="tanh"),
    Activation.SILU: functional.silu,
    Activation.HARDSWISH: functional.hardswish,
    Activation.HARDSIGMOID: functional.hardsigmoid,
    Activation.SIGMOID: torch.sigmoid,
    Activation.TANH: torch.tanh,
}
