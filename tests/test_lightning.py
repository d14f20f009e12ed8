"""PruningCallback: the plain loop's numbers, logs, a report."""

import csv
import math

import lightning
import pytest
from lightning.pytorch.loggers import CSVLogger
from torch.optim.lr_scheduler import LinearLR

import softprune as sp
from lightning_modules import (
    STEPS,
    Late,
    Module,
    Own,
    batches,
    fitted,
    plain,
    slats,
    trainer,
)
from oracles import assert_same, batch
from softprune.lightning import PruningCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and logging


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("given", ["build", "threshold"])
def test_it_gives_the_plain_run(tmp_path, given, accumulate):
    threshold = sp.SLATS(0.2, STEPS // accumulate)
    callback = PruningCallback(build=slats) if given == "build" else PruningCallback(threshold)
    module = fitted(tmp_path, callback, accumulate_grad_batches=accumulate)
    pruner, model = plain(accumulate)
    assert set(callback.pruner.threshold.values()) == {0.2}
    assert callback.pruner.step == STEPS // accumulate
    assert_same(module.network, model)
    assert callback.report.zeros == sp.summarize(pruner).zeros > 0


@pytest.mark.parametrize("prox", [None, sp.SoftThreshold()])
def test_a_target_is_enough(tmp_path, prox):
    callback = PruningCallback(target=0.5, prox=prox)
    fitted(tmp_path, callback)
    assert callback.pruner.prox == (prox or sp.TargetSparsity.prox)
    assert callback.report.sparsity == pytest.approx(0.5, abs=0.02)


def test_groups_are_given_or_found_in_the_module(tmp_path):
    class Forward(Module):
        def forward(self, x):
            return self.network(x)

    example = batch(0)[0].double()
    early = Forward()
    for module, groups in ((early, sp.Channels(early, example)), (Forward(), lambda m: sp.Channels(m, example))):
        callback = PruningCallback(target=0.4, groups=groups, verbose=False)
        fitted(tmp_path, callback, module)
        (place,) = callback.report.places
        assert 0 < place.dead < place.groups
        assert "network.0.bias" in callback.pruner.params  # which dies with its neuron
    assert_same(module.network, early.network)


def test_a_scheduler_that_steps_with_the_optimizer_is_played_forward(tmp_path):
    class Scheduled(Module):
        def configure_optimizers(self):
            optimizer = super().configure_optimizers()
            scheduler = LinearLR(optimizer, 1.0, 0.1, total_iters=STEPS)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}

    known = []
    for interval in ("step", "epoch"):
        callback, module = PruningCallback(target=0.5, verbose=False), Scheduled()
        module.interval = interval
        trainer(tmp_path, callback).fit(module, batches())
        known.append(callback.pruner.rule.clock.future is not None)
    assert known == [True, False]


def test_patterns_choose_what_is_pruned(tmp_path):
    callback = PruningCallback(sp.Constant(0.1), exclude=["network.2.*"])
    module = fitted(tmp_path, callback)
    assert list(callback.pruner.params) == ["network.0.weight"]
    assert (module.network[0].weight == 0).any()
    assert not (module.network[2].weight == 0).any()


def test_it_prints_a_report(tmp_path, capsys):
    callback = PruningCallback(build=slats)
    fitted(tmp_path, callback)
    assert str(callback.report) in capsys.readouterr().out
    fitted(tmp_path, PruningCallback(build=slats, verbose=False))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("accumulate", [1, 2])
def test_it_logs_when_loggers_listen(tmp_path, accumulate):
    callback = PruningCallback(build=slats)
    fitted(
        tmp_path,
        callback,
        logger=CSVLogger(tmp_path, name="", version=""),
        log_every_n_steps=2,
        accumulate_grad_batches=accumulate,
    )
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    steps = STEPS // accumulate
    assert [int(row["step"]) + 1 for row in rows] == list(range(2, steps + 1, 2))
    schedule = sp.SLATS(0.2, steps)
    for row in rows:
        step = int(row["step"]) + 1
        assert math.isclose(float(row["threshold"]), schedule(step), rel_tol=1e-6)
        assert math.isclose(float(row["penalty"]), (schedule(step) - schedule(step - 1)) / 0.03, rel_tol=1e-5)
    assert math.isclose(float(rows[-1]["sparsity"]), callback.report.sparsity, rel_tol=1e-6)


@pytest.mark.parametrize("length", [{}, {"max_steps": STEPS}])
def test_the_last_step_is_logged(tmp_path, length):
    callback, logger = PruningCallback(build=slats), CSVLogger(tmp_path, name="", version="")
    fitted(tmp_path, callback, logger=logger, log_every_n_steps=5, **length)
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    assert [int(row["step"]) + 1 for row in rows] == [5, 10, STEPS]
    assert float(rows[-1]["threshold"]) == pytest.approx(0.2)
    assert float(rows[-1]["sparsity"]) == pytest.approx(callback.report.sparsity)


def test_the_progress_bar_shows_it_from_the_first_step(tmp_path):
    shown = []

    class Look(lightning.Callback):
        def on_train_batch_start(self, trainer, *_):
            shown.append(set(trainer.progress_bar_metrics))

    trainer(tmp_path, PruningCallback(build=slats), Look()).fit(Module(), batches())
    assert shown == [set()] + [{"sparsity", "threshold", "penalty"}] * (STEPS - 1)


@pytest.mark.parametrize("every", [None, 0])
def test_logging_may_be_off(tmp_path, every):
    callback = PruningCallback(build=slats)
    assert_same(fitted(tmp_path, callback, log_every_n_steps=every).network, plain()[1])


@pytest.mark.parametrize("kind", [Own, Late])
def test_without_a_threshold_it_follows_the_modules_pruner(tmp_path, kind):
    callback = PruningCallback()
    module = fitted(tmp_path, callback, kind())
    assert callback.pruner is module.pruner
    assert callback.report.step == module.pruner.step == STEPS
    assert module.pruner.theta  # is the module's to detach


@pytest.mark.parametrize(("kind", "method"), [(Own, "str"), (Late, "slats")])
def test_a_module_that_builds_its_pruner_needs_no_callback(tmp_path, kind, method):
    module = kind()
    trainer(tmp_path).fit(module, batches())
    assert_same(module.pruner, plain(method=method)[0])
    assert module.pruner.sparsity() > 0


def test_two_callbacks_log_under_two_names(tmp_path):
    first = PruningCallback(sp.Constant(0.1), include=["network.0.*"])
    second = PruningCallback(sp.Constant(0.3), include=["network.2.*"])
    logger = CSVLogger(tmp_path, name="", version="")
    trainer(tmp_path, first, second, logger=logger, log_every_n_steps=1).fit(Module(), batches())
    row = list(csv.DictReader((tmp_path / "metrics.csv").open()))[-1]
    assert [float(row[name]) for name in ("threshold", "threshold_2")] == pytest.approx([0.1, 0.3])
    assert float(row["sparsity_2"]) == pytest.approx(second.report.sparsity)


def test_two_callbacks_share_a_module(tmp_path):
    first = PruningCallback(sp.Constant(0.1), include=["network.0.*"])
    second = PruningCallback(build=slats, include=["network.2.*"])
    module = Module()
    for _ in range(2):
        trainer(tmp_path, first, second).fit(module, batches())
        assert first.pruner.threshold == {"network.0.weight": 0.1}
        assert second.pruner.threshold == {"network.2.weight": 0.2}
