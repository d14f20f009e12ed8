"""Models with a config, such as those of Hugging Face: the smaller model is one that a smaller config describes.

A config has one size for all layers. So all layers shrink to the widest of them, and keep some dead units where they
could be smaller. What no config can say stays as it is. Nothing is imported: a config is an object with ``to_dict``.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from softprune.removal.slicing import kept
from softprune.structure import Kind, Site, Structure

_WIDTHS = (
    "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "hidden_dim", "mlp_dim", "encoder_ffn_dim",
    "decoder_ffn_dim",
)  # fmt: skip
_HEADS = ("num_key_value_heads", "num_attention_heads", "num_heads", "n_head")


def has_config(model: nn.Module) -> bool:
    return hasattr(getattr(model, "config", None), "to_dict")


def fit(model: nn.Module, structure: Structure, living: Tensor) -> tuple[Tensor, Any]:
    """The units to keep so that a config describes the rest; and that config."""
    alike, roles = defaultdict(list), defaultdict(list)
    for site in structure.sites:
        alike[site.kind, len(site.units)].append(site)
        roles[re.sub("[0-9]+", "#", site.name), len(site.units)].append(site)
    config, keep = model.config, torch.ones_like(living)
    for sites in (*alike.values(), *roles.values()):
        if not bool(torch.cat([keep[list(site.units)] for site in sites]).all()):
            continue
        for trial, candidate in _candidates(config, sites, keep, living):
            if _describes(model, structure, candidate, trial):
                keep, config = trial, candidate
                break
    return keep, config


def _candidates(config: Any, sites: list[Site], keep: Tensor, living: Tensor) -> Iterator[tuple[Tensor, Any]]:
    """Smaller configs, the smallest first, with the units that stay."""
    before = len(sites[0].units)
    least = max(int(living[site.units.start : site.units.stop].sum()) for site in sites)
    most = before if sites[0].kind is Kind.HEAD else min(least + 1, before)  # not every number of heads is possible
    for after in range(least, most):
        trial = keep.clone()
        for site in sites:
            here = torch.arange(site.units.start, site.units.stop)
            dead = here[~living[here]]
            trial[dead[after - (before - len(dead)) :]] = False
        for changes in _changes(config, sites[0].kind, before, after):
            smaller = copy.deepcopy(config)
            for name, value in changes.items():
                setattr(smaller, name, value)
            yield trial, smaller


def _changes(config: Any, kind: Kind, before: int, after: int) -> Iterator[dict[str, int]]:
    """What of a config to set, so that there are fewer of this kind."""
    if kind is not Kind.HEAD:
        for name in _WIDTHS:
            if hasattr(config, name) and getattr(config, name) in (before, None):
                yield {name: after}
        return
    counts = {name: getattr(config, name) for name in _HEADS if isinstance(getattr(config, name, None), int)}
    if before in counts.values() and all(value * after % before == 0 for value in counts.values()):
        changes = {name: value * after // before for name, value in counts.items()}
        if "num_attention_heads" in counts and hasattr(config, "hidden_size"):
            size = getattr(config, "head_dim", None)
            changes["head_dim"] = size or config.hidden_size // counts["num_attention_heads"]
        yield changes


def _describes(model: nn.Module, structure: Structure, config: Any, living: Tensor) -> bool:
    """Whether a model made from the config has parameters of exactly the sizes that are left."""
    expected = {name: list(tensor.shape) for name, tensor in model.state_dict(keep_vars=True).items()}
    names: dict[int, list[str]] = defaultdict(list)
    for name, tensor in model.state_dict(keep_vars=True).items():
        names[id(tensor)].append(name)
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    for axis in structure.axes:
        for name in names[id(own[axis.name])]:
            expected[name][axis.dim] = int(kept(axis, living).sum())
    try:
        twin = blank(model, config)
    except Exception:  # a config that its own class refuses describes nothing
        return False
    return {name: list(tensor.shape) for name, tensor in twin.state_dict().items()} == expected


def blank(model: nn.Module, config: Any) -> nn.Module:
    """The model that a config describes, as a file of it would be read, without memory."""
    with torch.device("meta"):
        return type(model)(type(config).from_dict(config.to_dict()))


def configure(model: nn.Module, config: Any) -> None:
    """Give a model that was cut its config, and its modules the numbers that they would have by it."""
    before, after = (dict(blank(model, one).named_modules()) for one in (model.config, config))
    for name, value in vars(config).items():
        if vars(model.config).get(name) != value:
            setattr(model.config, name, value)
    for name, twin in after.items():
        for attribute, value in vars(twin).items():
            if type(value) is int and vars(before[name]).get(attribute) != value:
                setattr(model.get_submodule(name), attribute, value)
