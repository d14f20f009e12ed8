"""Named settings: every row of the paper's tables, and a small version of each method.

>>> get("digits/slats").config.method
'slats'
"""

from __future__ import annotations

import difflib

from softprune.errors import ConfigError
from softprune.recipes import imagenet, small, spiking
from softprune.recipes.recipe import Recipe

DEFAULT = "digits/slats"
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (*small.RECIPES, *imagenet.RECIPES, *spiking.RECIPES)}


def get(name: str) -> Recipe:
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        raise ConfigError(f"There is no recipe {name!r}. {hint}`softprune recipes` lists them all.")
    return RECIPES[name]


__all__ = ["DEFAULT", "RECIPES", "Recipe", "get"]
