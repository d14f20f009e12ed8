"""Whoever saves the optimizer saves the pruning: θ, the step and d inside ``optimizer.state_dict()``.

The entries are put beside the optimizer's own when a state dict is made, and taken out again before the
optimizer loads one: ``optimizer.state`` itself never holds them (Adam takes a parameter with any state for
initialised, and would miss ``exp_avg``). There they are per-parameter entries, which every checkpointing
library carries, renames and shards like a momentum buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from softprune.attach.hooks import numbers

THETA = "softprune.theta"
STEP = "softprune.step"
THRESHOLD = "softprune.threshold"
VALUE = "softprune.value"
CONTROL = "softprune.control."
COMPLETE = "softprune.complete"  # while a state dict is loaded: its entries, for the optimizer's next pruner


@dataclass(frozen=True)
class Snapshot:
    """What resuming needs: the step, θ and d of each pruned parameter, and the threshold's own state: the values of its
    parameters, or a controller's numbers."""

    step: int
    thetas: Sequence[Tensor]
    thresholds: Sequence[float] | None
    values: Sequence[Tensor]
    control: dict[str, float]


def attach(
    optimizer: Optimizer,
    params: Mapping[str, Tensor],
    trained: Sequence[Tensor],
    *,
    snapshot: Callable[[], Snapshot],
    refuse: Callable[[dict[str, float]], None],
    restore: Callable[[Snapshot], None],
) -> list[RemovableHandle]:
    """Let the optimizer's state dicts carry the snapshot, and restore it when one is loaded; nothing is loaded where
    ``refuse`` objects to the threshold's own state."""
    loading: list[Snapshot] = []

    def saved(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        return insert(state_dict, snapshot(), numbers(optimizer, params.values()), numbers(optimizer, trained))

    def loads(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        rest, found = extract(state_dict, params, numbers(optimizer, params.values()), numbers(optimizer, trained))
        _refuse_other_shapes(found.values, trained)
        refuse(found.control)
        loading[:] = [found]
        return rest

    def loaded(_: Optimizer) -> None:
        restore(loading.pop())

    return [
        optimizer.register_state_dict_post_hook(saved),
        optimizer.register_load_state_dict_pre_hook(loads),
        optimizer.register_load_state_dict_post_hook(loaded),
    ]


def insert(
    state_dict: dict[str, Any], snapshot: Snapshot, pruned: Sequence[int], trained: Sequence[int]
) -> dict[str, Any]:
    """``state_dict`` with the snapshot in it; ``pruned`` and ``trained`` number parameters as it does.

    Each parameter gets an entry: torch.distributed.checkpoint expects one for all of them or for none.
    """
    entries: dict[Any, Any] = {key: {} for group in state_dict["param_groups"] for key in group["params"]}
    entries |= {key: dict(entry) for key, entry in state_dict["state"].items()}
    for i, key in enumerate(pruned):
        entries[key].update({THETA: snapshot.thetas[i], STEP: snapshot.step})
        if snapshot.thresholds is not None:
            entries[key][THRESHOLD] = snapshot.thresholds[i]
    # once is enough: a controller has numbers for each parameter
    entries[pruned[0]].update({CONTROL + name: value for name, value in snapshot.control.items()})
    for key, value in zip(trained, snapshot.values, strict=True):
        entries[key][VALUE] = value
    return {**state_dict, "state": entries}


def extract(
    state_dict: dict[str, Any], params: Mapping[str, Tensor], pruned: Sequence[int], trained: Sequence[int]
) -> tuple[dict[str, Any], Snapshot]:
    """The state dict that the optimizer itself understands, and the snapshot that was in it."""
    complete = state_dict.get(COMPLETE, state_dict["state"])
    keys = [key for group in state_dict["param_groups"] for key in group["params"]]
    entries = {number: complete.get(key, {}) for number, key in enumerate(keys)}
    found = [entries.get(number, {}) for number in pruned]
    _refuse_foreign(params, {name: entry.get(THETA) for name, entry in zip(params, found, strict=True)})
    values = [entries.get(number, {}).get(VALUE) for number in trained]
    if any((THRESHOLD in entry) == bool(trained) for entry in found) or any(v is None for v in values):
        raise ValueError(_WRONG_THRESHOLD)
    snapshot = Snapshot(
        step=int(found[0][STEP]),
        thetas=[entry[THETA] for entry in found],
        thresholds=None if trained else [float(entry[THRESHOLD]) for entry in found],
        values=values,
        control={k.removeprefix(CONTROL): v for k, v in found[0].items() if k.startswith(CONTROL)},
    )
    return {**state_dict, "state": dict(_without_ours(complete)), COMPLETE: complete}, snapshot


def to_dict(snapshot: Snapshot, params: Mapping[str, Tensor]) -> dict[str, Any]:
    thresholds = snapshot.thresholds
    return {
        "step": snapshot.step,
        "theta": dict(zip(params, snapshot.thetas, strict=True)),
        "threshold": None if thresholds is None else dict(zip(params, thresholds, strict=True)),
        "values": list(snapshot.values),
        "control": dict(snapshot.control),
    }


def from_dict(state_dict: Mapping[str, Any], params: Mapping[str, Tensor], trained: Sequence[Tensor]) -> Snapshot:
    if not {"step", "theta", "threshold", "values", "control"} <= state_dict.keys():
        raise ValueError("Cannot load this state: it is none that `Pruner.state_dict()` gave.")
    saved, thresholds = state_dict["theta"], state_dict["threshold"]
    _refuse_foreign(params, {name: saved.get(name) for name in params})
    if (thresholds is None) != bool(trained) or len(state_dict["values"]) != len(trained):
        raise ValueError(_WRONG_THRESHOLD)
    _refuse_other_shapes(state_dict["values"], trained)
    return Snapshot(
        step=state_dict["step"],
        thetas=[saved[name] for name in params],
        thresholds=None if thresholds is None else [thresholds[name] for name in params],
        values=state_dict["values"],
        control=state_dict["control"],
    )


_WRONG_THRESHOLD = (
    "Cannot load this state: its threshold is trained and the pruner's is not, the other way round, or has other "
    "parameters of its own. "
    "Build the Pruner with the kind of threshold that the state was saved with."
)


def refuse_loaded(optimizer: Optimizer, params: Mapping[str, Tensor]) -> None:
    """A state with hidden weights, loaded when there was no pruner to take them."""
    for name, p in params.items():
        if THETA in optimizer.state.get(p, {}):
            raise ValueError(
                f"The optimizer's state holds hidden weights for {name!r}, from a run that was pruned. Build the "
                "Pruner first, and load the optimizer's state then: it resumes the pruning."
            )


def refuse_unrestored(optimizer: Optimizer, p: Tensor) -> None:
    """A state that was loaded past the hooks, seen on one parameter: the pruner would go on from nothing."""
    if THETA in optimizer.state.get(p, ()):
        raise RuntimeError(
            f"A state was loaded, and the pruning was not resumed: {type(optimizer).__name__}.load_state_dict runs no "
            "hooks. Save `pruner.state_dict()` beside the optimizer's, and load it with `pruner.load_state_dict()`."
        )


def _refuse_other_shapes(values: Sequence[Tensor], trained: Sequence[Tensor]) -> None:
    if [value.shape for value in values] != [p.shape for p in trained]:
        raise ValueError(
            "Cannot load this state: its trained thresholds have other shapes. One that all parameters share is not "
            "one for each of them. Build the Pruner with the kind of threshold that the state was saved with."
        )


def _refuse_foreign(params: Mapping[str, Tensor], thetas: Mapping[str, Tensor | None]) -> None:
    for name, p in params.items():
        theta = thetas[name]
        if theta is None:
            raise ValueError(
                f"Cannot load this state: it holds no hidden weights for {name!r}. It was saved without a pruner, "
                "or for another model; or torch.distributed.checkpoint dropped them, as it does with "
                "`flatten_optimizer_state_dict=True`: leave that off. To start pruning from a state without any, load "
                "it before building the Pruner."
            )
        if theta.shape != p.shape:
            raise ValueError(
                f"Cannot load this state: {name!r} has the shape {tuple(p.shape)}, and the state holds "
                f"{tuple(theta.shape)}. It is the state of another model."
            )


def _without_ours(entries: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    for key, entry in entries.items():
        if rest := {k: v for k, v in entry.items() if not str(k).startswith("softprune.")}:
            yield key, rest
