"""Every example runs, in a small size, and shows what its docstring says."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"
TESTED = {"digits", "firm_threshold", "lasso", "with_accelerate", "with_huggingface", "with_lightning"}


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


def test_firm_threshold(capsys):
    example("firm_threshold").main()
    said = capsys.readouterr().out
    assert said.count("90.00% of 100 pruned parameters are zero") == 2
    soft, firm = (float(line.split()[-3]) for line in said.splitlines() if "too small" in line)
    assert (soft, firm) == pytest.approx((0.26, 0.02), abs=0.01)


def test_firm_threshold_minimises_its_objective():
    """Against a grid; w is the prox of the penalty, and the inverse leads back to w."""
    prox = example("firm_threshold").Firm(c=1.7)
    theta, d = torch.linspace(-3, 3, 301, dtype=torch.float64), 0.8
    grid = torch.linspace(-4, 4, 4001, dtype=torch.float64)[:, None]
    w = prox(theta, d)
    best = ((grid - theta) ** 2 / 2 + prox.regularizer(grid, d)).amin(0)
    assert ((w - theta) ** 2 / 2 + prox.regularizer(w, d) <= best + 1e-12).all()
    torch.testing.assert_close(prox(prox.inverse(w, d), d), w)
    assert torch.equal(w == 0, theta.abs() <= d)


def test_lasso(tmp_path, capsys):
    example("lasso").main(str(tmp_path / "lasso.png"))
    assert (tmp_path / "lasso.png").read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  max")[0] for line in lines] == [
        "alpha 0.02  3 zeros of 10, all the same: True",
        "alpha 0.1   6 zeros of 10, all the same: True",
        "alpha 0.3   8 zeros of 10, all the same: True",
    ]


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
    run(module, monkeypatch, "--steps", 300, "--target", 0.6, "--out", tmp_path)
    said = capsys.readouterr().out
    assert percentage(said, "pruned parameters") > 50
    assert percentage(said, "Test accuracy") > 90
    whole = weights(tmp_path / "model.safetensors")
    assert (whole["bert.pooler.dense.weight"] == 0).any()
    for name in ("bert.embeddings.position_embeddings.weight", "classifier.weight"):
        assert not (whole[name] == 0).any()
    shutil.rmtree(tmp_path / "checkpoint-300")
    run(module, monkeypatch, "--steps", 300, "--target", 0.6, "--out", tmp_path, "--resume")
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
