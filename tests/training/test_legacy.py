"""Run folders of the version before 2026-11: resumed to the weights that it would have trained, reported, evaluated.

slats, str and target were stopped midway; their archives hold the model that they ended with. complete and spiking are
complete runs, without their checkpoints.
"""

import json
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from run_helpers import train
from softprune.cli import app
from softprune.errors import CheckpointError
from softprune.training.headline import LOSS
from softprune.training.run import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(Path(__file__).parent / "legacy" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


@pytest.mark.parametrize("name", ["slats", "target", "str"])
def test_a_run_that_was_stopped_is_resumed(name, tmp_path):
    run, said = Run.open(unpacked(name, tmp_path)), []
    outcome = run.train(said.append)
    assert said[0].startswith("Resuming from")
    before, now = load_file(tmp_path / "model.safetensors"), load_file(run.folder / "model.safetensors")
    assert before.keys() == now.keys()
    for key, tensor in before.items():
        torch.testing.assert_close(now[key], tensor, rtol=0, atol=1e-4)
    assert outcome.sparsity > 0.4
    rows = [json.loads(line) for line in (run.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 211))


@pytest.mark.parametrize("name", ["complete", "spiking"])
def test_a_complete_run_is_reported_and_evaluated(name, tmp_path):
    folder = unpacked(name, tmp_path)
    outcome = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    said = CliRunner().invoke(app, ["report", str(folder)])
    assert said.exit_code == 0
    assert f"{outcome['sparsity']:.2%}" in said.output
    measured = Run.open(folder).evaluate([])
    assert measured.accuracy == pytest.approx(outcome["accuracy"])
    figures = measured.figures()
    assert figures.pop(LOSS) == measured.loss > 0  # which was not written then
    assert figures == pytest.approx(outcome["figures"])
    assert list(figures) == list(outcome["figures"])
    assert train(Run.open(folder)).accuracy == outcome["accuracy"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("optimizer", "adamw"), ("method", "lats"), ("method", "dense"), ("method", "str"), ("target", 0.9)],
)
def test_a_checkpoint_without_settings_is_told_apart_by_its_form(setting, value, tmp_path):
    """By all that changes the form: slats and lats keep the same state."""
    folder = unpacked("slats", tmp_path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | {setting: value}
    config |= {"dense": {"final": None}, "str": {"final": None, "init": -8.0}}.get(value, {})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    said: list[str] = []
    if value == "lats":
        Run.open(folder).train(said.append)
        assert said[0].startswith("Resuming from")
        return
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* can be used"):
        Run.open(folder).train(said.append)
    assert said[0].endswith("is the checkpoint of another optimizer or method, and is not used.")
