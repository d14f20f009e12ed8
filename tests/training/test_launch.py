"""Two processes under DDP, launched by torchrun and by Lightning, end where one process ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from softprune.errors import ConfigError
from softprune.training.launch import check_processes

SETTINGS = ["digits/slats", "network=mlp", "epochs=2", "final=0.02", "accelerator=cpu", "strategy=ddp"]
SOFTPRUNE = [sys.executable, "-m", "softprune", "train", "--quiet"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(command: list[str], folder: Path) -> dict[str, torch.Tensor]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--out", str(folder)], capture_output=True, text=True, env=environment, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Accuracy") == 1  # one process speaks
    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, torch.Tensor]:
    settings = [s for s in SETTINGS if s != "strategy=ddp"]
    return run([*SOFTPRUNE, *settings], tmp_path_factory.mktemp("alone") / "run")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param([*TORCHRUN, "-m", "softprune", "train", "--quiet", *SETTINGS, "devices=2"], id="torchrun"),
        pytest.param([*SOFTPRUNE, *SETTINGS, "devices=2"], id="lightning", marks=pytest.mark.slow),
        pytest.param([*SOFTPRUNE, *SETTINGS, "devices=2", "strategy=fsdp"], id="fsdp", marks=pytest.mark.slow),
    ],
)
def test_two_processes_train_what_one_trains(alone, tmp_path, command):
    together = run(command, tmp_path / "run")
    assert together.keys() == alone.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(together[name], tensor, rtol=1e-4, atol=1e-5)
    zeros = sum(int((t == 0).sum()) for name, t in alone.items() if name.endswith("weight"))
    both = sum(int((t == 0).sum()) for name, t in together.items() if name.endswith("weight"))
    assert abs(zeros - both) <= 5
    assert zeros > 1000


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "strategy"), [("channels", "ddp"), ("block4", "fsdp")])
def test_two_processes_agree_on_what_dies_as_a_whole(tmp_path, pattern, strategy):
    settings = [*SETTINGS, "target=0.5", f"pattern={pattern}"]
    one = run([*SOFTPRUNE, *settings, "strategy=auto"], tmp_path / "one")
    two = run([*SOFTPRUNE, *settings, "devices=2", f"strategy={strategy}"], tmp_path / "two")
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=1e-4)
        assert torch.equal(two[name] == 0, tensor == 0)
    assert 0.4 < sum(int((t == 0).sum()) for t in one.values()) / sum(t.numel() for t in one.values()) < 0.6


@pytest.mark.slow
def test_one_process_speaks_for_a_frontier(tmp_path):
    words = ["frontier", *SETTINGS[:2], "epochs=1", *SETTINGS[4:], "devices=2", "--final", "0.02,0.1"]
    done = subprocess.run(
        [*TORCHRUN, "-m", "softprune", *words, "--quiet", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| 0.02 |") == done.stdout.count("| 0.1 |") == 1
    assert {path.name for path in tmp_path.glob("frontier.*")} == {"frontier.json", "frontier.md", "frontier.png"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["digits/lats"], id="lats"),
        pytest.param(["digits/slats", "target=0.6"], id="target"),
    ],
)
def test_a_sharded_network_follows_a_scheduler_that_is_played_forward(tmp_path, words):
    weights = run([*SOFTPRUNE, words[0], *SETTINGS[1:], *words[1:], "devices=2", "strategy=fsdp"], tmp_path / "run")
    pruned = [t for name, t in weights.items() if name.endswith("weight") and t.dim() > 1]
    zeros = sum(int((t == 0).sum()) for t in pruned) / sum(t.numel() for t in pruned)
    assert zeros == pytest.approx(0.6, abs=1e-3) if words[1:] else 0.1 < zeros < 0.9


@pytest.mark.slow
def test_the_last_validation_batch_may_be_smaller_than_the_number_of_processes(tmp_path):
    settings = ["network=digits_resnet", "epochs=1", "batch=448", "devices=4", "strategy=fsdp"]  # 450 images
    run([*SOFTPRUNE, *SETTINGS, *settings], tmp_path / "run")
    accuracy = json.loads((tmp_path / "run" / "report.json").read_text())["accuracy"]
    assert accuracy * 450 == pytest.approx(round(accuracy * 450), abs=1e-3)  # every image counts, and counts once


def test_processes_that_the_run_would_not_use_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="3 processes were launched, and the run uses 1"):
        check_processes(1)
    check_processes(3)


@pytest.mark.slow
def test_a_signal_to_one_process_stops_them_all(tmp_path):
    command = [*SOFTPRUNE, *SETTINGS, "epochs=100000", "devices=2", "--out", str(tmp_path / "run")]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    history = tmp_path / "run" / "history.jsonl"
    while not (history.exists() and history.read_text()):
        assert started.poll() is None, started.communicate()
        time.sleep(0.1)
    started.send_signal(signal.SIGTERM)
    out, errors = started.communicate(timeout=60)  # the pipes close when the last process ends
    assert started.returncode == 128 + signal.SIGTERM, out + errors
    assert "Traceback" not in errors, errors
    assert len(list((tmp_path / "run" / "checkpoints").glob("step-*.ckpt"))) == 1
