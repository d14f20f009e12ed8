"""Every example runs, in a small size, and shows what its docstring says."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"
TESTED = {"digits", "lasso", "schedules", "with_accelerate", "with_huggingface", "with_lightning"}


def example(name: str, needs: str = "matplotlib"):
    pytest.importorskip("sklearn")
    if needs == "matplotlib":
        pytest.importorskip("matplotlib").use("Agg")  # no screen
    pytest.importorskip(needs)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(module, monkeypatch, *arguments: object) -> None:
    """As from a shell."""
    monkeypatch.setattr(sys, "argv", [module.__file__, *map(str, arguments)])
    module.main()


def weights(path: Path) -> dict[str, torch.Tensor]:
    return pytest.importorskip("safetensors.torch").load_file(path)


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_no_example_is_forgotten():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED


def test_digits(monkeypatch, tmp_path, capsys):
    module = example("digits")
    run(module, monkeypatch, "--epochs", 4, "--out", tmp_path)
    assert (tmp_path / "digits.png").stat().st_size > 10_000
    said = capsys.readouterr().out
    assert percentage(said, "pruned parameters") > 50
    assert percentage(said, "Test accuracy") > 90


def test_schedules(monkeypatch, tmp_path):
    run(example("schedules"), monkeypatch, "--out", tmp_path / "schedules.png")
    assert (tmp_path / "schedules.png").stat().st_size > 10_000


def test_lasso(monkeypatch, tmp_path, capsys):
    example("lasso").main(str(tmp_path / "lasso.png"))
    assert (tmp_path / "lasso.png").stat().st_size > 10_000
    assert capsys.readouterr().out.count("all the same: True") == 3


@pytest.mark.filterwarnings("ignore")  # Lightning's advice
def test_with_lightning(monkeypatch, tmp_path, capsys):
    module = example("with_lightning", "lightning")
    run(module, monkeypatch, "--epochs", 4, "--out", tmp_path)
    said = capsys.readouterr().out
    assert percentage(said, "pruned parameters") > 60
    assert percentage(said, "Test accuracy") > 90
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    report, _ = module.train(5, tmp_path, resume=checkpoint)
    assert report.step == 5 * 21
    assert report.sparsity > 0.6


@pytest.mark.filterwarnings("ignore")  # the Trainer's advice
def test_with_huggingface(monkeypatch, tmp_path, capsys):
    module = example("with_huggingface", "transformers")
    run(module, monkeypatch, "--steps", 300, "--final", 0.05, "--out", tmp_path)
    said = capsys.readouterr().out
    assert percentage(said, "pruned parameters") > 50
    assert percentage(said, "Test accuracy") > 90
    whole = weights(tmp_path / "model.safetensors")
    assert (whole["bert.pooler.dense.weight"] == 0).any()
    for name in ("bert.embeddings.position_embeddings.weight", "classifier.weight"):
        assert not (whole[name] == 0).any()
    shutil.rmtree(tmp_path / "checkpoint-300")
    run(module, monkeypatch, "--steps", 300, "--final", 0.05, "--out", tmp_path, "--resume")
    assert_same(weights(tmp_path / "model.safetensors"), whole)


@pytest.mark.filterwarnings("ignore")  # Accelerate's advice
def test_with_accelerate(monkeypatch, tmp_path, capsys):
    module = example("with_accelerate", "accelerate")
    run(module, monkeypatch, "--epochs", 30, "--out", tmp_path)
    said = capsys.readouterr().out
    assert percentage(said, "pruned parameters") > 90
    assert percentage(said, "Test accuracy") > 94
    run(module, monkeypatch, "--epochs", 30, "--out", tmp_path / "again", "--resume", tmp_path / "epoch-20")
    assert_same(weights(tmp_path / "again/model.safetensors"), weights(tmp_path / "model.safetensors"))


def percentage(said: str, about: str) -> float:
    """The first percentage in the line of the output that speaks of this."""
    (line,) = [line for line in said.splitlines() if about in line]
    return float(next(word.rstrip("%.") for word in line.split() if "%" in word))
