"""A run: what it leaves behind, and that nothing is lost when it is killed, stopped, or finds damage."""

import os
import pickle
import random
import re
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
import torch
from lightning.pytorch import Callback
from safetensors import safe_open
from safetensors.torch import load_file
from typer.testing import CliRunner

from run_helpers import At, same_weights, train
from softprune import recipes
from softprune.cli import app
from softprune.errors import CheckpointError, ConfigError
from softprune.recipes.config import Config
from softprune.training import checkpoint, history, model_file, names
from softprune.training.run import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own

SHORT = recipes.get("digits/slats").config.override(["epochs=3", "network=mlp", "final=0.04"])
COMMAND = [sys.executable, "-m", "softprune"]


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Run:
    """An uninterrupted run to compare with, whose hidden weights matter: some are zero, and some are not."""
    run = Run.create(tmp_path_factory.mktemp("runs") / "complete", SHORT)
    outcome = train(run)
    assert 0.3 < outcome.sparsity < 0.95
    assert outcome.accuracy > 0.5
    return run


@pytest.mark.slow
def test_a_compiled_network_is_compiled_once(tmp_path, complete):
    """Not again for validation, nor for its smaller last batch, nor for the next run of a frontier."""
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    for name in ("one", "two"):
        outcome = train(Run.create(tmp_path / name, SHORT.override(["compile=true"])))
        assert counters["stats"]["unique_graphs"] == 1
    uncompiled = complete.outcome
    assert uncompiled is not None
    assert outcome.accuracy == pytest.approx(uncompiled["accuracy"], abs=0.01)
    assert outcome.sparsity == pytest.approx(uncompiled["sparsity"], abs=0.01)


@pytest.mark.slow
def test_a_network_is_compiled_for_its_own_shapes_whatever_was_before(tmp_path):
    """Not for any shape, since another run had another: the compiler fails at some networks then."""
    for recipe in ("gpt_small/dense", "sew_digits/slats"):
        config = replace(recipes.get(recipe).smoke(), compile=True, epochs=1, warmup=0)
        assert train(Run.create(tmp_path / config.network, config)).accuracy is not None


def test_the_folder_of_a_complete_run(complete):
    names = {path.relative_to(complete.folder).as_posix() for path in complete.folder.rglob("*")}
    assert {
        "config.json",
        "data.json",
        "history.jsonl",
        "model.safetensors",
        "report.json",
        "report.md",
        "plots/layers.png",
        "plots/sparsity.png",
        "plots/threshold.png",
        "plots/turnover.png",
    } <= names
    assert len([name for name in names if name.startswith("tensorboard/events")]) == 1
    hyperparameters = (complete.folder / "tensorboard" / "hparams.yaml").read_text()
    assert "final: 0.04\n" in hyperparameters
    assert "exclude: []\n" in hyperparameters
    assert not [name for name in names if name.split("/")[-1].startswith(".")]  # nothing half-written
    assert Config.from_json((complete.folder / "config.json").read_text()) == SHORT


def test_the_model_file_holds_the_sparse_weights_under_ordinary_names(complete):
    report = complete.outcome["report"]
    tensors = load_file(complete.folder / "model.safetensors")
    for layer in report["layers"]:
        assert int((tensors[layer["name"]] == 0).sum()) == layer["zeros"]
    assert complete.outcome["sparsity"] > 0.3
    with safe_open(complete.folder / "model.safetensors", "pt") as file:
        assert Config.from_json(file.metadata()["config"]) == SHORT
    measured = complete.evaluate([])
    assert measured.accuracy == pytest.approx(complete.outcome["accuracy"])
    assert (measured.count, measured.unit) == (450, "images")


def test_the_history_is_whole(complete):
    rows = history.read(complete.folder / "history.jsonl")
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 64))
    assert [row["step"] for row in rows if "accuracy" in row and "val_loss" in row] == [21, 42, 63]
    steps = [row for row in rows if "loss" in row]
    assert steps[-1]["threshold"] == SHORT.final
    assert steps[0]["lr"] == SHORT.lr
    assert all(
        after["penalty"] * after["lr"] == pytest.approx(after["threshold"] - before["threshold"])
        for before, after in pairwise(steps)
    )
    assert all(row["dropped"] > 0 for row in rows if "accuracy" in row)


