"""Every recipe holds together, and the default keeps its promise."""

from dataclasses import replace

import pytest
from PIL import Image

from softprune import recipes
from softprune.errors import ConfigError
from softprune.training.images import dataset
from softprune.training.run import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_every_recipe_holds_together(name, tmp_path):
    recipe = recipes.get(name)
    run = Run.create(tmp_path / "run", recipe.smoke())
    outcome = run.train(say=lambda _: None, progress=False)
    assert 0 <= outcome.accuracy <= 1
    assert run.outcome["report"]["parameters"] > 10_000
    assert run.outcome["report"]["step"] == (None if recipe.config.method == "dense" else 4)
    assert recipe.reproduces
    assert recipe.expect
    assert recipe.cost


def test_the_default_prunes_digits_to_90_percent_above_97_percent_accuracy(tmp_path):
    run = Run.create(tmp_path / "run", recipes.get(recipes.DEFAULT).config)
    outcome = run.train(say=lambda _: None, progress=False)
    assert outcome.sparsity >= 0.9
    assert outcome.accuracy > 0.97


@pytest.mark.parametrize("name", ["cifar10/slats", "sew_cifar10/slats"])
def test_recipes_for_cifar_see_its_images_as_they_are(name, tmp_path):
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            (tmp_path / split / label).mkdir(parents=True)
            Image.new("RGB", (32, 32)).save(tmp_path / split / label / "0.png")
    assert dataset(replace(recipes.get(name).config, data=str(tmp_path))).shape == (3, 32, 32)


def test_an_unknown_recipe_is_answered_with_its_neighbours():
    with pytest.raises(ConfigError, match="Did you mean 'digits/slats'"):
        recipes.get("digits/slat")
