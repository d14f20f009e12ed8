"""A run and its data: the same when it goes on, of the same classes when it is measured."""

import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from run_helpers import At, train
from softprune import data, recipes
from softprune.errors import ConfigError
from softprune.recipes.config import Config
from softprune.training.data_card import DataCard, ImageCard
from softprune.training.frontier import walk
from softprune.training.run import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own


def images(folder: Path, classes: Sequence[str], count: int = 8, brightness: int = 0) -> Path:
    """Class i is an image with the quarter i white, up to noise; training images are brighter."""
    noise = np.random.default_rng(0)
    for split, name in product(("train", "val"), classes):
        place = folder / split / name
        place.mkdir(parents=True)
        for i in range(count):
            pixels = noise.integers(0, 40, (16, 16), dtype=np.uint8)
            rank = sorted(classes, key=lambda name: name[-1]).index(name)
            pixels[8 * (rank // 2) :][:8, 8 * (rank % 2) :][:, :8] += 120
            Image.fromarray(pixels + np.uint8(brightness if split == "train" else 0)).save(place / f"{i}.png")
    return folder


def on_images(folder: Path) -> Config:
    return replace(recipes.get("digits/slats").config, network="mlp", final=0.04, data=str(folder), batch=8, epochs=12)


def test_eval_sees_images_as_training_did(tmp_path):
    """Whatever else the folder holds, and only with the classes in their order."""
    run = Run.create(tmp_path / "run", on_images(images(tmp_path / "a", ["k0", "k1", "k2"])))
    assert train(run).accuracy == 1.0
    bright = images(tmp_path / "b", ["k0", "k1", "k2"], brightness=80)
    measured = run.evaluate([f"data={bright}"])
    assert (measured.accuracy, measured.count, measured.observed) == (1.0, 24, None)
    permuted = images(tmp_path / "c", ["z0", "k1", "k2"])
    with pytest.raises(ConfigError, match=r"was trained on the classes k0, k1, k2, and .* has k1, k2, z0"):
        run.evaluate([f"data={permuted}"])
    said: list[str] = []
    Run.create(tmp_path / "cut", replace(run.config, epochs=1, image_size=20)).train(said.append)
    assert said[0] == "Images are cut to 20 × 20 pixels."
    with pytest.raises(ConfigError, match=r"kept as they are, at 16 × 16, and those of .* would be cut to size"):
        run.evaluate(["image_size=32"])
    facts = run.outcome["data"]
    assert (facts["classes"], facts["shape"], facts["images"]) == (["k0", "k1", "k2"], [3, 16, 16], 24)
    with safe_open(run.folder / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["data"]) == facts
    assert (run.folder / "model.safetensors").stat().st_mode == (run.folder / "report.md").stat().st_mode


def test_a_frontier_is_of_the_same_data(tmp_path):
    def finals(where: Path, *values: float) -> list[float]:
        walk(replace(on_images(where), epochs=1), "final", values, tmp_path / "runs", say=lambda _: None)
        return [row["final"] for row in json.loads((tmp_path / "runs" / "frontier.json").read_text())]

    one = images(tmp_path / "one", ["k0", "k1"])
    other = images(tmp_path / "other", ["k0", "k1"], count=12)
    assert finals(one, 0.02) == [0.02]
    shutil.copytree(one, tmp_path / "moved")
    assert finals(tmp_path / "moved", 0.02) == [0.02]  # the same, elsewhere
    refused = r"final-0\.02 holds a run on other data: it had images to train on 16, and has 24 now\. Choose another"
    with pytest.raises(ConfigError, match=refused):
        finals(other, 0.02)
    assert finals(other, 0.04) == [0.04]
    shutil.rmtree(one)
    assert finals(one, 0.02) == [0.02]  # complete: it is only read


def test_eval_refuses_images_of_another_size():
    small, large = (data.synthetic(classes=3, shape=(1, side, side), images=9) for side in (8, 12))
    card = DataCard.of(small)
    assert card.evaluated_on(small, "here").shape == (1, 8, 8)
    with pytest.raises(ConfigError, match="images of 1 × 8 × 8 numbers, and those of there have 1 × 12 × 12"):
        card.evaluated_on(large, "there")


def test_classes_are_told_apart_however_many_there_are():
    many = tuple(f"k{i:02}" for i in range(12))
    card = ImageCard(many, (1, 8, 8), 10, (0.0,), (1.0,), in_memory=True)
    card.resumed_with(card, "data")
    with pytest.raises(ConfigError, match="it had classes k11, and has z"):
        card.resumed_with(replace(card, classes=(*many[:-1], "z")), "data")
    with pytest.raises(ConfigError, match="it had classes no more, and has z"):
        card.resumed_with(replace(card, classes=(*many, "z")), "data")


@pytest.mark.parametrize("change", ["renamed", "more", "brighter"])
def test_a_run_goes_on_with_the_data_that_it_began_with(tmp_path, change):
    run = Run.create(tmp_path / "run", on_images(images(tmp_path / "data", ["k0", "k1", "k2"])))
    assert train(run, [At(9, lambda: os.kill(os.getpid(), signal.SIGTERM))]).stopped_by == signal.SIGTERM
    shutil.rmtree(tmp_path / "data")
    if change == "renamed":
        images(tmp_path / "data", ["z0", "k1", "k2"])
    else:
        images(tmp_path / "data", ["k0", "k1", "k2"], *((9, 0) if change == "more" else (8, 80)))
    with pytest.raises(ConfigError, match="is not what the run began with: it had"):
        train(run)
    shutil.rmtree(tmp_path / "data")
    images(tmp_path / "data", ["k0", "k1", "k2"])
    assert train(run).accuracy == 1.0
