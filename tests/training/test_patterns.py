"""Patterns: what is pruned as a whole in a run, what a target counts, and that both survive a stop."""

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file

import softprune as sp
from run_helpers import At, train
from softprune import recipes
from softprune.errors import ConfigError
from softprune.recipes.config import Config
from softprune.training import names, settings
from softprune.training.run import Run
from softprune.training.task import Task

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own

SHORT = recipes.get("digits/target").config.override(["epochs=2", "target=0.5"])


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.folder / "model.safetensors")


@pytest.mark.parametrize("pattern", ["channels", "block4"])
def test_a_run_that_was_stopped_ends_bit_for_bit_where_it_would_have(tmp_path, pattern):
    config = SHORT.override([f"pattern={pattern}"])
    whole, stopped = Run.create(tmp_path / "whole", config), Run.create(tmp_path / "stopped", config)
    train(whole)
    train(stopped, [At(25, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    train(Run.open(stopped.folder))
    expected, found = weights(whole), weights(stopped)
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert whole.outcome["sparsity"] == pytest.approx(0.5, abs=0.02)


def test_blocks_die_as_a_whole(tmp_path):
    run = Run.create(tmp_path / "run", SHORT.override(["pattern=block4"]))
    train(run)
    weight = weights(run)["layer3.0.conv2.weight"]
    alive = (weight != 0).unflatten(1, (-1, 4)).sum(2)
    assert set(alive.unique().tolist()) == {0, 4}


def test_channels_die_with_their_norms(tmp_path):
    run = Run.create(tmp_path / "run", SHORT.override(["pattern=channels"]))
    train(run)
    tensors = weights(run)
    dead = tensors["layer1.0.conv1.weight"].flatten(1).eq(0).all(1)
    assert 0 < dead.sum() < len(dead)
    assert torch.equal(dead, tensors["layer1.0.bn1.weight"] == 0)
    assert tensors["layer1.0.conv2.weight"][:, dead].eq(0).all()


def test_a_target_counts_multiplications(tmp_path):
    """Those of a convolution on few pixels are few: more of its weights may stay."""
    run = Run.create(tmp_path / "run", SHORT.override(["pattern=none", "count=multiplications", "target=0.8"]))
    train(run)
    tensors = weights(run)
    flops = Task(run.config, classes=10, shape=(1, 8, 8), batches=1).flops
    pruned = {name: tensors[name] for name in flops}
    total = sum(flops[name] * t.numel() for name, t in pruned.items())
    zero = sum(flops[name] * int((t == 0).sum()) for name, t in pruned.items())
    assert zero / total == pytest.approx(0.8, abs=1e-3)
    assert abs(run.outcome["sparsity"] - 0.8) > 0.01


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [("channels", sp.Channels), ("neurons", sp.Neurons), ("heads", sp.Heads), ("none", type(None))],
)
def test_names_of_patterns_stand_for_groupings(pattern, kind):
    config = recipes.get("vit_digits/target").config.override([f"pattern={pattern}", "target=0.1"])
    assert type(Task(config, classes=10, shape=(1, 8, 8), batches=1).groups) is kind


@pytest.mark.parametrize(("pattern", "blocks"), [("block4", sp.Blocks(1, 4)), ("block64", sp.Blocks(64, 64))])
def test_names_of_blocks_stand_for_their_sizes(pattern, blocks):
    assert Task(Config(final=0.1, pattern=pattern), classes=10, shape=(1, 8, 8), batches=1).groups == blocks


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["method=str", "init=-8", "pattern=heads"], "Cannot use the method 'str' with `pattern=heads`"),
        (["method=gpo", "init=-8", "pattern=block4"], "'gpo' does not read `pattern`. Write `pattern=none`"),
        (["method=dense", "pattern=channels"], "'dense' does not read `pattern`"),
        (["final=0.1", "pattern=filters"], "`pattern` must be one of none, channels, neurons, heads, block4, block64"),
        (["final=0.1", "count=multiplications"], "`count` says what a target counts"),
        (["target=0.5", "count=bytes"], "`count` must be one of weights, multiplications"),
    ],
)
def test_what_does_not_fit_is_refused(words, sentence):
    with pytest.raises(ConfigError) as refusal:
        settings.check(Config().override(words))
    assert sentence in str(refusal.value)


def test_settings_that_know_no_patterns_mean_single_weights():
    before = json.loads(Config(final=0.1).to_json())
    del before["pattern"], before["count"]
    assert Config.from_json(json.dumps(before)) == Config(final=0.1, pattern="none", count="weights")


def test_only_what_needs_it_has_memory_in_a_rehearsal():
    assert names.needs_memory(Config(pattern="channels"))
    assert names.needs_memory(Config(count="multiplications"))
    assert not names.needs_memory(Config(pattern="block4"))
