"""Runs that read text: what they report, and that they go on where they were, with the same text."""

import json
import os
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from run_helpers import At, train
from softprune import data, recipes
from softprune.cli import app
from softprune.data.windows import windowed
from softprune.errors import ConfigError
from softprune.training import history
from softprune.training.data_card import DataCard, TextCard
from softprune.training.run import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's and TensorBoard's own

SHORT = replace(recipes.get("gpt_small/target").smoke(), epochs=3, batch=8)  # 12 steps


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Run:
    run = Run.create(tmp_path_factory.mktemp("runs") / "complete", SHORT)
    train(run)
    return run


def test_the_loss_is_what_is_reported_first(complete):
    outcome = complete.outcome
    assert outcome["sparsity"] == pytest.approx(0.9, abs=1e-3)
    loss = outcome["figures"]["validation loss"]
    assert 1 < loss < 5
    told = (
        f"Validation loss {loss:.4f} (accuracy {outcome['accuracy']:.2%}) at 90.00% sparsity (target 90.00%) after 12"
    )
    assert told in (complete.folder / "report.md").read_text(encoding="utf-8")
    rows = [row for row in history.read(complete.folder / "history.jsonl") if "val_loss" in row]
    assert [row["step"] for row in rows] == [4, 8, 12]
    assert rows[-1]["val_loss"] == pytest.approx(loss)
    for command in ("report", "eval"):
        answer = CliRunner().invoke(app, [command, str(complete.folder)]).output
        assert f"validation loss: {loss:,.4g}" in answer
    assert "on 33 windows." in answer


def test_the_loss_is_the_mean_over_all_tokens(complete):
    """Measured here again, by hand."""
    from softprune.models import gpt_small

    network = gpt_small(context=16)
    network.load_state_dict(load_file(complete.folder / "model.safetensors"))
    samples = data.synthetic_text(context=16, windows=32).val
    ((x, y),) = samples.loader(batch=33, train=False)
    with torch.no_grad():
        probabilities = network(x).softmax(-1)
    losses = -probabilities.gather(-1, y[..., None]).log()
    assert losses.shape == (33, 16, 1)
    measured = complete.evaluate(["batch=10"])  # of which the last batch has 3
    assert measured.loss == pytest.approx(losses.mean().item(), rel=1e-5)
    assert measured.accuracy == pytest.approx((probabilities.argmax(-1) == y).float().mean().item())


def test_a_run_stopped_within_an_epoch_ends_with_the_same_weights(complete, tmp_path):
    run = Run.create(tmp_path / "run", SHORT)
    assert train(run, [At(5, lambda: os.kill(os.getpid(), signal.SIGTERM))]).stopped_by == signal.SIGTERM
    train(run)
    ours, theirs = (load_file(one.folder / "model.safetensors") for one in (run, complete))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_run_goes_on_with_the_text_that_it_began_with(tmp_path):
    def text(letter: str, length: int = 4000) -> data.Dataset:
        return windowed((letter * length).encode(), 16, "the text", windows=32)

    run = Run.create(tmp_path / "run", SHORT)
    stopped = run.train(lambda _: None, callbacks=[At(5, lambda: os.kill(os.getpid(), signal.SIGTERM))], data=text("a"))
    assert stopped.stopped_by == signal.SIGTERM
    card = json.loads((run.folder / "data.json").read_text())
    assert (card["context"], card["windows"], card["train_bytes"], card["val_bytes"]) == (16, 32, 3600, 400)
    with pytest.raises(ConfigError, match="it had bytes to train on 3600, and has 4500"):
        run.train(lambda _: None, data=text("a", 5000))
    with pytest.raises(ConfigError, match="it had the sha256 sum"):
        run.train(lambda _: None, data=text("b"))
    with pytest.raises(ConfigError, match=r"data.json: `classes` is missing, unknown or of the wrong type"):
        run.train(lambda _: None, data=data.digits())
    said: list[str] = []
    run.train(said.append, data=text("a"))
    assert said[0] == (
        "The text has 3,600 bytes to train on and 400 to validate with. An epoch is 32 windows of 16 bytes."
    )
    assert said[1].startswith("Resuming from")


def test_any_text_will_do_to_evaluate(complete, tmp_path):
    (tmp_path / "text.py").write_text("print('hello')\n" * 200)
    answer = CliRunner().invoke(app, ["eval", str(complete.folder), f"data=text:{tmp_path}"])
    assert answer.exception is not None  # 64 bytes in a window, and the smoke test had 16
    assert "does not fit the network 'gpt_small'" in str(answer.exception)
    card = TextCard.of(data.text(tmp_path, 16))
    assert card.evaluated_on(other := data.text(tmp_path / "text.py", 16), "there") is other
    assert DataCard.of(other) == card


def test_a_frontier_of_text_has_the_loss(tmp_path):
    words = [
        "frontier",
        "gpt_small/target",
        "--smoke",
        "epochs=1",
        "warmup=0",
        "--targets",
        "0.5,0.8",
        "--out",
        str(tmp_path),
    ]
    answer = CliRunner().invoke(app, words)
    assert "| target | sparsity | accuracy | validation loss |" in answer.output
    assert (tmp_path / "validation-loss.png").exists()
