"""Names of settings: each is one entry, and an entry is all there is to add."""

import json
import math

import pytest
import torch

import softprune as sp
from softprune import recipes
from softprune.errors import ConfigError
from softprune.recipes.config import Config
from softprune.schedules.curves import Cosine
from softprune.training import names, settings
from softprune.training.entries import Asked, Method
from softprune.training.rate import Rate
from softprune.training.trainer import rehearse, rehearsed


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


@pytest.mark.parametrize(
    ("recipe", "words", "prox", "gradient"),
    [
        ("digits/slats", [], None, None),
        ("digits/slats", ["power=1"], sp.SoftThreshold(), None),
        ("digits/target", ["power=3"], sp.PowerThreshold(3.0), None),
        ("digits/target", ["power=inf", "gradient=subgradient"], sp.PowerThreshold(math.inf), sp.subgradient),
        ("digits/gmp", [], sp.PowerThreshold(math.inf), sp.subgradient),
        ("digits/gmp", ["gradient=identity"], sp.PowerThreshold(math.inf), sp.identity),
    ],
)
def test_power_and_gradient_are_those_of_the_settings_or_the_methods_own(recipe, words, prox, gradient):
    config = recipes.get(recipe).config.override(words)
    assert (names.prox(config), names.gradient(config)) == (prox, gradient)
    rehearse(config)


def built(config: Config) -> sp.Threshold:
    """The threshold of a run of 100 steps, which the pruner is given."""
    build = names.METHODS[config.method].build
    assert build is not None
    optimizer = torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=0.1)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    return build(Asked(config, {}, 100, config.start, scheduler))


@pytest.mark.parametrize("method", ["target", "slats", "lats", "gradual", "gmp"])
def test_a_target_is_given_what_the_settings_say_and_nothing_else(method):
    kind = sp.GradualSparsity if method in ("gradual", "gmp") else sp.TargetSparsity
    assert built(Config(method=method, target=0.8)) == kind(0.8, 100)
    given = Config(method=method, target=0.8, arrive=0.25, min_density=0.0, start=3)
    assert built(given) == kind(0.8, 100, arrive=0.25, min_density=0.0, start=3)


def test_settings_of_earlier_versions_mean_what_they_meant():
    before = json.loads(Config(target=0.9).to_json())
    del before["power"], before["arrive"]
    assert Config.from_json(json.dumps(before)) == Config(target=0.9, power=1.0, arrive=1.0)
    assert Config.from_json(json.dumps(before | {"target": None, "final": 0.1})) == Config(final=0.1)
    assert Config.from_json(Config(target=0.9).to_json()) == Config(target=0.9)
    hard = Config(method="target", target=0.9, power=math.inf)
    assert Config.from_json(hard.to_json()) == hard
    assert "Infinity" not in hard.to_json()


def test_weight_decay_may_leave_vectors_alone():
    optimizer = rehearsed(recipes.get("gpt_small/target").config)
    decayed, spared = optimizer.param_groups
    assert (decayed["weight_decay"], spared["weight_decay"], decayed["betas"]) == (0.1, 0.0, (0.9, 0.99))
    assert {p.ndim for p in decayed["params"]} == {2}
    assert {p.ndim for p in spared["params"]} == {1}
    (everything,) = rehearsed(recipes.get("digits/slats").config).param_groups
    assert {p.ndim for p in everything["params"]} == {1, 2, 4}
