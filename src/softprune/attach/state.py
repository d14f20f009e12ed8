"""Entries of our own inside ``optimizer.state_dict()``: saving the optimizer saves the pruning.

An entry is a tensor or a number of one parameter: {parameter: {key: value}}, under keys that begin with ``PREFIX``. The
entries are put beside the optimizer's own when a state dict is made, and taken out again before the optimizer loads
one: ``optimizer.state`` itself never holds them (Adam takes a parameter with any state for initialised, and would miss
``exp_avg``). As per-parameter entries every checkpointing library carries, renames and shards them like a momentum
buffer. What the keys mean is for the caller to say: a pruner saves θ, a rival method its masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from softprune.attach.lookup import indices
from softprune.errors import UsageError

PREFIX = "softprune."

Entries = Mapping[Tensor, Mapping[str, Any]]
"""{parameter: {key: tensor or number}}."""


def attach(
    optimizer: Optimizer,
    owners: Sequence[Tensor],
    *,
    save: Callable[[], Entries],
    check: Callable[[Entries], None],
    load: Callable[[Entries], None],
) -> list[RemovableHandle]:
    """Let the optimizer's state dicts carry entries of the parameters ``owners``.

    ``save()`` gives them. When a state dict is loaded, ``check(entries)`` may refuse it before anything has changed;
    ``load(entries)`` takes them after the optimizer has taken its own.
    """
    loading: list[Entries] = []
    restored = optimizer.state  # which loading replaces

    def saved(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        entries = save()
        return _insert(state_dict, dict(zip(indices(optimizer, entries), entries.values(), strict=True)))

    def loads(_: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        rest, found = _extract(state_dict, indices(optimizer, owners))
        entries = dict(zip(owners, found, strict=True))
        check(entries)
        loading[:] = [entries]
        return rest

    def loaded(_: Optimizer) -> None:
        nonlocal restored
        restored = optimizer.state
        _drop_leftovers(optimizer)
        load(loading.pop())

    def steps(*_: Any) -> None:
        """At the first step after a load, which not every optimizer tells its hooks about."""
        nonlocal restored
        if optimizer.state is not restored:
            restored = optimizer.state
            _refuse_unrestored(optimizer, owners)

    return [
        optimizer.register_state_dict_post_hook(saved),
        optimizer.register_load_state_dict_pre_hook(loads),
        optimizer.register_load_state_dict_post_hook(loaded),
        optimizer.register_step_pre_hook(steps),
    ]


def holds_entries(optimizer: Optimizer, p: Tensor) -> bool:
    """Whether entries were loaded for a parameter while nobody was attached to take them."""
    return any(map(_ours, optimizer.state.get(p, ())))


def take(optimizer: Optimizer, p: Tensor) -> dict[str, Any]:
    """Take out the entries that were loaded for a parameter while nobody was attached."""
    entry = optimizer.state.get(p, {})
    found = {name.removeprefix(PREFIX): entry.pop(name) for name in list(entry) if _ours(name)}
    if not entry:
        optimizer.state.pop(p, None)
    return found


def _insert(state_dict: dict[str, Any], added: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Each parameter gets an entry: torch.distributed.checkpoint expects one for all of them or for none."""
    state: dict[Any, Any] = {key: {} for group in state_dict["param_groups"] for key in group["params"]}
    state |= {key: dict(entry) for key, entry in state_dict["state"].items()}
    for key, values in added.items():
        state[key].update({PREFIX + name: value for name, value in values.items()})
    return {**state_dict, "state": state}


def _extract(state_dict: dict[str, Any], owners: Sequence[int]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The state dict without the entries of the owners, and these. Saved keys are matched to parameters by order."""
    keys = [key for group in state_dict["param_groups"] for key in group["params"]]
    state = dict(state_dict["state"])
    found = []
    for key in (keys[index] if index < len(keys) else None for index in owners):
        entry = state.get(key, {})
        found.append({name.removeprefix(PREFIX): value for name, value in entry.items() if _ours(name)})
        state[key] = {name: value for name, value in entry.items() if not _ours(name)}
    return {**state_dict, "state": {key: entry for key, entry in state.items() if entry}}, found


def _drop_leftovers(optimizer: Optimizer) -> None:
    """Entries of parameters that nobody attached to."""
    for p, entry in list(optimizer.state.items()):
        for name in [name for name in entry if _ours(name)]:
            del entry[name]
        if not entry:
            del optimizer.state[p]


def _ours(name: object) -> bool:
    return str(name).startswith(PREFIX)


def _refuse_unrestored(optimizer: Optimizer, owners: Sequence[Tensor]) -> None:
    if any(holds_entries(optimizer, p) for p in owners):
        raise UsageError(
            f"A state was loaded, and the pruning was not resumed: {type(optimizer).__name__}.load_state_dict runs no "
            "hooks. Save `pruner.state_dict()` beside the optimizer's, and load it with `pruner.load_state_dict()`."
        )
