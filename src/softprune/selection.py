"""Selection: model -> {name: Parameter}, the weights to prune.

Imports torch and ``errors``; reports use the same rules to count, trainers and the command to select.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _SpectralNorm

from softprune.errors import ArgumentError, ArgumentTypeError, listing

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
COMPUTED = "parametrized layers"


def select(
    model: nn.Module, include: Iterable[str] | None = None, exclude: Iterable[str] = ()
) -> dict[str, nn.Parameter]:
    """The prunable weights of a model, by name: those of its convolutions, linear, recurrent and attention layers.

    A weight is prunable if it is trained, has two dimensions or more and ``weight`` in its name, and belongs to no
    embedding, no normalisation and no head of a language model. Tied parameters appear once. ``sp.summarize`` tells
    what is left alone.

    - The head is the output layer to the vocabulary: what ``get_output_embeddings()`` gives in a Hugging Face model; in
      any other, its last linear layer, if that has the shape of one of its embeddings. One that is tied to an embedding
      is an embedding. The last layer of a classifier is no such head, and is pruned.
    - Experts that lie in one tensor (three dimensions, and a name that ends in ``_proj``) are weights too.

    A layer under ``nn.utils.parametrizations.spectral_norm`` is selected by ``parametrizations.weight.original``: the
    weight is that tensor over a number, so it has the same zeros. Layers under weight norm (which divides a row of
    zeros by its norm) and under any other parametrization (which need not keep zeros) are refused unless ``exclude``
    names them.

    Args:
        model: the network; DDP, DataParallel and ``torch.compile`` around it are looked through.
        include: keep only weights whose name matches one of these glob patterns. A full name selects that parameter
            whatever it is: ``include=["*", "lm_head.weight"]`` prunes the head too. All prunable weights when None.
        exclude: then drop those whose name matches one of these glob patterns.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
    >>> list(select(model)), list(select(model, exclude=["3.*"]))
    (['0.weight', '3.weight'], ['0.weight'])
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"`select(model)` must be given a module. Got {type(model).__name__}.")
    model = unwrap(model)
    everything = _trained(model)
    kinds = kinds_left_alone(model)
    chosen = everything.keys() - kinds.keys()
    refused = {n for n, p in everything.items() if kinds.get(n) == COMPUTED and p.ndim >= 2 and "weight" in n}
    if include is not None:
        patterns = _checked("include", include, everything)
        exact = set(patterns) & everything.keys()
        for pattern in set(patterns) - exact:
            _refuse_the_empty(pattern, chosen | refused, everything)
        chosen = exact | {name for name in chosen if matches(name, patterns)}
        refused = {name for name in refused - exact if matches(name, patterns)}
    patterns = _checked("exclude", exclude, everything)
    if lost := [name for name in everything if name in refused and not matches(name, patterns)]:
        raise ArgumentError(
            f"Cannot prune {listing(lost, most=12)}. This is because a parametrization computes the layer's weight "
            "from them: weight norm would divide a row of zeros by its norm, and others need not keep zeros. Remove "
            "the parametrization, or name them in `select(exclude=...)`."
        )
    chosen = {name for name in chosen if not matches(name, patterns)}
    if not chosen:
        raise ArgumentError(
            "`select` found nothing to prune: no parameter is left that has two dimensions or more and `weight` in its "
            "name, and that is no embedding, no normalisation and no head of a language model. "
            f"Candidates: {listing(everything, most=12)}."
        )
    return {name: p for name, p in everything.items() if name in chosen}


def kinds_left_alone(model: nn.Module) -> dict[str, str]:
    """{name: kind} of the parameters that are not prunable, such as ``embeddings`` or ``biases``."""
    head, computed = set(_head(model)), set(_computed(model))
    owners = {id(p): m for m in model.modules() for p in m.parameters(recurse=False)}
    owners |= {id(p): m for m in model.modules() if isinstance(m, _EMBEDDINGS) for p in m.parameters(recurse=False)}
    kinds = {}
    for name, p in model.named_parameters():
        owner = owners[id(p)]
        if isinstance(owner, _EMBEDDINGS):  # perhaps tied to the head
            kinds[name] = "embeddings"
        elif isinstance(owner, _NORMS):
            kinds[name] = "norms"
        elif id(p) in head:
            kinds[name] = "the head"
        elif id(p) in computed:
            kinds[name] = COMPUTED
        elif not is_weight(name, p):
            kinds[name] = _kind(name.rpartition(".")[2], owner)
    return kinds


