"""model -> {name: Parameter}: which weights are to be pruned."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase

from torch import Tensor, nn

from softprune.errors import listing

_LOOK_UP_OR_SCALE = (
    nn.Embedding,
    nn.EmbeddingBag,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.GroupNorm,
    nn.modules.batchnorm._NormBase,
)


def select(
    model: nn.Module, include: Iterable[str] | None = None, exclude: Iterable[str] = ()
) -> dict[str, nn.Parameter]:
    """The parameters to prune, by name: every weight that multiplies, unless patterns say otherwise.

    A weight multiplies when it has two dimensions or more, ``weight`` in the last part of its name, and is neither an
    embedding nor a normalisation: convolutions, linear layers, recurrent and attention weights; an output layer tied to
    an embedding is an embedding. Frozen parameters are left out, and those of a weight-normed layer, whose zero rows
    would be divided by their norm. ``include`` keeps only what a pattern matches, ``exclude`` then drops what a pattern
    matches. Patterns are globs over parameter names. A full name in ``include`` selects that parameter whatever it is.
    Tied parameters appear once.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
    >>> list(select(model)), list(select(model, exclude=["3.*"]))
    (['0.weight', '3.weight'], ['0.weight'])
    """
    model = unwrap(model)
    everything = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if lazy := [name for name, p in everything.items() if isinstance(p, nn.UninitializedParameter)]:
        raise ValueError(f"{listing(lazy, most=12)} have no shape yet. Run one batch through the model first.")
    chosen = multiplying(model) & everything.keys()
    if include is not None:
        patterns = _checked("include", include, everything)
        exact = set(patterns) & everything.keys()
        for pattern in set(patterns) - exact:
            _refuse_the_empty(pattern, chosen, everything)
        chosen = exact | {name for name in chosen if matches(name, patterns)}
    patterns = _checked("exclude", exclude, everything)
    chosen = {name for name in chosen if not matches(name, patterns)}
    if not chosen:
        raise ValueError(
            "`select` found nothing to prune: no parameter is left that has two dimensions or more and `weight` in its "
            f"name. Candidates: {listing(everything, most=12)}."
        )
    return {name: p for name, p in everything.items() if name in chosen}


def multiplying(model: nn.Module) -> set[str]:
    """The names of all weights that multiply, trained or not."""
    others = {id(p) for m in model.modules() if isinstance(m, _LOOK_UP_OR_SCALE) for p in m.parameters(recurse=False)}
    normed = (getattr(m, name, None) for m in model.modules() for name in ("weight_g", "weight_v"))  # by weight_norm
    others |= {id(p) for p in normed if p is not None}
    return {name for name, p in model.named_parameters() if id(p) not in others and is_weight(name, p)}


def unwrap(model: nn.Module) -> nn.Module:
    """The module inside DistributedDataParallel, DataParallel and torch.compile, whose names are plain."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def is_weight(name: str, p: Tensor) -> bool:
    """Whether it multiplies, as far as a name and a tensor can tell; an embedding looks the same."""
    return p.ndim >= 2 and p.numel() > 0 and p.is_floating_point() and "weight" in name.rpartition(".")[2]


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns fits, as ``include`` and ``exclude`` mean it."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_the_empty(pattern: str, weights: Iterable[str], everything: Iterable[str]) -> None:
    if not any(fnmatchcase(name, pattern) for name in weights):
        others = [name for name in everything if fnmatchcase(name, pattern)]
        raise ValueError(
            f"`select(include=...)` pattern {pattern!r} matches no weight that multiplies, as far as names tell: only "
            f"{listing(others, most=5)}. Give full names to prune them all the same."
        )


def _checked(argument: str, patterns: Iterable[str], candidates: Iterable[str]) -> list[str]:
    if isinstance(patterns, str):
        raise TypeError(
            f"`select({argument}=...)` must be a list of patterns. Got the string {patterns!r}: "
            f"write `{argument}=[{patterns!r}]`."
        )
    names, patterns = list(candidates), list(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=5, cutoff=0.3) or names
            raise ValueError(
                f"`select({argument}=...)` pattern {pattern!r} matches no trainable parameter. "
                f"Candidates: {listing(near, most=12)}."
            )
    return patterns
