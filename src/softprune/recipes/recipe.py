"""A recipe: settings with a promise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from softprune.recipes.config import Config

Methods = dict[str, tuple[dict[str, Any], str]]
"""A method's name -> its settings, and what to expect."""


@dataclass(frozen=True)
class Recipe:
    """Settings, what they reproduce, what to expect, and what it costs."""

    name: str
    config: Config
    reproduces: str
    expect: str
    cost: str

    def smoke(self) -> Config:
        """A smoke test: the same run in a few steps on synthetic data, on the CPU."""
        return replace(
            self.config,
            data="synthetic",
            epochs=2,
            batch=16,
            warmup=min(self.config.warmup, 1),
            workers=0,
            precision="32-true",
            compile=False,
            accelerator="cpu",
            devices="1",
            strategy="auto",
        )


def family(
    name: str,
    base: Config,
    methods: Methods,
    *,
    reproduces: str,
    cost: str,
) -> list[Recipe]:
    """One recipe for each method, on the same base.

    Args:
        name: what the recipes begin with; a recipe is called name/method.
        base: the settings that they share.
        methods: a method's name -> its settings, and what to expect.
        reproduces: what of the paper they reproduce.
        cost: how long one of them takes.
    """
    return [
        Recipe(f"{name}/{method}", replace(base, **settings), f"{reproduces}, {method}", expect, cost)
        for method, (settings, expect) in methods.items()
    ]
