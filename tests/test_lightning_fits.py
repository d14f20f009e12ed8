"""PruningCallback over several fits: checkpoints that resume, and no trace of a fit that failed or was tuned."""

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.tuner import Tuner

import softprune as sp
from lightning_modules import STEPS, Late, Module, Own, batches, fitted, plain, slats, trainer
from oracles import assert_same, network
from softprune.lightning import PruningCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and logging


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


@pytest.mark.parametrize(("kind", "method"), [(Own, "str"), (Late, "slats")])
def test_a_checkpoint_without_a_callback_resumes(tmp_path, kind, method):
    """The optimizer's state says all."""
    half = trainer(tmp_path, max_epochs=1)
    half.fit(kind(), batches())
    half.save_checkpoint(tmp_path / "half.ckpt")
    resumed = kind()
    trainer(tmp_path).fit(resumed, batches(), ckpt_path=tmp_path / "half.ckpt")
    assert_same(resumed.pruner, plain(method=method)[0])


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
    assert set(module.pruner.threshold.values()) == {0.2}
