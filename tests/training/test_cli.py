"""The command, as a user types it."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from softprune import cli, recipes
from softprune.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own

TINY = ["digits/slats", "network=mlp", "epochs=2", "final=0.05", "--quiet"]


def call(*words: object) -> tuple[int, str]:
    """Exit code and output; errors as ``main`` would print them."""
    result = CliRunner().invoke(cli.app, [str(word) for word in words])
    if isinstance(result.exception, UserError):
        return result.exception.exit_code, str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    code, output = call("train", *TINY, "--out", folder)
    assert code == 0, output
    assert "Accuracy" in output
    return folder


def test_help_and_recipes_do_not_wait_for_torch():
    program = (
        "import sys; from softprune.cli import app; from typer.testing import CliRunner;"
        "assert CliRunner().invoke(app, ['train', '--help']).exit_code == 0;"
        "assert CliRunner().invoke(app, ['recipes', 'resnet50/slats']).exit_code == 0;"
        "print(sorted(m for m in ('torch', 'lightning', 'matplotlib', 'numpy') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_recipes_are_listed_and_shown():
    code, output = call("recipes")
    assert code == 0
    assert len(output.splitlines()) == len(recipes.RECIPES)
    code, output = call("recipes", "resnet50/slats-b1024")
    assert "lr=0.512" in output
    assert "74.29%" in output


def test_report_of_a_run_a_checkpoint_and_a_model_file(run):
    (checkpoint,) = (run / "checkpoints").glob("*.ckpt")
    sparsity = json.loads((run / "report.json").read_text())["sparsity"]
    for path in (run, checkpoint, run / "model.safetensors"):
        code, output = call("report", path)
        assert code == 0
        assert f"{sparsity:.2%}" in output
    assert call("report", run, "--markdown")[1].startswith("| layer |")


def test_eval_measures_again(run):
    accuracy = json.loads((run / "report.json").read_text())["accuracy"]
    code, output = call("eval", run)
    assert code == 0
    assert f"{accuracy:.2%} on 450 images" in output


def test_a_frontier_does_only_what_is_missing(tmp_path):
    words = ["frontier", *TINY, "--out", tmp_path]
    assert call(*words, "--final", "0.02")[0] == 0
    model = tmp_path / "final-0.02" / "model.safetensors"
    before = model.stat().st_mtime_ns
    code, output = call(*words, "--final", "0.02,0.1")
    assert code == 0
    assert model.stat().st_mtime_ns == before
    rows = json.loads((tmp_path / "frontier.json").read_text())
    assert [row["final"] for row in rows] == [0.02, 0.1]
    assert rows[0]["sparsity"] < rows[1]["sparsity"]
    assert "| 0.1 |" in output
    assert (tmp_path / "frontier.png").stat().st_size > 10_000
    code, output = call(*words, "lr=0.05", "--final", "0.02")
    assert code == 2
    assert "other settings" in output


def test_a_frontier_of_targets_ends_at_them(tmp_path):
    code, output = call("frontier", *TINY, "--targets", "0.5,0.9", "--out", tmp_path)
    assert code == 0
    assert "| 0.9 | 90.0" in output
    assert [round(row["sparsity"], 3) for row in json.loads((tmp_path / "frontier.json").read_text())] == [0.5, 0.9]


def test_schedules_are_drawn_and_tabulated(tmp_path):
    code, output = call("schedules", "--lr", "cosine,polynomial,constant,step", "--out", tmp_path)
    assert code == 0
    assert "0.743" in output
    assert {path.name for path in tmp_path.iterdir()} == {
        "cosine.png",
        "polynomial.png",
        "constant.png",
        "step.png",
        "integral.png",
    }


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["train", "digits/slatz"], "Did you mean"),
        (["train", "digits/slats", "learning_rate=1"], "There is no setting 'learning_rate'"),
        (["train", "digits/slats", "epochs=many"], "`epochs` must be a whole number. Got 'many'."),
        (["train", "digits/slats", "epochs=0"], "`epochs` must be >= 1"),
        (["train", "digits/slats", "final=none"], "needs `final`: write `final=...`"),
        (["train", "digits/slats", "method=slat"], "Did you mean 'slats'?"),
        (["train", "digits/slats", "batch=5000"], "must be at most the number of training images. Got 5000"),
        (["train", "digits/slats", "network=resnet"], "resnet"),
        (["train", "digits/slats", "data=/nowhere"], "/nowhere"),
        (["train", "digits/slats", "optimizer=lion"], "`optimizer` must be one of sgd, adam, adamw"),
        (["train", "digits/str", "strategy=fsdp"], "Cannot use the method 'str' with `strategy=fsdp`"),
        (["train", "digits/slats", "word"], "A setting is written key=value. Got 'word'."),
        (["train", "--resume", "/nowhere"], "is not a run: it holds no config.json"),
        (["report", "/nowhere.safetensors"], "There is no file or folder"),
        (["frontier", "digits/slats", "--final", "a"], "`--final` must be numbers"),
        (["frontier", "digits/slats"], "needs either `--final 0.1,0.2` or `--targets 0.8,0.9`"),
        (["train", "digits/slats", "target=95"], "`target` must be > 0 and < 1"),
        (["train", "digits/str", "target=0.9"], "Cannot use `target` with the method 'str'"),
        (["schedules", "--lr", "cosin"], "`--lr` must name curves"),
        (["schedules", "--beta", "2"], "must be > 0 and < 1"),
    ],
)
def test_wrong_calls_are_answered_in_a_sentence(words, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output = call(*words)
    assert code in (1, 2)
    assert text in output


def test_the_process_exits_with_a_sentence_and_a_code(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "softprune", "train", "nothing/here"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: There is no recipe 'nothing/here'.")
    assert "Traceback" not in done.stderr
