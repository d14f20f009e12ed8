"""How often a model multiplies each of its weights, counted in the operations that it runs.

Whatever a layer is called, its weight ends up in a matrix product or a convolution. A dispatch mode sees them all:
linear layers and convolutions, attention, recurrent layers, weights that are tied, sliced or cast.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from softprune.errors import ArgumentError
from softprune.selection import unwrap

_CASTS = {torch.ops.aten._to_copy.default, torch.ops.aten.clone.default}


def flops_per_weight(model: nn.Module, *example: Any) -> dict[str, float]:
    """How often each weight is multiplied when the model processes one sample.

    Args:
        model: the network; it runs once, in evaluation mode.
        *example: its inputs, for one batch; the first dimension of the first tensor is the batch size.

    >>> flops_per_weight(nn.Conv2d(3, 8, 3, padding=1), torch.zeros(2, 3, 10, 10))
    {'weight': 100.0}
    """
    model = unwrap(model)
    batch = next((len(x) for x in _tensors(example) if x.dim() > 0), 0)
    if batch < 1:
        raise ArgumentError("`flops_per_weight(model, *example)` needs an example with at least one sample.")
    if any(p.is_meta for p in model.parameters()):
        raise ArgumentError("`flops_per_weight(model, *example)` needs a model with memory, not on the meta device.")
    counter = _Counter(model)
    training = [module for module in model.modules() if module.training]
    try:
        with torch.inference_mode(False), torch.no_grad(), _product_by_product(), counter:
            model.eval()(*example)
    finally:
        for module in training:
            module.training = True
    return {name: products / model.get_parameter(name).numel() / batch for name, products in counter.products.items()}


@contextmanager
def _product_by_product() -> Iterator[None]:
    """Turn off fused attention and RNN kernels, which hide their products."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # oneDNN warns of missing GPUs
            with torch.backends.mkldnn.flags(enabled=False), torch.backends.cudnn.flags(enabled=False):
                yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class _Counter(TorchDispatchMode):
    """Counts the multiplications of each parameter, which it recognises by its address in memory."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.products: dict[str, float] = {}
        self._places = [(p, name) for name, p in model.named_parameters()]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        flops = flop_registry.get(getattr(func, "_overloadpacket", func))
        if flops is not None:
            matrices = [x for x in args if isinstance(x, Tensor) and x.dim() > 1]  # no biases, which are added
            for name in {self._name(x) for x in matrices} - {None}:
                products = flops(*args, **(kwargs or {}), out_val=out) / 2
                self.products[name] = self.products.get(name, 0.0) + products
        elif func in _CASTS and (name := self._name(args[0])) is not None:
            self._places.append((out, name))
        return out

    def _name(self, tensor: Tensor) -> Any:
        """The parameter whose memory holds this tensor; a recurrent layer keeps all of its weights in one block."""
        begin = tensor.data_ptr()
        inside = (name for p, name in self._places if p.data_ptr() <= begin < p.data_ptr() + p.nbytes)
        return next(inside, None)


def _tensors(example: Any) -> Iterator[Tensor]:
    """The tensors of nested lists and dictionaries, in order."""
    if isinstance(example, Tensor):
        yield example
    elif isinstance(example, Mapping):
        yield from (tensor for part in example.values() for tensor in _tensors(part))
    elif isinstance(example, Sequence) and not isinstance(example, str):
        yield from (tensor for part in example for tensor in _tensors(part))
