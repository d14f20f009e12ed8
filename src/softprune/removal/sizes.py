"""An example in other sizes: what is one number for every input of one size may be another at the next, as a sum over
time is."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from softprune.structure.state import changed, tensors
from softprune.structure.trace import evaluation, run


def resized(model: nn.Module, example: Any) -> list[Any]:
    """The example with half the size in every dimension in which the model takes it; none if there is no such one.

    On a CPU twice the size is tried too. A GPU would not survive a position that an embedding does not have.
    """
    on_cpu = all(x.device.type == "cpu" for x in [*model.parameters(), *tensors(example)])
    found: dict[tuple[int, int], int] = {}
    for dim, size in sorted({(dim, size) for x in tensors(example) for dim, size in enumerate(x.shape)}):
        for other in (size // 2, 2 * size) if on_cpu else (size // 2,):
            sizes = {**found, (dim, size): other}
            if other and _runs(model, _with(example, sizes)):
                found = sizes
                break
    return [_with(example, found)] if found else []


def _runs(model: nn.Module, example: Any) -> bool:
    with evaluation(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run(model, example)
        except Exception:  # whatever the module's own code raises at a size that it cannot take
            return False
    return True


def _with(example: Any, sizes: Mapping[tuple[int, int], int]) -> Any:
    """Cut, or repeated: (dimension, size) -> another size."""

    def change(x: Tensor) -> Tensor:
        for dim, size in enumerate(x.shape):
            if (other := sizes.get((dim, size))) is not None:
                x = x.index_select(dim, torch.arange(other, device=x.device) % size)
        return x

    return changed(example, change)
