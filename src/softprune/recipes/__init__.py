"""Recipes: named settings with a promise. Every row of the paper's tables, a small version of each method,
groups of weights, and transformers.

    config      Config: every setting of a run, and its meaning
    recipe      Recipe: settings, what they reproduce, what to expect, what it costs
    comparison  the methods that the paper compares, and patterns
    imagenet  cifar10  digits  spiking  text  vit      the recipes
    paper       the paper's tables of sparsities (``sp.budgets``)

Imports ``errors`` alone, no torch; the command imports it.

>>> get("digits/slats").config.method
'slats'
"""

from __future__ import annotations

from softprune.errors import ConfigError, did_you_mean, listing
from softprune.recipes import cifar10, digits, imagenet, spiking, text, vit
from softprune.recipes.recipe import Recipe

DEFAULT = "digits/slats"
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for family in (cifar10, digits, imagenet, spiking, text, vit) for recipe in family.RECIPES
}


def get(name: str) -> Recipe:
    """The recipe called ``name``.

    >>> get("sine")
    Traceback (most recent call last):
    softprune.errors.ConfigError: There is no recipe 'sine'. There are cifar10/sine, digits/sine, resnet50/sine, \
sew_resnet18/sine, sew_cifar10/sine, sew_digits/sine. `softprune recipes` lists all recipes.
    """
    if name not in RECIPES:
        kin = [recipe for recipe in RECIPES if name in recipe.split("/")]  # name is a family or a method
        hint = f" There are {listing(kin, most=20)}." if kin else did_you_mean(name, RECIPES)
        raise ConfigError(f"There is no recipe {name!r}.{hint} `softprune recipes` lists all recipes.")
    return RECIPES[name]


__all__ = ["DEFAULT", "RECIPES", "Recipe", "get"]
