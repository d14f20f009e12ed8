"""Which values of a network depend on its input, and which are the same for every input.

A channel whose filter is zero is a number: its bias, normed, activated. A dispatch mode follows, operation by
operation, which elements depend on the input. A mask (True: depends) goes with every tensor; None is a mask without
any. The values are those of the pass itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from softprune.removal.spread import Mask, everything, spread
from softprune.structure.moves import SAME
from softprune.structure.record import Call
from softprune.structure.state import tensors
from softprune.structure.trace import quietly, run

_TURNS = SAME | {"t", "transpose", "permute", "unsqueeze", "squeeze", "expand"}


@dataclass(frozen=True)
class Read:
    """What a parameter multiplied, at each index that was summed over.

    Args:
        value: the number that it is, for every input and at every place; NaN if there is no such number.
        everywhere: whether each output sees all inputs; at the border of a padded convolution it sees zeros instead.
        rounding: by how much two numbers differ at most that are the same but for rounding; of all that is summed, the
            largest decides.
    """

    value: Tensor
    everywhere: bool
    rounding: float


class Varies(TorchDispatchMode):
    """Follows what depends on the input; keeps what parameters read."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reads: dict[str, list[Read]] = defaultdict(list)
        self._clock = 0
        self._names: Any = WeakTensorKeyDictionary({p: name for name, p in model.named_parameters()})
        self._masks: Any = WeakTensorKeyDictionary({x: (0, everything(x)) for x in tensors(inputs)})
        self._written: dict[int, int] = {}

    def mask(self, tensor: Tensor) -> Mask:
        """What depends on the input; all of it, if its memory was written to by another name since."""
        time, mask = self._masks.get(tensor, (0, None))
        if self._written.get(tensor.untyped_storage().data_ptr(), 0) > time:
            return everything(tensor)
        return mask  # type: ignore[no-any-return]

    def masked(self, tensor: Tensor) -> Tensor:
        mask = self.mask(tensor)
        return torch.zeros((), dtype=torch.bool, device=tensor.device).expand(tensor.shape) if mask is None else mask

    def matters(self, tensor: Tensor) -> Tensor:
        """Where a factor is not surely zero."""
        return self.masked(tensor) | (tensor != 0)

    def read(self, weight: Tensor, x: Tensor, summed: int, everywhere: bool = True) -> None:
        """``x`` is multiplied with this weight and summed along one of its dimensions."""
        name = self._names.get(weight)
        if name is None or not x.is_floating_point():
            return
        rows = x.movedim(summed, -1).reshape(-1, x.shape[summed])
        low, high = rows.amin(0), rows.amax(0)
        varies = self.masked(x).movedim(summed, -1).reshape(-1, x.shape[summed]).any(0)
        largest = torch.maximum(high.abs(), low.abs()).nan_to_num(0.0, 0.0, 0.0).amax()
        rounding = 16 * torch.finfo(x.dtype).eps * float(largest)
        value = low.double().where((high - low <= rounding) & ~varies, torch.nan)
        self.reads[name].append(Read(value.cpu(), everywhere, rounding))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        call = Call.of(func, args, kwargs or {}, out)
        self._clock += 1
        outputs = list(tensors(out))
        if call.name in _TURNS and call.inputs and (name := self._names.get(call.inputs[0])) is not None:
            self._names[outputs[0]] = name
        seen = any(self.mask(x) is not None or self._names.get(x) is not None for x in call.inputs)
        masks = spread(self, call) if seen else [None]
        masks += [masks[0] if masks[0] is None else everything(x) for x in outputs[len(masks) :]]
        for tensor, mask in zip(outputs, masks, strict=False):
            mask = mask if mask is not None and bool(mask.any()) else None
            if func._schema.is_mutable and mask is not None:
                self._written[tensor.untyped_storage().data_ptr()] = self._clock
            self._masks[tensor] = self._clock, mask
        return out


def reads(model: nn.Module, *examples: Any) -> dict[str, list[Read]]:
    """What each parameter reads, call by call, in one pass over each example."""
    found: dict[str, list[Read]] = defaultdict(list)
    for example in examples:
        mode = Varies(model, example)
        with quietly(model), mode:
            run(model, example)
        for name, read in mode.reads.items():
            found[name] += read
    return dict(found)
