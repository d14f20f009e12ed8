"""The small network that a run leaves beside the sparse one."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

from run_helpers import train
from softprune import recipes
from softprune.cli import app
from softprune.errors import ConfigError
from softprune.models.small import digits_resnet
from softprune.removal.load import load_small
from softprune.training import small
from softprune.training.run import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own

SHORT = recipes.get("digits/target").config.override(["epochs=2", "target=0.5"])


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Run:
    run = Run.create(tmp_path_factory.mktemp("runs") / "run", SHORT.override(["pattern=channels"]))
    train(run)
    return run


def test_it_computes_what_the_sparse_network_computes(complete):
    sparse = digits_resnet()
    sparse.load_state_dict(load_file(complete.folder / "model.safetensors"))
    loaded = load_small(digits_resnet(), load_file(complete.folder / "small.safetensors"))
    x = torch.randn(4, 1, 8, 8)
    torch.testing.assert_close(loaded.eval()(x), sparse.eval()(x), rtol=1e-4, atol=1e-5)


def test_the_report_says_what_it_saves(complete):
    told = complete.outcome["small"]
    before, after = told["parameters"]
    assert before == 77_754
    assert after == pytest.approx(before / 2, rel=0.05)
    tensors = load_file(complete.folder / "small.safetensors")
    assert after == sum(t.numel() for name, t in tensors.items() if name.endswith(("weight", "bias")))
    assert told["multiplications"][1] < 0.7 * told["multiplications"][0]
    assert all(seconds > 0 for seconds in told["seconds"])
    assert told["remark"] in (complete.folder / "report.md").read_text()
    assert told["remark"] in CliRunner().invoke(app, ["report", str(complete.folder)]).output


def test_eval_measures_both(complete):
    whole, little = complete.evaluate([]), complete.evaluate([], of_small=True)
    assert little.accuracy == whole.accuracy == pytest.approx(complete.outcome["accuracy"])
    assert little.loss == pytest.approx(whole.loss, rel=1e-4)
    said = CliRunner().invoke(app, ["eval", str(complete.folder)]).output
    assert f"The small network: accuracy {little.accuracy:.2%}." in said
    assert said.count("validation loss") == 2


def test_where_nothing_is_dead_it_says_so(tmp_path, complete):
    run = Run.create(tmp_path / "run", SHORT.override(["pattern=channels", "target=0.001", "epochs=1"]))
    said: list[str] = []
    (run.folder / "small.safetensors").write_bytes((complete.folder / "small.safetensors").read_bytes())
    run.train(said.append)
    assert "Nothing is dead that could be removed as a whole: the network keeps its size." in said
    assert not run.has_small  # that of an earlier end of this run is gone
    assert run.outcome["small"] == {"remark": said[-1]}


class Unusual(nn.Module):
    """Refuses to be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("no two looks are alike")


def test_a_network_that_cannot_be_made_smaller_is_told_in_a_sentence():
    found = small.removed(Unusual(), torch.zeros(1, 2))
    assert found.remark == "The network could not be made smaller: 'no two looks are alike'."
    assert not found.tensors


def test_half_precision_stays_half_in_the_file():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).bfloat16()
    with torch.no_grad():
        model[2].weight[:, :5] = 0
    found = small.removed(model, torch.ones(1, 4))
    assert {t.dtype for t in found.tensors.values()} == {torch.bfloat16}
    assert found.saved["parameters"] == (58, 23)


def test_a_dense_run_and_a_report_of_an_earlier_version_say_nothing_of_it(tmp_path):
    run = Run.create(tmp_path / "run", SHORT.override(["method=dense", "target=none", "network=mlp", "epochs=1"]))
    train(run)
    assert run.outcome["small"] is None
    path = run.folder / "report.json"
    values = json.loads(path.read_text())
    del values["small"]
    path.write_text(json.dumps(values))
    assert CliRunner().invoke(app, ["report", str(run.folder)]).exit_code == 0


def test_the_small_network_of_another_one_is_refused(tmp_path, complete):
    run = Run.create(tmp_path / "run", SHORT.override(["network=mlp", "epochs=1"]))
    train(run)
    (run.folder / "small.safetensors").write_bytes((complete.folder / "small.safetensors").read_bytes())
    with pytest.raises(ConfigError, match="does not fit the network 'mlp'"):
        run.evaluate([], of_small=True)
