"""`softprune bench`, as a user types it."""

import pytest
import torch
from typer.testing import CliRunner

import softprune as sp
from pictures import write_folder
from run_helpers import train
from softprune import cli, recipes
from softprune.bench import comparison
from softprune.errors import UserError
from softprune.training import names, subject
from softprune.training.run import Run
from softprune.training.subject import Subject

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own


def call(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [str(word) for word in words])
    if isinstance(result.exception, UserError):
        return result.exception.exit_code, str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench") / "run"
    assert call("train", "digits/target", "network=mlp", "epochs=1", "--quiet", "--out", folder)[0] == 0
    return folder


@pytest.fixture
def torch_alone(monkeypatch):
    monkeypatch.setattr(comparison, "RIVALS", ())


@pytest.mark.slow
def test_a_run_is_timed_with_its_own_weights_and_data(run, torch_alone):
    code, output = call("bench", run)
    assert code == 0, output
    lines = output.splitlines()
    assert lines[0].startswith(f"mlp of {run}: ")
    assert lines[0].endswith("% of its weights are zero.")
    assert "Batch 1, 1 thread." in lines
    assert "Batch 16, 1 thread." in lines
    found = Subject.of_run(run)
    assert not found.network.training
    assert found.samples.shape == (subject.SAMPLES, 1, 8, 8)
    assert f"{sp.summarize(found.network).sparsity:.2%}" in lines[0]
    network = names.NETWORKS["mlp"].build(10, (1, 8, 8))
    assert found.network.state_dict().keys() == network.state_dict().keys()


@pytest.mark.slow
def test_a_recipe_is_timed_with_random_zeros(torch_alone):
    code, output = call("bench", "digits/target", "network=mlp", "target=0.75", "pattern=block4")
    assert code == 0, output
    assert output.startswith("mlp with random weights: 75.0")
    assert output.count("torch eager ") >= 2


def test_recipes_have_the_inputs_that_their_network_is_made_for():
    assert names.NETWORKS["resnet50"].shape == (3, 224, 224)
    assert names.NETWORKS["resnet18_cifar"].shape == (3, 32, 32)
    assert names.NETWORKS["gpt_small"].shape == (64,)
    text = Subject.of_recipe(cli._settings("gpt_small/target", ["target=0.9"], smoke=False))
    assert text.samples.dtype == torch.int64
    assert text.network(text.samples[:1]).shape == (1, 64, 256)
    assert sp.summarize(text.network).sparsity == pytest.approx(0.9, abs=1e-3)


def test_blocks_of_a_recipe():
    found = Subject.of_recipe(cli._settings("digits/target", ["target=0.5", "pattern=block4"], smoke=False))
    for weight in sp.select(found.network).values():
        dead = sp.Blocks(1, 4).dead(weight)
        assert dead.float().mean() == pytest.approx(0.5, abs=0.1)
        assert (weight == 0).float().mean() == pytest.approx(0.5, abs=0.1)


def test_what_bench_refuses(run, tmp_path):
    code, output = call("bench", run, "target=0.9")
    assert (code, output) == (2, "A run is timed as it is: drop target=0.9.")
    code, output = call("bench", "digits/slats")
    assert code == 2
    assert output.startswith("A recipe has no weights yet: say how sparse random ones shall be, as `target=0.9`")
    code, output = call("bench", "digits/target", "pattern=channels")
    assert code == 2
    assert output.startswith("Cannot make random zeros with `pattern=channels`.")
    assert call("bench", "no/recipe")[0] == 2
    assert call("bench", tmp_path)[1].startswith(f"{tmp_path} is not a run: it holds no config.json.")
    assert call("bench", run, "--fast")[1] == "There is no option `--fast`."


@pytest.mark.slow
def test_every_runtime_of_the_extra_is_in_the_table(run):
    missing = [runtime.missing() for runtime in comparison.RIVALS if runtime.missing()]
    assert not missing, missing[0]
    code, output = call("bench", run)
    assert code == 0
    for runtime in comparison.RIVALS:
        assert f"\n{runtime.name} " in output


def test_a_run_whose_images_a_gpu_decoded_is_timed_on_a_cpu(tmp_path):
    data = write_folder(tmp_path / "images", (80, 70), train=8, val=2, classes=2)
    settings = ["network=resnet20", f"data={data}", "image_size=24", "batch=4", "epochs=1", "workers=0", "decode=cpu"]
    run = Run.create(tmp_path / "run", recipes.get("digits/slats").config.override(settings))
    train(run)
    kept = run.folder / "config.json"
    kept.write_text(kept.read_text().replace('"decode": "cpu"', '"decode": "gpu"'))
    assert Run.open(run.folder).config.decode == "gpu"
    assert Subject.of_run(run.folder).samples.shape == (8, 3, 24, 24)
