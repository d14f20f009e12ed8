"""The command, as a user types it."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

import softprune
from softprune import __main__, cli, recipes
from softprune.errors import UserError
from softprune.training import settings, trainer
from softprune.training.run import Run

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
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"`softprune recipes` lists {len(recipes.RECIPES)}" in readme
    code, output = call("recipes", "resnet50/slats-b1024")
    assert "lr=0.512 " in output
    assert "74.29%" in output
    assert "warmup=5                         epochs of linear warm-up\n" in output
    assert "compile=true " in output
    for choices in settings.CHOICES.values():
        for choice in choices:
            assert choice in output
    assert (
        "method=slats                     S-LATS: the threshold is the integral of the learning-rate curve\n" in output
    )
    assert "network=resnet50                 ResNet-50 for ImageNet\n" in output
    assert "lr_curve=epoch-cosine            the paper's: falls after each epoch\n" in output


def test_the_version():
    assert call("--version") == (0, f"softprune {softprune.__version__}\n")


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
    assert call("eval", run, "batch=100", "workers=0", "precision=bf16-true")[0] == 0


def test_eval_needs_one_device_wherever_the_run_was_trained(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"nodes": 2, "devices": "2", "strategy": "ddp"}))
    code, output = call("eval", folder, "batch=75")
    assert code == 0, output
    assert "on 450 images" in output


def test_a_command_without_lightning_names_itself(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    for words in (["eval", run], ["train", "--resume", run], ["frontier", *TINY, "--final", "0.1"]):
        code, output = call(*words)
        assert code == 1
        assert output.startswith(f"`softprune {words[0]}` needs Lightning, which is not installed.")


def test_what_eval_refuses(run, tmp_path):
    assert call("eval", run, "lr=1")[1].startswith("`lr` belongs to the trained network")
    assert call("eval", run, "network=resnet20")[0] == 2
    code, output = call("eval", run, "precision=17")
    assert code == 2
    assert "Precision '17' is invalid" in output
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            (tmp_path / "images" / split / label).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / "images" / split / label / "0.png")
    code, output = call("eval", run, f"data={tmp_path / 'images'}")
    assert code == 2
    assert "was trained on the classes 0, 1, 2, 3, 4, 5, 6, 7 and 2 more, and" in output
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "data.json").unlink()  # as in runs of earlier versions
    code, output = call("eval", tmp_path / "run", f"data={tmp_path / 'images'}")
    assert code == 2
    assert "does not fit the network 'mlp' for 2 classes and 3 channels" in output
    (tmp_path / "run" / "report.json").unlink()
    code, output = call("eval", tmp_path / "run")
    assert code == 2
    assert f"is not complete yet. Go on with `softprune train --resume {tmp_path / 'run'}`." in output


def test_a_frontier_does_only_what_is_missing(tmp_path, drawn):
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
    code, output = call(*words, "workers=1", "checkpoint_minutes=1", "--final", "0.02")  # which shape no result
    assert code == 0
    assert model.stat().st_mtime_ns == before
    assert "| 0.1 |" in output  # which was there already
    other = call(*words, "lr=0.05", "--final", "0.05")
    assert other[0] == 0
    assert "| 0.1 |" not in other[1]
    assert json.loads((tmp_path / "frontier.json").read_text())[0]["final"] == 0.05
    assert (tmp_path / "frontier.png").stat().st_size > 10_000
    for other in ("lr=0.05", "data=synthetic"):
        code, output = call(*words, other, "--final", "0.02")
        assert code == 2
        assert "other settings" in output


def test_frontiers_keep_apart(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    for words in (["--final", "0.1"], ["--targets", "0.5"]):
        assert call("frontier", *TINY, "epochs=1", *words)[0] == 0
    names = ["frontier-digits-slats", "frontier-digits-slats-targets"]
    assert sorted(path.name for path in Path("runs").iterdir()) == names
    code, output = call("frontier", *TINY, "--final", "0.1", "--out", run)
    assert code == 2
    assert "holds a run. Choose another folder" in output
    code, output = call("frontier", *TINY, "data=nowhere", "--final", "0.1", "--out", "new")
    assert code == 1
    assert "nowhere" in output
    assert not Path("new").exists()


def test_a_frontier_of_targets_ends_at_them(tmp_path, monkeypatch):
    rehearsed = []
    build = trainer.rehearsed
    monkeypatch.setattr(trainer, "rehearsed", lambda config: rehearsed.append(config.target) or build(config))
    code, output = call("frontier", *TINY, "--targets", "0.5,0.9", "--out", tmp_path)
    assert code == 0
    assert "| 0.9 | 90.0" in output
    assert rehearsed == [0.5, 0.9]
    assert [round(row["sparsity"], 3) for row in json.loads((tmp_path / "frontier.json").read_text())] == [0.5, 0.9]


@pytest.mark.parametrize(
    ("word", "code"), [pytest.param("batch=100000", 2, marks=pytest.mark.slow), ("data=/nonexistent", 1)]
)
def test_what_the_data_or_the_machine_refuse_leaves_nothing_behind(word, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "softprune", "train", "--quiet", "network=mlp", word]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_target_may_let_layers_go(tmp_path):
    code, output = call("train", *TINY, "target=0.9995", "--out", tmp_path / "run")
    assert code == 2
    assert "Lower the target or `min_density`" in output
    assert call("train", *TINY, "target=0.9995", "min_density=0", "--out", tmp_path / "run")[0] == 0
    assert call("train", *TINY, "min_density=0", "--out", tmp_path / "other")[0] == 2


def test_a_refused_run_does_not_stand_in_the_way_of_the_next(tmp_path):
    """What only the data can tell is found after the folder was made, and before training begins."""
    words = ["frontier", *TINY, "--final", "0.02", "--out", tmp_path]
    assert call(*words, "batch=5000")[0] == 2
    assert call(*words)[0] == 0


def test_a_run_that_diverges_says_so_and_is_not_complete(tmp_path):
    code, output = call("train", "digits/slats", "network=mlp", "epochs=2", "lr=1e30", "--out", tmp_path / "run")
    assert code == 1
    assert "The loss is nan after step" in output
    assert "Lower `lr`" in output
    assert not (tmp_path / "run" / "report.json").exists()


def test_plots_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    code, output = call("schedules", "--out", tmp_path / "file" / "folder")
    assert code == 2
    assert "Cannot write to" in output


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
    ("variables", "code", "text"),
    [
        ({"RANK": "1"}, 0, "RANK=1 is ignored: WORLD_SIZE does not say that there are several processes."),
        pytest.param({"SLURM_PROCID": "2"}, 0, "SLURM_PROCID=2 is ignored", marks=pytest.mark.slow),
        ({"WORLD_SIZE": "abc"}, 2, "The environment variable WORLD_SIZE must be a whole number. Got 'abc'."),
        ({"WORLD_SIZE": "2", "RANK": "0"}, 2, "2 processes were launched, and the run uses 1. Write `devices=`"),
    ],
)
def test_variables_of_launchers_that_nobody_launched(tmp_path, variables, code, text):
    done = subprocess.run(
        [sys.executable, "-m", "softprune", "train", "--smoke"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **variables},
    )
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr
    assert (tmp_path / "runs" / "digits-slats-1" / "report.json").exists() == (code == 0)


def test_wrong_names_and_complete_runs_do_not_wait_for_lightning(run):
    program = (
        "import sys; from softprune.cli import app; from typer.testing import CliRunner;"
        "assert CliRunner().invoke(app, ['train', 'digits/nonsense']).exit_code;"
        "assert CliRunner().invoke(app, ['train', 'digits/slats', 'network=nonsense']).exit_code;"
        "assert CliRunner().invoke(app, ['train', 'digits/slats', 'beta=0.1']).exit_code;"
        "assert CliRunner().invoke(app, ['train', 'digits/slats', 'nesterov=true', 'momentum=0']).exit_code;"
        "assert 'torch' not in sys.modules;"
        f"assert CliRunner().invoke(app, ['report', {str(run)!r}]).exit_code == 0;"
        f"assert CliRunner().invoke(app, ['report', {str(run / 'model.safetensors')!r}]).exit_code == 0;"
        "assert 'lightning' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_defect_is_not_taken_for_a_mistake_of_the_user(tmp_path, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise ValueError("our own")

    monkeypatch.setattr(softprune, "select", fail)
    with pytest.raises(ValueError, match="our own") as raised:
        call("train", *TINY, "--out", tmp_path / "run")
    assert not isinstance(raised.value, UserError)


def test_the_command_is_an_extra_and_its_own_failures_are_not(monkeypatch):
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'somewhere_inside'")

    monkeypatch.setattr(cli, "main", fail)
    with pytest.raises(ModuleNotFoundError, match="somewhere_inside"):
        __main__.main()
    monkeypatch.setitem(sys.modules, "softprune.cli", None)
    with pytest.raises(SystemExit, match=r"pip install 'softprune\[train\]'"):
        __main__.main()


def test_settings_are_completed():
    assert cli._recipe_or_setting("fin") == ["final="]
    assert cli._recipe_or_setting("digits/sl") == ["digits/slats"]
    assert cli._recipe_or_setting("method=str") == ["method=str", "method=str-gs"]


def test_names_from_files_do_not_reach_the_terminal_raw(tmp_path):
    path = tmp_path / "odd.safetensors"
    save_file({"\x1b[31m.weight": torch.ones(2, 2)}, path)
    code, output = call("report", path)
    assert code == 0
    assert "\\x1b[31m.weight" in output
    save_file({"bias": torch.ones(2)}, path)
    assert call("report", path) == (2, f"{path} holds no weights that could be pruned.")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["train", "digits/slatz"], "Did you mean"),
        (["train", "digits"], "There is no recipe 'digits'. There are digits/dense, digits/target, "),
        (["recipes", "slats"], "There is no recipe 'slats'. There are cifar10/slats, digits/slats, "),
        (["train", "--lr", "0.1"], "There is no option `--lr`. Write `lr=0.1`."),
        (["train", "digits/slats", "--final=0.1"], "There is no option `--final=0.1`. Write `final=0.1`."),
        (["frontier", "digits/slats", "--nonsense"], "There is no option `--nonsense`."),
        (["train", "digits/slats", "learning_rate=1"], "There is no setting 'learning_rate'"),
        (["train", "digits/slats", "epochs=many"], "`epochs` must be a whole number. Got 'many'."),
        (["train", "digits/slats", "epochs=0"], "`epochs` must be >= 1"),
        (["train", "digits/slats", "final=none"], "needs `final`: write `final=...`"),
        (["train", "digits/slats", "method=slat"], "Did you mean 'slats'?"),
        (
            ["train", "digits/slats", "batch=5000"],
            "`batch` must be at most the number of training images, 1347. Got 5000.",
        ),
        (["train", "digits/slats", "network=resnet"], "resnet"),
        (["train", "digits/slats", "data=/nowhere"], "/nowhere"),
        (["train", "digits/slats", "optimizer=lion"], "`optimizer` must be one of sgd, adam, adamw"),
        (["train", "vit_digits/dense", "precision=16-true"], "Cannot use `optimizer=adamw` with `precision=16-true`"),
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


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["digits/slats", "beta=0.1"],
            "The method 'slats' does not read `beta`. Write `beta=none`, or choose one that does: pgh.",
        ),
        (["digits/slats", "method=dense"], "does not read `final`"),
        (["digits/slats", "init=-8"], "that does: str, str-gs, gpo."),
        (["digits/str", "blend_decay=0.1"], "does not read `blend_decay`"),
        (["digits/dense", "threshold_decay=0.1"], "does not read `threshold_decay`"),
        (["digits/sine", "penalty=0.1"], "does not read `penalty`"),
        (["digits/str", "start=1"], "does not read `start`"),
        (["digits/dense", "start=1"], "does not read `start`"),
        (["digits/dense", "exclude=fc.*"], "does not read `exclude`"),
        (["digits/dense", "gradient=identity"], "does not read `gradient`"),
        (["digits/lats", "penalty=0.1"], "reads `final` or `penalty`, not both"),
        (["digits/lats", "final=none", "penalty=0.1", "target=0.9"], "reads `target` or `penalty`, not both"),
        (["digits/pgh-0.1", "target=0.9"], "Cannot use `target` with the method 'pgh'"),
        (["digits/target", "arrive=0"], "`arrive` must be > 0 and <= 1. Got 0.0."),
        (
            ["digits/slats", "arrive=0.5"],
            "`arrive` says when a target is reached. Write `target=...` too, or `arrive",
        ),
        (["digits/sine", "arrive=0.5"], "that does: target, gradual, gmp, slats, lats."),
        (["digits/target", "target=none"], "The method 'target' needs `target`: write `target=...`."),
        (["digits/target", "final=0.1"], "The method 'target' does not read `final`"),
        (["digits/slats", "power=0.5"], "`power` must be >= 1; inf is the hard threshold. Got 0.5."),
        (["digits/slats", "power=nan"], "`power` must be >= 1"),
        (["digits/gmp", "power=2"], "The method 'gmp' does not read `power`. Write `power=none`, or choose one that"),
        (["digits/str", "power=1"], "The method 'str' does not read `power`"),
        (["digits/target", "power=3", "gradient=subgradient"], "the derivative of the mapping has no bound"),
        (["digits/slats", "clip=0"], "`clip` must be > 0 and < 1e38. Got 0.0."),
        (["digits/slats", "beta2=0.99"], "The optimizer 'sgd' does not read `beta2`"),
        (
            ["digits/slats", "data=pystdlib"],
            "Cannot use the network 'digits_resnet' with `data=pystdlib`. This is because the network takes images, "
            "and the data are text. Choose other data, or one of the networks gpt, gpt_small.",
        ),
        (["gpt_small/dense", "data=digits"], "the network takes text, and the data are images."),
        (["gpt_small/dense", "data=idx:files"], "the network takes text, and the data are images."),
        (["digits/slats", "final=-1"], "`final` must be >= 0 and < 1e38. Got -1.0."),
        (["digits/slats", "final=inf"], "`final` must be >= 0 and < 1e38. Got inf."),
        (["digits/lats", "final=none", "penalty=nan"], "`penalty` must be >= 0 and < 1e38. Got nan."),
        (["digits/str", "init=nan"], "`init` must be > -1e38 and < 1e38. Got nan."),
        (["digits/str", "threshold_decay=-1"], "`threshold_decay` must be >= 0"),
        (["digits/gpo", "blend_decay=-1"], "`blend_decay` must be >= 0"),
        (["digits/pgh-0.1", "beta=1"], "`beta` must be > 0 and < 1. Got 1.0."),
        (["digits/slats", "momentum=1"], "`momentum` must be >= 0 and < 1"),
        (["digits/slats", "data=~nosuchuser/x"], "Got '~nosuchuser/x', which names a user that is not here."),
        (["digits/slats", "data=idx:~nosuchuser"], "which names a user that is not here."),
        (["digits/slats", "final=1e39"], "`final` must be >= 0 and < 1e38. Got 1e+39."),
        (["digits/slats", "lr=1e308"], "`lr` must be >= 0 and < 1e38. Got 1e+308."),
        (["digits/slats", f"epochs={10**26}"], "`epochs` must be >= 1 and < 2**31."),
        (["digits/slats", f"nodes={10**26}"], "`nodes` must be >= 1 and < 2**31."),
        (["digits/slats", "nodes=2"], "`nodes=2` needs a launcher that starts the command on every node."),
        (["digits/slats", "network=resnet"], "`network` must be one of digits_resnet, gpt,"),
        (["digits/slats", "lr=inf"], "`lr` must be >= 0 and < 1e38"),
        (["digits/lats", "lr=0"], "needs learning rates that sum to more than 0"),
        (["digits/slats", "label_smoothing=2"], "`label_smoothing` must be >= 0 and <= 1"),
        (["digits/slats", "nesterov=true", "momentum=0"], "`nesterov` needs `momentum` > 0"),
        (
            ["digits/slats", "optimizer=adam", "nesterov=true"],
            "The optimizer 'adam' does not read `nesterov`. Write `nesterov=false`, or choose one that does: sgd.",
        ),
        (["digits/slats", "optimizer=adamw", "momentum=0"], "The optimizer 'adamw' does not read `momentum`"),
        (["digits/slats", "checkpoint_minutes=-1"], "`checkpoint_minutes` must be >= 0"),
        (["digits/slats", "seed=4294967296"], "`seed` must be >= 0 and < 2**32"),
        (["digits/slats", "precision=17"], "Precision '17' is invalid"),
        (["digits/slats", "strategy=luck"], "`strategy='luck'`"),
        (["digits/slats", "accelerator=abacus"], "`accelerator='abacus'`"),
        (["digits/slats", "devices=5"], "`batch` must be divisible by the number of processes, 5. Got 64."),
        (["digits/slats", "devices=0"], "`devices` must be auto or a whole number >= 1. Got '0'."),
        (["digits/slats", "devices=0,1"], "`devices` must be auto or a whole number >= 1"),
        (["digits/slats", "exclude=nothing.*"], "pattern 'nothing.*' matches no trainable parameter"),
        (["digits/slats", "target=0.9999"], "`TargetSparsity` cannot reach 99.9900%"),
        (["digits/slats", "--out", "file"], "Cannot make the folder file: File exists. Choose another with `--out`."),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_made(words, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, output = call("train", *words)
    assert code == 2
    assert text in output
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["frontier", "digits/dense", "--final", "0.1"], "The method 'dense' does not read `final`"),
        (["frontier", "digits/str", "--final", "0.1"], "The method 'str' does not read `final`"),
        (["frontier", "digits/slats", "target=0.9", "--final", "0.1"], "Cannot walk along `final` with `target` set"),
        (["frontier", "digits/str", "target=0.9", "--final", "0.1"], "Cannot walk along `final` with `target` set"),
        (["frontier", "digits/dense", "--targets", "0.9"], "Cannot use `target` with the method 'dense'"),
        (["frontier", "digits/sine", "--targets", "0.9"], "Cannot use `target` with the method 'sine'"),
        (["frontier", "digits/slats", "--final", "0.1,-1"], "`final` must be >= 0 and < 1e38. Got -1.0."),
        (["frontier", "digits/slats", "--targets", "0.9,0.9999"], "cannot reach 99.9900%"),
        (["frontier", "digits/slats", "--final", "0.1", "--out", "file"], "Cannot make the folder file/final-0.1"),
        (["schedules", "--epochs", "0"], "Invalid value for '--epochs'"),
        (["schedules", "--steps", "0"], "Invalid value for '--steps'"),
        (["schedules", "--out", "file"], "Invalid value for '--out'"),
    ],
)
def test_frontiers_and_schedules_refuse_before_they_begin(words, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, output = call(*words)
    assert code == 2
    assert text in output
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_only_what_is_ours_is_said(tmp_path):
    """Nothing of Lightning's, whose loggers write where pytest does not look."""
    command = [sys.executable, "-W", "ignore", "-m", "softprune"]
    for words in (["train", *TINY, "epochs=1"], ["frontier", *TINY, "epochs=1", "--final", "0.1"]):
        done = subprocess.run([*command, *words], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert "available" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["train"], "Interrupted. Go on with: softprune train --resume {out}\n"),
        (
            ["frontier", "digits/slats", "--final", "0.1"],
            "Interrupted. Start the same command again to go on in {out}.\n",
        ),
    ],
)
def test_an_interruption_before_training_says_how_to_go_on(words, text, tmp_path, monkeypatch):
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("softprune.training.names.dataset", interrupt)
    code, output = call(*words, "--out", tmp_path / "out")
    assert code == 130
    assert output.endswith(text.format(out=tmp_path / "out"))


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "x/y"),
            1,
            "cannot read or write x/y: No space left on device.",
        ),
        (OSError(errno.EROFS, "Read-only file system"), 1, "cannot read or write a file: Read-only file system."),
    ],
)
def test_what_ends_a_run_outside_of_training(tmp_path, monkeypatch, capsys, error, code, text):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(Run, "train", fail)
    monkeypatch.setattr(sys, "argv", ["softprune", "train", "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == code
    assert text in "".join(capsys.readouterr())


@pytest.mark.parametrize(("before", "after"), [({}, "32"), ({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "1")])
def test_queues_to_a_gpu_are_opened_before_anybody_asks_for_one(monkeypatch, before, after):
    monkeypatch.setattr(os, "environ", before)
    found = []
    monkeypatch.setattr(cli, "app", lambda: found.append(os.environ["CUDA_DEVICE_MAX_CONNECTIONS"]))
    cli.main()
    assert found == [after]


def test_the_process_exits_with_a_sentence_and_a_code(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "softprune", "train", "nothing/here"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: There is no recipe 'nothing/here'.")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_run_goes_on_when_nobody_reads_its_lines(tmp_path):
    """`softprune train ... | head -1`."""
    command = [sys.executable, "-m", "softprune", "train", *TINY[:-1], "epochs=4", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        started.stdout.readline()
        started.stdout.close()
        assert started.wait(timeout=120) == 0, started.stderr.read()
    assert (tmp_path / "run" / "report.json").exists()