def test_turnover_is_counted_from_the_checkpoint_after_a_resume(complete, tmp_path):
    run = Run.create(tmp_path / "stopped", SHORT)
    train(run, [At(29, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    train(run)
    rows, whole = (
        [row for row in history.read(folder / "history.jsonl") if "accuracy" in row]
        for folder in (run.folder, complete.folder)
    )
    assert [row["step"] for row in rows] == [21, 42, 63]
    assert rows[0] == whole[0]
    assert 0 < rows[1]["dropped"] < whole[1]["dropped"]
    assert rows[2] == whole[2]


def test_a_complete_run_is_not_trained_again(complete):
    before = (complete.folder / "model.safetensors").stat().st_mtime_ns
    said: list[str] = []
    Run.open(complete.folder).train(say=said.append)
    assert said == [f"{complete.folder} is complete."]
    assert (complete.folder / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="holds a run already"):
        Run.create(complete.folder, SHORT)


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_ends_with_the_same_weights(complete, tmp_path, times):
    """SIGKILL in the middle of epochs, while every step writes a checkpoint."""
    run = Run.create(tmp_path / "killed", SHORT.override(["checkpoint_minutes=0"]))
    run.home.release()
    log = run.folder / "history.jsonl"
    log.touch()
    randomness = random.Random(0)
    for _ in range(times):
        goal = len(log.read_text().splitlines()) + randomness.randint(2, 12)
        process = subprocess.Popen(
            [*COMMAND, "train", "--resume", str(run.folder), "--quiet"],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # as conftest.py has it: sums in the same order
        )
        deadline = time.monotonic() + 120
        while len(log.read_text().splitlines()) < goal:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(0.02 * randomness.random())
        process.kill()
        process.wait()
    newest = run.home.checkpoints()[0]
    assert 3 <= int(newest.stem.removeprefix("step-")) < 63
    train(run)
    assert same_weights(run.folder, complete.folder)
    assert [row["step"] for row in history.read(log) if "loss" in row] == list(range(1, 64))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_first(complete, tmp_path, number):
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs ignore it, and so would the run
    handler = signal.getsignal(number)
    run = Run.create(tmp_path / "stopped", SHORT)
    outcome = train(run, [At(29, lambda: os.kill(os.getpid(), number))])
    assert outcome.stopped_by == number
    assert [path.name for path in run.home.checkpoints()] == ["step-000000030.ckpt"]
    assert signal.getsignal(number) == handler
    train(run)
    assert same_weights(run.folder, complete.folder)


def test_a_run_stopped_after_its_last_step_says_what_others_say(complete, tmp_path):
    run = Run.create(tmp_path / "stopped", SHORT)
    train(run, [At(62, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    assert not (run.folder / "report.json").exists()
    train(run)
    assert same_weights(run.folder, complete.folder)
    assert run.outcome["report"]["penalty"] == pytest.approx(complete.outcome["report"]["penalty"])
    assert run.outcome["accuracy"] == complete.outcome["accuracy"]


def interrupted(folder: Path) -> Run:
    """A run that saved after each step and broke off in the second epoch."""
    run = Run.create(folder, SHORT.override(["checkpoint_minutes=0"]))

    def fail() -> None:
        raise KeyError("the power is gone")

    with pytest.raises(KeyError):
        train(run, [At(25, fail)])
    assert [p.name for p in run.home.checkpoints()] == ["step-000000025.ckpt", "step-000000024.ckpt"]
    return run


class Evil:
    def __reduce__(self):
        return (os.system, ("touch executed",))


def damage(path: Path, how: str) -> None:
    if how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "foreign":
        torch.save({"state_dict": {}}, path)
    elif how == "malicious":
        torch.save({"softprune": 1, "evil": Evil()}, path)
    elif how == "pickle":
        path.write_bytes(pickle.dumps(Evil()))
    elif how == "one bit":
        with zipfile.ZipFile(path) as archive:
            largest = max(archive.infolist(), key=lambda part: part.file_size)
        contents = bytearray(path.read_bytes())
        at = largest.header_offset + largest.file_size // 2
        contents[at] ^= 1
        path.write_bytes(contents)


@pytest.mark.parametrize("how", ["truncated", "empty", "foreign", "malicious", "pickle", "one bit"])
def test_a_bad_checkpoint_is_refused_without_running_it_and_the_one_before_is_used(
    complete, tmp_path, monkeypatch, how
):
    monkeypatch.chdir(tmp_path)
    run = interrupted(tmp_path / "run")
    newest = run.home.checkpoints()[0]
    damage(newest, how)
    with pytest.raises(CheckpointError, match=r"damaged|not a checkpoint of softprune"):
        checkpoint.load(newest)
    said: list[str] = []
    run.train(say=said.append)
    assert "Trying the one before it." in said[0]
    assert said[1].endswith("step-000000024.ckpt.")
    assert same_weights(run.folder, complete.folder)
    assert not (tmp_path / "executed").exists()


def test_a_damaged_checkpoint_does_not_take_the_place_of_a_good_one(tmp_path):
    run = interrupted(tmp_path / "run")
    folder, names = run.folder / "checkpoints", []
    (folder / "step-000000040.ckpt").write_bytes(b"damaged")
    train(run, [At(27, lambda: names.extend(path.name for path in run.home.checkpoints()))])
    assert names == ["step-000000027.ckpt", "step-000000026.ckpt"]


@pytest.mark.parametrize(
    ("recipe", "later"),
    [
        ("gpo", "GPO's weights become exactly zero when it is."),
        ("channels", "What reads a dead unit counts as zero, and becomes it when it is."),
    ],
)
def test_the_progress_of_a_run_that_is_not_complete(tmp_path, recipe, later):
    config = recipes.get(f"digits/{recipe}").config.override(["epochs=3", "network=mlp", "warmup=0"])
    run = Run.create(tmp_path / "run", config)
    train(run, [At(40, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    said = run.home.progress()
    assert re.match(r"The run is not complete: step 41, loss [\d.]+, sparsity [\d.]+%, threshold [\d.e-]+, acc", said)
    assert said.endswith(f"%. {later}")
    result = CliRunner().invoke(app, ["report", str(run.folder)])
    assert result.output.endswith(f"{said} The table is of step-000000041.ckpt.\n")


def test_model_files_of_strangers_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for suffix in ("ckpt", "safetensors"):
        path = tmp_path / f"gift.{suffix}"
        path.write_bytes(pickle.dumps(Evil()))
        with pytest.raises(CheckpointError, match=r"\.$"):
            model_file.read(path)
    assert not (tmp_path / "executed").exists()


def test_a_full_disk_says_so_and_keeps_the_checkpoint_before(tmp_path):
    """/dev/full refuses every write as a full disk does."""
    saver = checkpoint.AtomicCheckpointIO()
    path = tmp_path / "step-000000001.ckpt"
    saver.save_checkpoint({"a": torch.ones(3)}, path)
    with pytest.MonkeyPatch.context() as patch:
        full = Path("/dev/full")
        patch.setattr(Path, "with_name", lambda self, name: full)
        patch.setattr(Path, "unlink", lambda self, missing_ok: None)
        patch.setattr(Path, "touch", lambda self, exist_ok: None)
        with pytest.raises(
            CheckpointError, match=r"the disk is full\. Free some space\. The checkpoint before it is untouched"
        ):
            saver.save_checkpoint({"a": torch.zeros(10**6)}, path)
    assert torch.equal(checkpoint.load(path)["a"], torch.ones(3))


def test_a_checkpoint_whose_folder_cannot_be_made_is_told_in_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "checkpoints" / "step-000000001.ckpt"
    with pytest.raises(CheckpointError, match=r"^Cannot write the checkpoint .*: .*Not a directory.*\.$"):
        checkpoint.AtomicCheckpointIO().save_checkpoint({}, path)


def test_the_report_says_who_left_since_the_validation_before(tmp_path):
    run = Run.create(tmp_path / "run", SHORT)
    train(run)
    last = [row for row in history.read(run.folder / "history.jsonl") if "dropped" in row][-1]
    report = run.outcome["report"]
    assert (report["dropped"], report["regrown"]) == (last["dropped"], last["regrown"])
    assert report["dropped"] > 0


def test_a_power_cut_in_the_middle_of_a_line_and_of_a_checkpoint(tmp_path):
    run = Run.create(tmp_path / "run", SHORT)
    (tmp_path / "run" / "checkpoints").mkdir()
    half = tmp_path / "run" / "checkpoints" / ".step-000000005.ckpt.77"
    half.write_bytes(b"half")
    (tmp_path / "run" / "history.jsonl").write_text('{"step": 0, "lr": 0.1}\n{"step": 1, "lo')
    assert train(run).accuracy is not None
    assert not half.exists()
    assert history.read(tmp_path / "run" / "history.jsonl")[0]["step"] == 0


def test_a_run_none_of_whose_checkpoints_can_be_read_does_not_begin_anew_by_itself(tmp_path):
    run = Run.create(tmp_path / "run", SHORT)
    (tmp_path / "run" / "checkpoints").mkdir()
    path = tmp_path / "run" / "checkpoints" / "step-000000005.ckpt"
    path.write_bytes(b"damaged")
    said: list[str] = []
    with pytest.raises(CheckpointError, match="Delete them"):
        run.train(said.append)
    assert said == [f"{path} is damaged, and is not read: File is not a zip file."]


@pytest.mark.parametrize("contents", [b"{", b"[]", b"\xff"])
def test_a_damaged_configuration_is_refused(tmp_path, contents):
    Run.create(tmp_path / "run", SHORT)
    (tmp_path / "run" / "config.json").write_bytes(contents)
    with pytest.raises(ConfigError, match=r"config.json(:| is damaged)"):
        Run.open(tmp_path / "run")


@pytest.mark.parametrize("left", ["report.json", "history.jsonl", "checkpoints/step-000000084.ckpt"])
def test_what_is_left_of_another_run_is_not_taken_over(tmp_path, left):
    (tmp_path / left).parent.mkdir(exist_ok=True)
    (tmp_path / left).write_text("{}")
    with pytest.raises(ConfigError, match="holds a run already"):
        Run.create(tmp_path, SHORT)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tensorboard/events", "notes.txt"])
def test_files_of_others_are_left_alone(tmp_path, file):
    folder = tmp_path / "own"
    (folder / file).parent.mkdir(parents=True)
    (folder / file).write_text('{"mine": 1}')
    with pytest.raises(ConfigError, match=r"is not empty. Choose another folder with `--out`."):
        Run.create(folder, SHORT)
    assert (folder / file).read_text() == '{"mine": 1}'


def test_what_never_began_is_begun_again_and_withdrawn(tmp_path):
    empty, new = tmp_path / "empty", tmp_path / "new"
    empty.mkdir()
    for folder in (empty, new):
        Run.create(folder, SHORT).home.release()  # as after a crash before training
        run = Run.create(folder, replace(SHORT, batch=5000))  # which only the data can refuse
        (folder / "tensorboard").mkdir()
        with pytest.raises(ConfigError, match="`batch` must be at most"):
            train(run)
    assert list(empty.iterdir()) == []
    made = Run.create(tmp_path / "made", replace(SHORT, batch=5000))
    with pytest.raises(ConfigError, match="`batch` must be at most"):
        train(made)
    assert not made.folder.exists()


def test_a_damaged_report_is_told(tmp_path):
    run = Run.create(tmp_path / "run", SHORT)
    (run.folder / "report.json").write_text('{"accuracy": 0.')
    with pytest.raises(ConfigError, match=r"report.json is damaged: .* Delete it, and `--resume` writes it again"):
        train(run)


def test_settings_find_their_data_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "digits").mkdir()
    (tmp_path / "images").mkdir()
    monkeypatch.chdir(tmp_path)
    places = ("digits", "pystdlib", "images", "idx:images", "text:images", "nowhere")
    found = [names.located(replace(SHORT, data=data)).data for data in places]
    folder = f"{tmp_path}/images"
    assert found == ["digits", "pystdlib", folder, f"idx:{folder}", f"text:{folder}", f"{tmp_path}/nowhere"]


def test_double_precision_resumes_in_double_precision(tmp_path):
    config = SHORT.override(["precision=64-true"])
    whole, stopped = Run.create(tmp_path / "whole", config), Run.create(tmp_path / "stopped", config)
    train(whole)
    assert train(stopped, [At(29, lambda: os.kill(os.getpid(), signal.SIGTERM))]).stopped_by == signal.SIGTERM
    train(stopped)
    assert same_weights(stopped.folder, whole.folder)
    assert {t.dtype for t in load_file(whole.folder / "model.safetensors").values()} == {torch.float64}
    assert stopped.evaluate([]).accuracy == pytest.approx(stopped.outcome["accuracy"])


def test_a_learning_rate_of_zero_is_a_run_like_any_other(tmp_path):
    """Its penalty is infinite, which no plot can show and JSON does not know."""
    run = Run.create(tmp_path / "run", SHORT.override(["lr=0", "epochs=1"]))
    assert train(run).accuracy is not None
    assert run.outcome["report"]["penalty"] is None
    for path in (run.folder / "report.json", run.folder / "history.jsonl"):
        assert "Infinity" not in path.read_text()


def test_a_folder_that_is_claimed_is_nobody_elses(tmp_path, monkeypatch):
    """By number, and by name: the second start neither writes nor removes anything."""
    monkeypatch.chdir(tmp_path)
    first, second = (Run.claim("digits", replace(SHORT, seed=seed)) for seed in (1, 2))
    assert [run.folder.name for run in (first, second)] == ["digits-1", "digits-2"]
    with pytest.raises(ConfigError, match=r"Another process trains in runs.digits-1\. Wait until it is done"):
        Run.create(first.folder, replace(SHORT, seed=3))
    assert Run.open(first.folder).config.seed == 1
    assert train(first).accuracy is not None
    assert not os.environ.get("SOFTPRUNE_RUN_FOLDER")


@pytest.mark.slow
def test_a_run_under_way_is_not_resumed_beside_it(tmp_path):
    run = Run.create(tmp_path / "run", SHORT)
    refused: list[str] = []

    def resume() -> None:
        done = subprocess.run(
            [sys.executable, "-m", "softprune", "train", "--quiet", "--resume", run.folder],
            capture_output=True,
            text=True,
            check=False,
        )
        refused.append(f"{done.returncode} {done.stderr.splitlines()[-1]}")

    assert train(run, [At(5, resume)]).accuracy is not None
    assert refused == [f"2 Error: Another process trains in {run.folder}. Wait until it is done, or stop it."]
    assert train(Run.open(run.folder)).accuracy is not None  # which is free again


def test_a_run_that_begins_anew_says_so(tmp_path):
    run, said = Run.create(tmp_path / "run", SHORT), []

    def fail() -> None:
        raise ConfigError("out of order")

    with pytest.raises(ConfigError):
        train(run, [At(29, fail)])
    run.train(said.append)
    assert said == ["There is no checkpoint yet: training begins anew."]


def test_the_checkpoint_of_another_network_is_not_used(tmp_path):
    run, other = (Run.create(tmp_path / name, SHORT.override([f"network={name}"])) for name in ("mlp", "digits_resnet"))
    for one in (run, other):
        assert train(one, [At(20, lambda: os.kill(os.getpid(), signal.SIGTERM))]).stopped_by == signal.SIGTERM
    (newest,) = other.home.checkpoints()
    newest.rename(run.folder / "checkpoints" / "step-000009999.ckpt")
    said: list[str] = []
    assert run.train(said.append).accuracy is not None
    assert said[0].endswith(
        "step-000009999.ckpt is the checkpoint of another network, and is not used. Trying the one before it."
    )
    assert said[1].startswith("Resuming from")


@pytest.mark.parametrize("other", ["seed=1", "final=0.01", "epochs=4", "optimizer=adamw", "method=sine", "target=0.9"])
def test_the_checkpoint_of_another_run_is_not_used(tmp_path, other):
    """Also of the same network, and also if this run was given other settings since."""
    run, stranger = (Run.create(tmp_path / str(i), SHORT.override([other] * i)) for i in range(2))
    for one in (run, stranger):
        assert train(one, [At(20, lambda: os.kill(os.getpid(), signal.SIGTERM))]).stopped_by == signal.SIGTERM
    (newest,) = stranger.home.checkpoints()
    newest.rename(run.folder / "checkpoints" / "step-000009999.ckpt")
    said: list[str] = []
    assert run.train(said.append).accuracy is not None
    assert (
        f"9999.ckpt is the checkpoint of a run with other settings, and is not used: {other.split('=')[0]}=" in said[0]
    )
    assert said[1].startswith("Resuming from")


def test_a_run_may_go_on_elsewhere(complete, tmp_path):
    """What belongs to the machine may change."""
    run = Run.create(tmp_path / "run", SHORT)
    train(run, [At(29, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    moved = SHORT.override(["workers=1", "accelerator=cpu", "devices=1", "checkpoint_minutes=1"])
    (run.folder / "config.json").write_text(moved.to_json(), encoding="utf-8")
    said: list[str] = []
    Run.open(run.folder).train(said.append)
    assert said[0].startswith("Resuming from")
    assert same_weights(run.folder, complete.folder)


def test_a_checkpoint_is_read_once(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "run", SHORT)
    train(run, [At(29, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    read: list[Path] = []
    load = checkpoint.load
    monkeypatch.setattr(checkpoint, "load", lambda path: read.append(path) or load(path))
    train(run)
    assert [path.name for path in read] == ["step-000000030.ckpt"]


def test_a_log_has_a_line_for_each_epoch(tmp_path):
    said: list[str] = []
    Run.create(tmp_path / "run", SHORT).train(said.append, "lines")
    assert len(said) == 3
    pattern = r"epoch 2/3: step 42, loss [\d.]+, validation loss [\d.]+, accuracy [\d.]+%, sparsity [\d.]+%"
    assert re.fullmatch(pattern, said[1])
    dense = recipes.get("digits/dense").config.override(["epochs=1", "network=mlp"])
    Run.create(tmp_path / "dense", dense).train(said.append, "lines")
    assert re.fullmatch(r"epoch 1/1: step 21, loss [\d.]+, validation loss [\d.]+, accuracy [\d.]+%", said[3])


@pytest.mark.parametrize(("given", "threads"), [(None, 1), ("2", 2)])
def test_a_tiny_network_has_one_thread_unless_the_user_says_otherwise(tmp_path, monkeypatch, given, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    torch.set_num_threads(2)
    seen: list[int] = []
    try:
        run = Run.create(tmp_path / "run", SHORT.override(["epochs=1"]))
        train(run, [At(5, lambda: seen.append(torch.get_num_threads()))])
        assert (seen, torch.get_num_threads()) == ([threads], 2)
    finally:
        torch.set_num_threads(1)


def test_a_malicious_checkpoint_is_refused_without_advice_to_run_it(tmp_path):
    path = tmp_path / "evil.ckpt"
    torch.save({"softprune": 1, "evil": Evil()}, path)
    with pytest.raises(CheckpointError, match=r"holds more than tensors and plain values, and is not read\.$"):
        checkpoint.load(path)


@pytest.mark.parametrize("method", ["slats", "lats", "sine"])
@pytest.mark.parametrize("curve", ["constant", "polynomial", "step", "epoch-cosine"])
def test_every_curve_trains_and_the_threshold_ends_at_its_final_value(tmp_path, method, curve):
    config = SHORT.override([f"method={method}", f"lr_curve={curve}", "epochs=2"])
    run = Run.create(tmp_path / "run", config)
    train(run)
    rows = history.curve(history.read(run.folder / "history.jsonl"), "threshold", "lr")
    assert rows[-1]["threshold"] == pytest.approx(0.04)
    assert (rows[-1]["lr"] < 0.1) == (curve != "constant")


def test_report_md_gives_the_median_penalty_and_says_what_turnover_is_of(complete):
    text = (complete.folder / "report.md").read_text(encoding="utf-8")
    assert "are those of the last epoch, or of its part after a resume." in text
    assert "the last step implied" not in text
    penalties = [row["penalty"] for row in history.curve(history.read(complete.folder / "history.jsonl"), "penalty")]
    assert f"The implied L1 penalty was {median(penalties):.4g} (median over the run)." in text


class Moved(Callback):
    """How far the weights are from where they began."""

    def on_train_start(self, trainer, module):
        self.network = module.network
        self.before = [p.detach().clone() for p in module.network.parameters()]

    def distance(self) -> float:
        after = [p.detach() for p in self.network.parameters()]
        return float(torch.stack([(a - b).norm() for a, b in zip(after, self.before, strict=True)]).norm())


def test_a_gradient_is_cut_to_the_norm_that_is_set(tmp_path):
    """21 steps of plain SGD at a constant learning rate of 0.1 go no further than 2.1 times the norm."""
    plain = ["method=dense", "final=none", "momentum=0", "weight_decay=0", "lr_curve=constant", "epochs=1"]
    distances = []
    for words in ([], ["clip=0.01"]):
        moved = Moved()
        train(Run.create(tmp_path / str(len(words)), SHORT.override([*plain, *words])), [moved])
        distances.append(moved.distance())
    assert distances[0] > 0.1
    assert 0.001 < distances[1] < 0.02101
