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
        """The same run in a few steps on synthetic data, on the CPU: does everything hold together?"""
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
    """One recipe for each method on the same base: ``methods`` maps a name to its settings and what to expect."""
    return [
        Recipe(f"{name}/{method}", replace(base, **settings), f"{reproduces}, {method}", expect, cost)
        for method, (settings, expect) in methods.items()
    ]
