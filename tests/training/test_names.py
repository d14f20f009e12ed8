"""Names of settings: each is one entry, and an entry is all there is to add."""

import pytest

from softprune import recipes
from softprune.errors import ConfigError
from softprune.recipes.config import Config
from softprune.schedules.curves import Cosine
from softprune.training import names, settings
from softprune.training.entries import Method
from softprune.training.rate import Rate
from softprune.training.trainer import rehearse


def test_one_entry_adds_a_method(monkeypatch):
    built = []

    def build(asked):
        built.append(asked.number("final"))
        return lambda step: 0.0

    monkeypatch.setitem(names.METHODS, "own", Method("own", "a method of one's own", build, needs=("final",)))
    config = Config(method="own", final=0.5)
    rehearse(config)
    assert built == [0.5]
    assert "own" in settings.meanings(config)["method=own"]
    with pytest.raises(ConfigError, match="The method 'own' needs `final`"):
        settings.check(Config(method="own"))
    with pytest.raises(ConfigError, match=r"The method 'own' does not read `start`. Write `start=0`"):
        settings.check(Config(method="own", final=0.5, start=1))


def test_every_recipe_passes_the_check():
    for recipe in recipes.RECIPES.values():
        settings.check(recipe.config)


def test_every_setting_has_a_meaning():
    assert all(settings.meanings(Config()).values())


@pytest.mark.parametrize("table", settings.CHOICES.values())
def test_entries_say_what_they_are(table):
    for name, entry in table.items():
        assert entry.name == name
        assert entry.about


def test_a_learning_rate_by_epochs_is_constant_within_them():
    rate = Rate(Cosine(), steps=12, warmup=3, hold=3)
    assert [rate(step) for step in (3, 4, 5)] == [1.0, 1.0, 1.0]
    assert rate(6) == rate(8) == pytest.approx(0.75)
    assert rate(11) == rate(9) == pytest.approx(0.25)
