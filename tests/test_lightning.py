"""PruningCallback: the plain loop's numbers, logs, a report, checkpoints that resume, and no trace of a failed fit."""

import csv
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import softprune as sp
from oracles import batch, loss_of, network

lightning = pytest.importorskip("lightning")
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402
from lightning.pytorch.tuner import Tuner  # noqa: E402

from softprune.lightning import PruningCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and logging

EPOCH, EPOCHS = 6, 2
STEPS = EPOCH * EPOCHS


class Module(lightning.LightningModule):
    """Somebody's own, without a word about pruning."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.fail_at: int | None = None

    def training_step(self, item, index):
        if self.global_step == self.fail_at:
            raise RuntimeError("Out of memory.")
        return loss_of(self.network, index)  # resumed, Lightning counts on in the epoch but gives its first items again

    def configure_optimizers(self):
        return torch.optim.AdamW(self.network.parameters(), lr=0.03)


class Own(Module):
    """Builds its own pruner, with a trained threshold."""

    def configure_optimizers(self):
        params = sp.select(self.network)
        threshold = sp.STR(params, init=-2.0)
        optimizer = torch.optim.AdamW([*self.network.parameters(), *threshold.parameters()], lr=0.03)
        self.pruner = sp.Pruner(params, optimizer, threshold=threshold)
        return optimizer


class Late(Module):
    """Builds its own pruner after the callback's ``on_fit_start``."""

    def on_fit_start(self):
        self.pruner = sp.Pruner(sp.select(self.network), self.optimizers(), threshold=sp.SLATS(0.2, STEPS))


class Two(Module):
    automatic_optimization = False

    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (self.network[0], self.network[2])]


class Endless(IterableDataset):
    def __iter__(self):
        return map(batch, range(10**6))


def slats(params, steps):
    return sp.SLATS(0.2, steps)


def trainer(tmp_path, *callbacks, **options):
    options = {"max_epochs": EPOCHS, "logger": False, "enable_checkpointing": False, **options}
    return lightning.Trainer(
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=list(callbacks),
        **options,
    )


def batches():
    return DataLoader([batch(step) for step in range(EPOCH)], batch_size=None)


def fitted(tmp_path, callback, module=None, checkpoint=None, **options):
    module = module or Module()
    trainer(tmp_path, callback, **options).fit(module, batches(), ckpt_path=checkpoint)
    return module


