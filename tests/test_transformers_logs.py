"""What PruningCallback tells the Trainer's loggers, which model is the best, and what it refuses."""

import importlib
import sys

import pytest
import transformers

import softprune as sp
from oracles import refused
from softprune.transformers import PruningCallback
from trainer_runs import HALF, STEPS, trained, trainer

pytestmark = pytest.mark.filterwarnings("ignore")  # the Trainer's advice


class Logger(transformers.TrainerCallback):
    """As the Trainer's own: before the callbacks of users."""

    def __init__(self):
        self.seen, self.begun = [], 0

    def on_train_begin(self, *_, **__):
        self.begun += 1

    def on_log(self, args, state, control, logs, **_):
        self.seen.append({**logs, "step": state.global_step})


class Looks(transformers.TrainerCallback):
    """How sparse the model is that is evaluated."""

    def __init__(self):
        self.sparsities = []

    def on_evaluate(self, args, state, control, model, **_):
        self.sparsities.append(sp.summarize(model).sparsity)


def test_every_log_of_the_training_tells_the_sparsity(tmp_path):
    logger, looks, schedule = Logger(), Looks(), sp.SLATS(0.03, STEPS)
    run = trainer(tmp_path, logger, PruningCallback(schedule), looks, eval_strategy="steps", eval_steps=HALF)
    run.train()
    history = run.state.log_history
    assert [row["step"] for row in history] == [4, 6, 8, 12, 12, 12]  # every fourth, two evaluations, the summary
    assert [row["threshold"] for row in history] == [schedule(row["step"]) for row in history]
    assert all("penalty" in row for row in history)
    assert logger.seen == history
    assert [row["sparsity"] for row in history if "eval_loss" in row] == looks.sparsities
    assert 0 < looks.sparsities[0] < looks.sparsities[1] == history[-1]["sparsity"]
    assert "sparsity" not in run.evaluate()  # training is over


def test_two_callbacks_log_under_two_names_and_resume(tmp_path):
    """And every other callback is called once, though the order changes."""
    reports = []
    for resume in (False, str(tmp_path / f"checkpoint-{HALF}")):
        logger = Logger()
        both = [PruningCallback(target=target, include=[f"*.{i}.*"]) for i, target in enumerate((0.5, 0.8))]
        run = trainer(tmp_path, logger, *both)
        run.train(resume_from_checkpoint=resume)
        last = run.state.log_history[-1]
        assert (last["sparsity"], last["sparsity_2"]) == tuple(callback.report.sparsity for callback in both)
        assert logger.begun == 1
        reports.append([callback.report for callback in both])
    assert [report.sparsity for report in reports[0]] == pytest.approx([0.5, 0.8], abs=1e-3)
    assert reports[0] == reports[1]
    run.train()
    assert logger.begun == 2
    assert "sparsity_2" in run.state.log_history[-1]


def scored(out, threshold, scores, *callbacks, **options):
    """Evaluated and saved at every third step, with these scores; the weights do not move."""
    scores = iter(scores)
    callback = PruningCallback(threshold)
    every = {"eval_strategy": "steps", "eval_steps": 3, "save_steps": 3, "learning_rate": 0.0}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "score", "greater_is_better": True}
    metrics = lambda _: {"score": next(scores)}  # noqa: E731
    run = trainer(out, callback, *callbacks, metrics=metrics, **every, **best, **options)
    run.train()
    return run, callback


def best(run: transformers.Trainer) -> int:
    """The step of the best model."""
    return int(run.state.best_model_checkpoint.rpartition("-")[2])


def arrives(step: int) -> float:
    return 0.004 * min(step, HALF)


def test_the_best_model_is_the_best_of_the_sparsest(tmp_path):
    run, callback = scored(tmp_path, arrives, [9.0, 5.0, 8.0, 7.0])
    assert best(run) == 9  # not 3, before all weights had gone
    run, growing = scored(tmp_path, lambda step: 0.002 * step, [9.0, 8.0, 7.0, 6.0])
    assert best(run) == STEPS
    assert callback.report.sparsity == growing.report.sparsity > 0.5
    assert sp.summarize(run.model).sparsity == growing.report.sparsity


def test_training_does_not_stop_early_while_sparsity_grows(tmp_path):
    run, _ = scored(tmp_path, arrives, [9.0, 8.0, 7.0, 6.0], transformers.EarlyStoppingCallback(1))
    assert run.state.global_step == 9  # one evaluation after the best of the sparsest
    assert best(run) == HALF


class NotAtTheEnd(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_evaluate &= state.global_step < STEPS


def test_a_best_model_that_is_less_sparse_than_the_last_is_told(tmp_path):
    with pytest.warns(UserWarning, match=r"^The best model has a sparsity of \d+\.\d\d%; training ended with ") as told:
        run, callback = scored(tmp_path, lambda step: 0.002 * step, [9.0, 8.0, 7.0], NotAtTheEnd())
    assert best(run) == 9
    assert sp.summarize(run.model).sparsity == callback.report.sparsity
    assert callback.report.sparsity < max(row["sparsity"] for row in run.state.log_history)
    assert not any("Pruning ends" in str(warning.message) for warning in told)


def test_stopping_early_is_told(tmp_path):
    class Stops(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == HALF

    with pytest.warns(UserWarning, match=f"^Pruning ends after {HALF} of {STEPS} steps, before its target"):
        trainer(tmp_path, PruningCallback(target=0.9), Stops()).train()


def test_two_callbacks_do_not_prune_the_same_weights(tmp_path):
    callbacks = [PruningCallback(target=0.9, verbose=False), PruningCallback(target=0.5, verbose=False)]
    with pytest.raises(ValueError, match="is pruned already"):
        trainer(tmp_path, *callbacks).train()


def test_one_of_target_threshold_and_build_is_given():
    text = "`PruningCallback` takes a `target`, a `threshold` or a `build`. Give one of them."
    refused(PruningCallback, text)
    refused(lambda: PruningCallback(sp.Constant(0.1), target=0.9), text)
    refused(lambda: PruningCallback(0.9), "Got 0.9: write `PruningCallback(target=0.9)` for a sparsity.", TypeError)
    refused(lambda: PruningCallback(target=90), "must be > 0 and < 1. Got 90.")


def test_a_checkpoint_without_hidden_weights_is_refused(tmp_path):
    """One of a run without pruning, and one without the optimizer's state."""
    trainer(tmp_path / "dense").train()
    trained(tmp_path / "model", PruningCallback(target=0.5), save_only_model=True)
    for kind in ("dense", "model"):
        with pytest.raises(
            ValueError, match=r"^Cannot resume from this checkpoint\. This is because .* train it anew\."
        ):
            trained(tmp_path / kind, PruningCallback(target=0.5), resume=str(tmp_path / kind / f"checkpoint-{HALF}"))


def test_a_trained_threshold_outside_the_optimizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="The optimizer does not hold the parameters of `STR`"):
        trained(tmp_path, PruningCallback(build=lambda params, steps: sp.STR(params, init=-2.0)))


def test_learning_rates_that_are_not_known_in_advance_are_read_as_they_come(tmp_path):
    callback = PruningCallback(target=0.8)
    plateau = {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps", "eval_steps": HALF}
    trained(tmp_path, callback, **plateau, warmup_steps=0)
    assert callback.report.sparsity == pytest.approx(0.8, abs=1e-3)


def test_without_the_library_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "softprune.transformers")
    text = "needs Transformers, which is not installed. Write `pip install 'softprune[transformers]'`."
    refused(lambda: importlib.import_module("softprune.transformers"), text, ImportError)
