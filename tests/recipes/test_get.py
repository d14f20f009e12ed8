"""Recipes by name: what is suggested where there is none."""

import pytest

from softprune import recipes
from softprune.errors import ConfigError


def refusal(name: str) -> str:
    with pytest.raises(ConfigError) as refused:
        recipes.get(name)
    return str(refused.value)


def test_a_family_is_answered_with_its_recipes():
    family = ", ".join(name for name in recipes.RECIPES if name.startswith("digits/"))
    assert (
        refusal("digits") == f"There is no recipe 'digits'. There are {family}. `softprune recipes` lists all recipes."
    )


def test_a_method_is_answered_with_its_recipes():
    assert "There are cifar10/slats, digits/slats, resnet50/slats, mobilenet_v1/slats, sew_" in refusal("slats")


def test_a_typing_error_is_answered_with_the_nearest():
    assert "Did you mean 'digits/slats'?" in refusal("digits/slat")
    assert refusal("transformer") == "There is no recipe 'transformer'. `softprune recipes` lists all recipes."
