"""Comparisons: one recipe for each method or pattern, on one network and one dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softprune.recipes.recipe import Methods


def methods(
    final: float,
    target: float,
    init: float,
    decay: float,
    shared_decay: float,
    blend_decay: float,
    expect: Mapping[str, str],
) -> Methods:
    """Every method of the paper, ``TargetSparsity`` and magnitude pruning, with numbers that suit the problem.

    Args:
        final: D of the schedules; pruning at initialization takes half of it.
        target: the sparsity of those that are told one.
        init: s at the start, for STR and GPO.
        decay: weight decay on s.
        shared_decay: the same for STR-GS. One s for all layers gets the gradients of all of them and needs more.
        blend_decay: weight decay on GPO's b. A short run needs more of it: while k is small but not zero, batch
            normalisation amplifies what a dead layer still lets through, and dropping k would change the network.
        expect: what each method was measured to reach, by name.
    """
    trained = {"init": init, "threshold_decay": decay}
    settings: dict[str, dict[str, Any]] = {
        "dense": {"method": "dense"},
        "target": {"method": "target", "target": target},
        "gmp": {"method": "gmp", "target": target},
        "slats": {"method": "slats", "final": final},
        "lats": {"method": "lats", "final": final},
        "pgh-0.1": {"method": "pgh", "final": final, "beta": 0.1},
        "pgh-1e-5": {"method": "pgh", "final": final, "beta": 1e-5},
        "pgh-1e-10": {"method": "pgh", "final": final, "beta": 1e-10},
        "pgh-0": {"method": "init", "final": final / 2},
        "sine": {"method": "sine", "final": final},
        "linear": {"method": "linear", "final": final},
        "log2": {"method": "log2", "final": final},
        "str": {"method": "str", **trained},
        "str-gs": {"method": "str-gs", **trained, "threshold_decay": shared_decay},
        "gpo": {"method": "gpo", **trained, "blend_decay": blend_decay},
    }
    return {name: (values, expect[name]) for name, values in settings.items()}


def targets(target: float, expect: Mapping[str, str], exclude: tuple[str, ...] = ()) -> Methods:
    """The dense network, and the methods that are told a sparsity.

    Args:
        target: the sparsity.
        expect: what each method was measured to reach, by name.
        exclude: patterns of parameters to leave alone.
    """
    settings: dict[str, dict[str, Any]] = {"dense": {"method": "dense"}}
    for name in ("target", "gradual", "gmp"):
        settings[name] = {"method": name, "target": target, "exclude": exclude}
    return {name: (values, expect[name]) for name, values in settings.items()}


def patterns(
    asked: Mapping[str, Mapping[str, Any]], expect: Mapping[str, str], exclude: tuple[str, ...] = ()
) -> Methods:
    """What can be pruned as a whole, by the method that is told a sparsity.

    Args:
        asked: a pattern -> its target, and what that counts if not weights.
        expect: what each pattern was measured to reach, by name.
        exclude: patterns of parameters to leave alone.
    """
    settings = {name: {"method": "target", "pattern": name, "exclude": exclude, **own} for name, own in asked.items()}
    return {name: (values, expect[name]) for name, values in settings.items()}