def plain(accumulate: int = 1) -> tuple[sp.Pruner, nn.Module]:
    """The loop that a user would write."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.SLATS(0.2, STEPS // accumulate))
    for step in range(STEPS):
        (loss_of(model, step % EPOCH) / accumulate).backward()
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return pruner, model


def assert_same(one: nn.Module, other: nn.Module) -> None:
    for (name, p), q in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q), name


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("given", ["build", "threshold"])
def test_it_gives_the_plain_run(tmp_path, given, accumulate):
    threshold = sp.SLATS(0.2, STEPS // accumulate)
    callback = PruningCallback(build=slats) if given == "build" else PruningCallback(threshold)
    module = fitted(tmp_path, callback, accumulate_grad_batches=accumulate)
    pruner, model = plain(accumulate)
    assert callback.pruner.source.schedule == threshold
    assert callback.pruner.step == STEPS // accumulate
    assert_same(module.network, model)
    assert callback.report.zeros == sp.summarize(pruner).zeros > 0


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


def test_it_resumes_in_the_middle_of_an_epoch(tmp_path):
    saver = ModelCheckpoint(tmp_path, every_n_train_steps=4, save_top_k=-1, filename="{step}")
    whole = Module()
    trainer(tmp_path, PruningCallback(build=slats), saver, enable_checkpointing=True).fit(whole, batches())
    callback = PruningCallback(build=slats)
    resumed = fitted(tmp_path, callback, checkpoint=tmp_path / "step=4.ckpt")
    assert callback.pruner.step == STEPS
    assert_same(resumed, whole)
    assert_same(resumed.network, plain()[1])


@pytest.mark.parametrize("saved", ["by ModelCheckpoint, last", "after fit"])
def test_a_checkpoint_of_the_end_resumes(tmp_path, saved):
    """A run cut short, here after one epoch of two."""
    whole = PruningCallback(sp.SLATS(0.2, STEPS))
    last = ModelCheckpoint(tmp_path, save_last=True, save_top_k=0, every_n_epochs=100)
    first = trainer(tmp_path, whole, last, max_epochs=1, enable_checkpointing=True)
    module = Module()
    first.fit(module, batches())
    if saved == "after fit":
        for p in module.parameters():
            p.data = p.data.clone()  # as after training on a GPU, from which Lightning moves the module away
        first.save_checkpoint(tmp_path / "last.ckpt")
    resumed = fitted(tmp_path, PruningCallback(sp.SLATS(0.2, STEPS)), checkpoint=tmp_path / "last.ckpt")
    assert_same(resumed.network, plain()[1])


def test_a_module_can_be_fitted_again(tmp_path):
    """By the same callback, by another while the first lives, and after a fit that failed; checkpoints included."""
    callback, module = PruningCallback(build=slats), Module()
    fitted(tmp_path, callback, module)
    first = callback.pruner
    fitted(tmp_path, callback, module)
    assert first.theta == {}
    assert callback.pruner.step == STEPS

    module.fail_at = 3
    with pytest.raises(RuntimeError, match="Out of memory"):
        fitted(tmp_path, callback, module)
    assert callback.report is None
    module.fail_at = None
    module.network.load_state_dict(network().state_dict())
    another = PruningCallback(build=slats)
    fitted(tmp_path, another, module)
    assert callback.pruner.theta == {}
    assert_same(module.network, plain()[1])


def test_a_fit_that_failed_can_be_saved_and_resumed(tmp_path):
    module = Module()
    module.fail_at = 5
    saver = ModelCheckpoint(tmp_path, save_on_exception=True, filename="{step}")
    broken = trainer(tmp_path, PruningCallback(build=slats), saver, enable_checkpointing=True)
    with pytest.raises(RuntimeError, match="Out of memory"):
        broken.fit(module, batches())
    module.fail_at = None
    fitted(tmp_path, PruningCallback(build=slats), module, checkpoint=tmp_path / "step=5.ckpt")
    assert_same(module.network, plain()[1])


@pytest.mark.parametrize("kind", [Own, Late])
def test_without_a_threshold_it_follows_the_modules_pruner(tmp_path, kind):
    callback = PruningCallback()
    module = fitted(tmp_path, callback, kind())
    assert callback.pruner is module.pruner
    assert callback.report.step == module.pruner.step == STEPS
    assert module.pruner.theta  # is the module's to detach


@pytest.mark.parametrize("kind", [Own, Late])
def test_a_module_that_builds_its_pruner_can_be_fitted_again(tmp_path, kind):
    callback, module = PruningCallback(), kind()
    again = trainer(tmp_path, callback)
    again.fit(module, batches())
    first = module.pruner
    again.fit_loop.epoch_progress.reset()
    again.fit(module, batches())
    assert first.theta == {}
    assert callback.pruner is module.pruner is not first


def test_the_tuner_leaves_no_pruner_behind(tmp_path):
    callback, module = PruningCallback(), Own()
    module.lr = 0.03
    tuned = trainer(tmp_path, callback, enable_checkpointing=True)
    Tuner(tuned).lr_find(module, batches(), num_training=4)
    tuned.fit(module, batches())
    assert callback.report.step == STEPS


def test_a_pruner_of_before_the_fit_stays(tmp_path):
    class Early(Module):
        def __init__(self) -> None:
            super().__init__()
            self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=0.03)
            self.pruner = sp.Pruner(sp.select(self.network), self.optimizer, threshold=sp.SLATS(0.2, 2 * STEPS))

        def configure_optimizers(self):
            return self.optimizer

    callback, module = PruningCallback(), Early()
    for _ in range(2):
        fitted(tmp_path, callback, module)
    assert module.pruner.step == 2 * STEPS
    assert module.pruner.threshold == 0.2


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
        assert (first.pruner.threshold, second.pruner.threshold) == (0.1, 0.2)


# -- refusals ----------------------------------------------------------------------------------------------------


def test_threshold_and_build_are_refused():
    with pytest.raises(ValueError, match="takes `threshold` or `build`, not both"):
        PruningCallback(sp.Constant(0.1), build=slats)


def test_several_optimizers_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"needs one optimizer. The module configures 2: build a .* instead"):
        fitted(tmp_path, PruningCallback(build=slats), Two())


def test_no_threshold_and_no_pruner_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"needs a `threshold`, a `build`, or .*`Module.pruner` is None"):
        fitted(tmp_path, PruningCallback())


def test_a_trained_threshold_outside_the_optimizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="The optimizer does not hold the parameters of `STR`"):
        fitted(tmp_path, PruningCallback(build=lambda params, steps: sp.STR(params, init=-2.0)))


def test_a_pattern_without_a_match_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'head\.\*' matches no trainable parameter"):
        fitted(tmp_path, PruningCallback(build=slats, exclude=["head.*"]))


def test_steps_that_the_module_makes_are_not_known(tmp_path):
    module = Module()
    module.automatic_optimization = False
    with pytest.raises(ValueError, match=r"does not know here \(the module steps the optimizer itself\)"):
        fitted(tmp_path, PruningCallback(build=slats), module)


@pytest.mark.parametrize("case", ["endless data", "endless training", "accumulation varies"])
def test_an_unknown_number_of_steps_is_refused(tmp_path, case):
    callbacks = [GradientAccumulationScheduler({1: 2})] if case == "accumulation varies" else []
    data = DataLoader(Endless(), batch_size=None) if case == "endless data" else batches()
    epochs = -1 if case == "endless training" else EPOCHS
    with pytest.raises(ValueError, match=r"needs the number of training steps.*Write `Trainer\(max_steps=...\)`"):
        trainer(tmp_path, PruningCallback(build=slats), *callbacks, max_epochs=epochs).fit(Module(), data)
    known = PruningCallback(build=slats)
    trainer(tmp_path, known, *callbacks, max_epochs=epochs, max_steps=4).fit(Module(), data)
    assert known.pruner.source.schedule == sp.SLATS(0.2, 4)
