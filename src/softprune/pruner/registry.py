"""Which pruner has a parameter, and who makes way for whom."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

_pruners: Any = WeakIdKeyDictionary()  # Parameter -> weak reference to its pruner
_replaceable: weakref.WeakSet[Any] = weakref.WeakSet()


def claim(params: Iterable[Tensor], pruner: Any) -> None:
    """Remember that ``pruner`` prunes these parameters."""
    for p in params:
        _pruners[p] = weakref.ref(pruner)


def release(params: Iterable[Tensor]) -> None:
    for p in params:
        _pruners.pop(p, None)


def pruner_of(p: Tensor) -> Any:
    """The pruner of a parameter, if it has one."""
    reference = _pruners.get(p)
    return None if reference is None else reference()


def replaceable(pruner: Any) -> None:
    """Let this pruner make way when another one is built for its parameters, as a trainer's second ``fit`` does."""
    _replaceable.add(pruner)


def make_way(pruner: Any) -> None:
    """Detach a pruner for another one; that it ends early is no news then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pruner.detach()


def is_free(p: Tensor) -> bool:
    """Whether a parameter may be pruned by somebody new: it has no pruner, or a replaceable one."""
    if pruner_of(p) is not None and pruner_of(p) not in _replaceable:
        gc.collect()  # pruner and optimizer reference each other; only the collector frees a dead pair
    return pruner_of(p) is None or pruner_of(p) in _replaceable


def vacate(params: Iterable[Tensor]) -> None:
    """Let replaceable pruners go, once nothing speaks against the new one."""
    for p in params:
        if (pruner := pruner_of(p)) is not None:
            make_way(pruner)
