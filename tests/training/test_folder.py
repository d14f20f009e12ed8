"""A run's folder: one owner, no links followed, and no damage that ends in a traceback."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from run_helpers import At, train
from softprune import recipes
from softprune.cli import app
from softprune.errors import ConfigError, UserError
from softprune.recipes.config import Config
from softprune.training import files, history
from softprune.training.data_card import ImageCard
from softprune.training.folder import Folder
from softprune.training.run import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own

SHORT = recipes.get("digits/slats").config.override(["epochs=2", "network=mlp", "final=0.04"])
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Path:
    run = Run.create(tmp_path_factory.mktemp("folder") / "run", SHORT)
    train(run)
    return run.folder


@pytest.fixture
def copy(complete, tmp_path) -> Path:
    return Path(shutil.copytree(complete, tmp_path / "copy"))


def answer(*words: object) -> str:
    """What the command says; anything but a sentence is raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, UserError):
        return str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_a_second_start_in_the_same_folder_is_refused_and_removes_nothing(tmp_path):
    run = Run.create(tmp_path / "run", SHORT)  # which has not written a line of history yet
    command = [sys.executable, "-m", "softprune", "train", "network=mlp", "seed=2", "--out", str(run.folder)]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert second.stderr == f"Error: Another process trains in {run.folder}. Wait until it is done, or stop it.\n"
    assert Run.open(run.folder).config == SHORT
    assert train(run).accuracy is not None


def test_two_runs_of_one_process_get_two_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert "Accuracy" in answer("train", "--smoke", "--quiet")
    assert sorted(path.name for path in Path("runs").iterdir()) == ["digits-slats-1", "digits-slats-2"]


def test_a_full_disk_leaves_no_folder(tmp_path, monkeypatch):
    def fail(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("softprune.training.folder.write_text", fail)
    with pytest.raises(ConfigError, match="No space left on device"):
        Folder.create(tmp_path / "run", SHORT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["report.md", "report.json", "model.safetensors", "history.jsonl", "plots/layers.png"])
def test_files_are_written_beside_links_and_not_through_them(name, tmp_path):
    run, victim = Run.create(tmp_path / "run", SHORT), tmp_path / "victim"
    victim.write_text("mine", encoding="utf-8")
    (run.folder / name).parent.mkdir(exist_ok=True)
    if name != "report.json":
        (run.folder / name).symlink_to(victim)
    with files.replacing(tmp_path / "other") as beside:
        pass
    beside.symlink_to(victim)  # the name is no secret
    files.write_text(tmp_path / "other", "text")
    assert train(run).accuracy is not None
    assert victim.read_text(encoding="utf-8") == "mine"
    assert not (run.folder / name).is_symlink()


@pytest.mark.parametrize("name", ["checkpoints", "plots", "tensorboard", "tensorboard/hparams.yaml"])
def test_folders_that_are_links_are_refused(name, tmp_path):
    run, other = Run.create(tmp_path / "run", SHORT), tmp_path / "other"
    (other / "step-000000001.ckpt").mkdir(parents=True)
    (run.folder / name).parent.mkdir(exist_ok=True)
    (run.folder / name).symlink_to(other)
    (run.folder / "history.jsonl").touch()  # so that it is not withdrawn
    with pytest.raises(ConfigError, match=f"{name} is a link, which a run does not follow"):
        train(run)
    assert (other / "step-000000001.ckpt").exists()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("data.json", {"mean": None}),
        ("data.json", {"classes": 5}),
        ("data.json", {"std": [1.0, 2.0]}),
        ("data.json", {"unknown": 1}),
        ("config.json", {"data": None}),
        ("config.json", {"network": 1.5}),
        ("config.json", {"exclude": ""}),
        ("config.json", {"epochs": True}),
        ("report.json", {"accuracy": "high"}),
        ("report.json", {"figures": []}),
        ("report.json", {"report": {}}),
        ("report.json", {"report": {"layers": [{}], "not_pruned": {}, "step": 1, "penalty": None}}),
    ],
)
def test_values_of_the_wrong_type_are_told_in_a_sentence(copy, name, change):
    path = copy / name
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(values | change), encoding="utf-8")
    said = [answer("eval", copy), answer("report", copy), answer("train", "--resume", copy)]
    assert any(f"Cannot use {path}: " in text for text in said)


@pytest.mark.parametrize("name", ["data.json", "config.json", "report.json"])
@pytest.mark.parametrize("contents", ["[]", "{}", "{", DEEP, "\udcff", "a folder"])
def test_what_is_no_json_object_is_told_in_a_sentence(copy, name, contents):
    path = copy / name
    path.unlink()
    if contents == "a folder":
        path.mkdir()
    else:
        path.write_text(contents, encoding="utf-8", errors="surrogateescape")
    said = [answer("eval", copy), answer("report", copy), answer("train", "--resume", copy)]
    if (name, contents) != ("config.json", "{}"):  # where every setting has a default
        assert any(str(path) in text for text in said)


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b"sparsity", b"sparsitx"),
        lambda line: b"\xff" + line[1:],
        lambda line: line[: len(line) // 2],
        lambda line: b"[]",
        lambda line: b'{"step": "one"}',
        lambda line: b'{"step": 3, "loss": {}}',
        lambda line: DEEP.encode(),
    ],
)
def test_a_damaged_line_of_history_does_not_keep_a_run_from_its_end(tmp_path, damage):
    run, path = Run.create(tmp_path / "run", SHORT), tmp_path / "run" / "history.jsonl"

    def spoil() -> None:
        lines = path.read_bytes().splitlines()
        lines[3] = damage(lines[3])
        path.write_bytes(b"\n".join(lines) + b"\n")

    assert train(run, [At(20, spoil)]).accuracy is not None
    assert len(history.read(path)) >= 42
    assert "Accuracy" in (run.folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_text_and_output_do_not_depend_on_the_locale(tmp_path):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "softprune"]
    done = subprocess.run(
        [*command, "train", "--smoke", "--out", "run"], env=environment, cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "·" in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    environment["PYTHONIOENCODING"] = "latin-1"
    shown = subprocess.run([*command, "recipes", "digits/slats"], env=environment, capture_output=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert b"?, instead of D" in shown.stdout


def test_the_same_run_gives_the_same_bytes(complete, tmp_path):
    again = Run.create(tmp_path / "again", SHORT)
    train(again)
    assert (again.folder / "model.safetensors").read_bytes() == (complete / "model.safetensors").read_bytes()


def test_parameters_that_are_not_pruned_have_names(complete):
    assert list(Folder(complete).outcome["report"]["not_pruned"]) == ["2.bias", "4.bias", "6.bias"]


def test_a_card_is_read_as_it_was_written(complete):
    card = ImageCard.read(complete / "data.json")
    assert card is not None
    assert json.loads(card.to_json()) == json.loads((complete / "data.json").read_text(encoding="utf-8"))
    assert replace(card, classes=()) != card


def test_several_processes_need_to_be_told_their_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="Several processes need to agree on a folder: write `--out FOLDER`"):
        Folder.claim("digits-slats", Config())
    assert list(tmp_path.iterdir()) == []
