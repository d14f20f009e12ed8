"""Compiled runs on a CUDA device. Run with `pytest -m gpu`."""

import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from run_helpers import At, same_weights, train
from softprune import recipes
from softprune.training.run import Run

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or its sums differ from run to run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # Lightning's and the compiler's own
]

RECIPES = ["digits/slats", "digits/target", "digits/str", "digits/gpo", "digits/channels", "vit_digits/target"]
RECIPES += ["gpt_small/heads", "sew_digits/slats"]


@pytest.fixture(autouse=True)
def the_same_numbers_each_time():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def short(recipe, precision):
    config = replace(recipes.get(recipe).smoke(), epochs=4, batch=8, accelerator="auto")
    return replace(config, compile=True, precision=precision)


@pytest.mark.parametrize("recipe", RECIPES)
def test_stopped_and_resumed_it_ends_with_the_same_weights(recipe, tmp_path):
    whole, stopped = (Run.create(tmp_path / name, short(recipe, "bf16-mixed")) for name in ("whole", "stopped"))
    train(whole)
    assert train(stopped, [At(9, lambda: os.kill(os.getpid(), signal.SIGTERM))]).stopped_by == signal.SIGTERM
    train(stopped)
    assert same_weights(whole.folder, stopped.folder)


@pytest.mark.parametrize("recipe", RECIPES)
def test_it_trains_as_the_uncompiled_network_does(recipe, tmp_path):
    config = short(recipe, "64-true")  # or a rounding would grow, and decide what is pruned
    compiled, plain = (Run.create(tmp_path / str(choice), replace(config, compile=choice)) for choice in (True, False))
    train(compiled)
    train(plain)
    one, other = (load_file(run.folder / "model.safetensors") for run in (compiled, plain))
    assert all(torch.allclose(one[name], other[name], rtol=1e-4, atol=1e-6) for name in one)