def _kind(name: str, owner: nn.Module) -> str:
    """For readers alone: what a parameter is that is no weight, as far as names tell."""
    if "norm" in type(owner).__name__.lower():
        return "norms"
    return "biases" if "bias" in name else "embeddings" if "embed" in name else "other parameters"


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
    """Whether a tensor is a prunable weight, as far as its name and shape can tell; an embedding looks the same."""
    last = name.removesuffix(".original").rpartition(".")[2]  # parametrizations.weight.original
    named = "weight" in last or (p.ndim == 3 and last.endswith("_proj"))  # of experts, as transformers 5 names them
    return p.ndim >= 2 and p.numel() > 0 and p.is_floating_point() and named


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns fits, as ``include`` and ``exclude`` mean it."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    everything = dict(model.named_parameters())
    trained = {name: p for name, p in everything.items() if p.requires_grad}
    if not trained:
        what = f"all {len(everything)} parameters are frozen" if everything else "the model has no parameters"
        raise ArgumentError(f"`select` found nothing to prune: {what}.")
    if lazy := [name for name, p in trained.items() if isinstance(p, nn.UninitializedParameter)]:
        raise ArgumentError(f"{listing(lazy, most=12)} have no shape yet. Run one batch through the model first.")
    return trained


def _computed(model: nn.Module) -> Iterator[int]:
    """Ids of parameters that a layer computes its weight from in a way that need not keep zeros."""
    for m in model.modules():
        if parametrize.is_parametrized(m):
            for steps in m.parametrizations.values():  # type: ignore[operator]
                if not all(isinstance(step, _SpectralNorm) for step in steps):
                    yield from (id(p) for p in steps.parameters(recurse=False))
        for name, p in m.named_parameters(recurse=False):  # nn.utils.weight_norm
            if name.endswith(("_g", "_v")) and hasattr(m, f"{name[:-2]}_g") and hasattr(m, f"{name[:-2]}_v"):
                yield id(p)


def _head(model: nn.Module) -> Iterator[int]:
    """Ids of the parameters of a language model's output layer."""
    speakers: list[Any] = [m for m in model.modules() if callable(getattr(m, "get_output_embeddings", None))]
    if speakers:
        layers = [layer for m in speakers if (layer := m.get_output_embeddings()) is not None]
    else:
        shapes = {(m.num_embeddings, m.embedding_dim) for m in model.modules() if isinstance(m, nn.Embedding)}
        linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
        layers = [m for m in linear[-1:] if (m.out_features, m.in_features) in shapes]
    for layer in layers:
        yield from map(id, layer.parameters())


def _refuse_the_empty(pattern: str, weights: Iterable[str], everything: Iterable[str]) -> None:
    if not any(fnmatchcase(name, pattern) for name in weights):
        others = [name for name in everything if fnmatchcase(name, pattern)]
        raise ArgumentError(
            f"`select(include=...)` pattern {pattern!r} matches no prunable weight, only "
            f"{listing(others, most=5)}. Give full names to prune them all the same."
        )


def _checked(argument: str, patterns: Iterable[str], candidates: Iterable[str]) -> list[str]:
    if isinstance(patterns, str):
        raise ArgumentTypeError(
            f"`select({argument}=...)` must be a list of patterns. Got the string {patterns!r}: "
            f"write `{argument}=[{patterns!r}]`."
        )
    given = list(patterns) if isinstance(patterns, Iterable) else [patterns]
    if not all(isinstance(pattern, str) for pattern in given):
        raise ArgumentTypeError(
            f"`select({argument}=...)` must be a list of patterns for parameter names, such as 'layer1.*'. Got {given}."
        )
    names = list(candidates)
    for pattern in given:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=5, cutoff=0.3) or names
            raise ArgumentError(
                f"`select({argument}=...)` pattern {pattern!r} matches no trainable parameter. "
                f"Candidates: {listing(near, most=12)}."
            )
    return given
