"""One forward pass, in which every operation that runs is seen, and a rule says what becomes of the units."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from softprune.errors import ArgumentError
from softprune.structure import moves, pointwise, products
from softprune.structure.labels import Ties
from softprune.structure.record import Call, Record
from softprune.structure.state import Leaves, State, States, tensors

Rule = Callable[[Record, Call], State | list[State]]

_REDUCTIONS = (
    "sum", "mean", "var", "std", "var_mean", "amax", "amin", "max", "min", "prod", "logsumexp", "linalg_vector_norm",
    "norm",
)  # fmt: skip
_RULES: dict[str, Rule] = {
    **dict.fromkeys(moves.SAME, moves.same),
    **dict.fromkeys(moves.VIEWS, moves.view),
    **dict.fromkeys(moves.MOVES, moves.move),
    **dict.fromkeys(moves.JOINS, moves.join),
    **dict.fromkeys(("view_as_complex", "view_as_real"), moves.complex_pairs),
    "constant_pad_nd": moves.pad,
    **dict.fromkeys((*pointwise.UNTAGGED, "native_dropout"), pointwise.pointwise),
    **dict.fromkeys(_REDUCTIONS, pointwise.reduction),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax", "cumsum", "cumprod"), pointwise.softmax),
    "glu": pointwise.glu,
    "native_layer_norm": pointwise.layer_norm,
    "_fused_rms_norm": pointwise.layer_norm,
    "native_group_norm": pointwise.group_norm,
    **dict.fromkeys(("mm", "bmm", "mv", "addmm", "_addmm_activation", "baddbmm", "addmv"), products.matrix_product),
    "convolution": products.convolution,
    "embedding": products.embedding,
}
_ALLOCATES = {"empty", "zeros", "ones", "full", "new_empty", "new_zeros", "new_ones", "new_full", "empty_strided"}
_KEEPS = {"fill", "zero", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"}
SPATIAL = ("avg_pool", "max_pool", "upsample", "reflection_pad", "replication_pad")


def rule_for(func: Any, name: str) -> Rule | None:
    if name in _RULES:
        return _RULES[name]
    if torch.Tag.pointwise in func.tags:
        return pointwise.pointwise
    if any(word in name for word in SPATIAL):
        return pointwise.spatial
    if "batch_norm" in name:
        return pointwise.batch_norm
    if "scaled_dot_product" in name and "attention" in name:
        return products.attention
    return None


class Trace(TorchDispatchMode):
    """Writes down, operation by operation, which units the network has."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        ties = Ties()
        self.record = Record(ties, States(model, ties))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.see(Call.of(func, args, kwargs or {}, out))
        return out

    def see(self, call: Call) -> None:
        record, outputs = self.record, list(tensors(call.out))
        if call.name in _ALLOCATES and not call.overload._schema.is_mutable:
            record.states[call.out] = torch.full(call.out.shape, -1)
            return
        touched = [x for x in call.inputs if record.states.raw(x) is not None]
        if not touched or not outputs:
            return
        if call.name in _KEEPS:
            record.states[call.out] = record.states.raw(call["self"])
            return
        rule = rule_for(call.overload, call.name)
        if rule is None:
            self.refuse(call, touched)
            return
        states = rule(record, call)
        states = states if isinstance(states, list) else [states]
        for tensor, state in zip(outputs, states, strict=False):
            record.states[tensor] = state
        for tensor in outputs[len(states) :]:  # the indices of a maximum, the statistics of a norm
            same = isinstance(states[0], Tensor) and tensor.shape == states[0].shape
            record.states[tensor] = states[0] if same else None

    def refuse(self, call: Call, touched: Sequence[Tensor]) -> None:
        """An operation without a rule: what goes in must stay."""
        for x in touched:
            state = self.record.states[x]
            if isinstance(state, Tensor) or (isinstance(state, Leaves) and state.weight):
                self.record.unknown[call.name] = None
            self.record.fix(x)


def run(model: nn.Module, example: Any) -> Any:
    """Call the model with one tensor, a tuple of arguments, or a mapping of keyword arguments."""
    if isinstance(example, Mapping):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, without gradients; then modes and random numbers as they were."""
    training = [module for module in model.modules() if module.training]
    gpus = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    try:
        with torch.random.fork_rng(gpus), torch.inference_mode(False), torch.no_grad():  # which hides linear layers
            model.eval()
            yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def quietly(model: nn.Module) -> Iterator[None]:
    """The same, without fused kernels, which hide their parts."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings(), evaluation(model):
            warnings.simplefilter("ignore")  # oneDNN warns of missing GPUs
            with torch.backends.mkldnn.flags(enabled=False), torch.backends.cudnn.flags(enabled=False):
                yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def trace(model: nn.Module, example: Any) -> Record:
    """Run the model once, and see all of its operations."""
    seen = Trace(model)
    with quietly(model), seen:
        out = run(model, example)
    outputs = list(tensors(out))
    if not outputs:
        raise ArgumentError(
            f"The model returns {type(out).__name__}, in which no tensor is found. Wrap it in a module that returns "
            "a tensor, or tensors in tuples, lists, mappings or dataclasses."
        )
    for tensor in outputs:
        seen.record.fix(tensor)
    return seen.record
