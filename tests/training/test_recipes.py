"""Every recipe holds together, and the default keeps its promise."""

import math
from dataclasses import replace

import pytest
from PIL import Image

from softprune import recipes
from softprune.errors import ConfigError
from softprune.training.entries import Network
from softprune.training.names import METHODS, NETWORKS, PATTERNS, dataset
from softprune.training.run import Run
from softprune.training.trainer import rehearse

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own


def one_of_each() -> list[str]:
    """Names of recipes, the quickest that have each method, each pattern and each network."""
    quickest = sorted(
        recipes.RECIPES.values(),
        key=lambda recipe: (_work(NETWORKS[recipe.config.network]), recipe.config.method != "slats"),
    )
    methods = {recipe.config.method: recipe.name for recipe in reversed(quickest)}
    networks = {recipe.config.network: recipe.name for recipe in reversed(quickest)}
    patterns = {recipe.config.pattern: recipe.name for recipe in reversed(quickest)}
    assert methods.keys() == METHODS.keys()
    assert patterns.keys() == PATTERNS.keys() - {"block64"}  # for layers that are larger than those of any recipe
    return sorted({*methods.values(), *networks.values(), *patterns.values()})


def _work(network: Network) -> int:
    """Roughly, of a smoke test: a token of text is as much as an image."""
    return math.prod(network.smoke) * (64 if network.takes == "text" else 1)


SLOW = ("cifar10/slats", "sew_resnet18/slats", "sew_cifar10/slats")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in one_of_each()]
)
def test_a_recipe_of_each_method_pattern_and_network_trains(name, tmp_path):
    recipe = recipes.get(name)
    run = Run.create(tmp_path / "run", recipe.smoke())
    outcome = run.train(say=lambda _: None)
    assert 0 <= outcome.accuracy <= 1
    assert run.outcome["report"]["parameters"] > 10_000
    assert run.outcome["report"]["step"] == (None if recipe.config.method == "dense" else 4)


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_every_recipe_holds_together(name):
    recipe = recipes.get(name)
    for config in (recipe.smoke(), replace(recipe.config, precision="32-true")):
        rehearse(config)
    assert recipe.reproduces
    assert recipe.expect
    assert recipe.cost


@pytest.mark.slow
def test_the_default_prunes_digits_to_90_percent_above_97_percent_accuracy(tmp_path):
    run = Run.create(tmp_path / "run", recipes.get(recipes.DEFAULT).config)
    outcome = run.train(say=lambda _: None)
    assert outcome.sparsity >= 0.9
    assert outcome.accuracy > 0.97


@pytest.mark.parametrize("name", ["cifar10/slats", "sew_cifar10/slats", "vit/target"])
def test_recipes_for_cifar_see_its_images_as_they_are(name, tmp_path):
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            (tmp_path / split / label).mkdir(parents=True)
            Image.new("RGB", (32, 32)).save(tmp_path / split / label / "0.png")
    assert dataset(replace(recipes.get(name).config, data=str(tmp_path))).shape == (3, 32, 32)


def test_an_unknown_recipe_is_answered_with_its_neighbours():
    with pytest.raises(ConfigError, match="Did you mean 'digits/slats'"):
        recipes.get("digits/slat")
