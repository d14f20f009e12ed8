"""Spiking networks through the command's own machinery: trained, measured, compared."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from softprune import recipes
from softprune.cli import app
from softprune.training import model_file, names
from softprune.training.frontier import walk
from softprune.training.run import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own


@pytest.mark.slow
def test_digits_are_learned_to_90_percent_at_80_percent_sparsity(tmp_path):
    """A quarter of the recipe's epochs; what the run leaves behind says what the network did."""
    config = recipes.get("sew_digits/slats").config.override(["epochs=5", "final=0.15"])
    run = Run.create(tmp_path / "run", config)
    outcome = run.train(say=lambda _: None)
    assert outcome.accuracy >= 0.9
    assert outcome.sparsity >= 0.8
    assert 0.05 < outcome.figures["firing rate"] < 0.5
    observed = run.outcome["observed"]
    assert observed["images"] == 450
    assert observed["firing_rate"] == outcome.figures["firing rate"] == run.outcome["figures"]["firing rate"]
    assert observed["synaptic_operations"]["pruned"] < 0.3 * observed["synaptic_operations"]["dense"]
    layers = [layer["name"] for layer in run.outcome["report"]["layers"]]
    assert {f"{layer['name']}.weight" for layer in observed["operations"]} == set(layers)
    text = (run.folder / "report.md").read_text()
    assert f"Firing rate {outcome.figures['firing rate']:.2%}" in text
    assert Run.open(run.folder).train(say=lambda _: None) == outcome
    for command in ("report", "eval"):  # which measures again, on the same path
        said = CliRunner().invoke(app, [command, str(run.folder)]).output
        for name, value in outcome.figures.items():
            assert f"{name}: {value:,.4g}" in said
    network = names.NETWORKS.find("sew_digits").build(10, (1, 8, 8))
    network.load_state_dict(model_file.read(run.folder / "model.safetensors"))


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_firing_is_measured_in_any_precision(tmp_path, precision):
    config = replace(recipes.get("sew_digits/slats").smoke(), epochs=1, final=0.01, precision=precision)
    assert 0 < Run.create(tmp_path / "run", config).train(say=lambda _: None).figures["firing rate"] < 1


def test_a_frontier_of_firing_rates(tmp_path, drawn):
    said: list[str] = []
    config = replace(recipes.get("sew_digits/slats").smoke(), epochs=1)
    assert walk(config, "final", [0.01, 0.1], tmp_path, said.append) is None
    rows = json.loads((tmp_path / "frontier.json").read_text())
    figures = ["validation loss", "firing rate", "synaptic operations", "energy (nJ)"]
    assert list(rows[0]) == ["final", "sparsity", "accuracy", *figures]
    head, rule, *_ = (tmp_path / "frontier.md").read_text().splitlines()
    assert head == f"| final | sparsity | accuracy | {' | '.join(figures)} |"
    assert rule == "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name in ("frontier", "validation-loss", "firing-rate", "synaptic-operations", "energy-nj"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert f"Plot: {tmp_path / name}.png" in said


def test_other_networks_have_nothing_else_to_tell(tmp_path):
    run = Run.create(tmp_path / "run", recipes.get("digits/slats").smoke())
    assert list(run.train(say=lambda _: None).figures) == ["validation loss"]
    assert run.outcome["observed"] is None
