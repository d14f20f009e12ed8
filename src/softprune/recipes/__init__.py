"""Named settings: every row of the paper's tables, and a small version of each method.

>>> get("digits/slats").config.method
'slats'
"""

from __future__ import annotations

from softprune.errors import ConfigError, did_you_mean
from softprune.recipes import imagenet, small, spiking
from softprune.recipes.recipe import Recipe

DEFAULT = "digits/slats"
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (*small.RECIPES, *imagenet.RECIPES, *spiking.RECIPES)}


def get(name: str) -> Recipe:
    if name not in RECIPES:
        hint = did_you_mean(name, RECIPES)
        raise ConfigError(f"There is no recipe {name!r}.{hint} `softprune recipes` lists them all.")
    return RECIPES[name]


__all__ = ["DEFAULT", "RECIPES", "Recipe", "get"]
