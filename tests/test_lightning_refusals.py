"""What PruningCallback refuses."""

import pytest
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch.utils.data import DataLoader

import softprune as sp
from lightning_modules import EPOCHS, Endless, Module, Two, batches, fitted, slats, trainer
from softprune.lightning import PruningCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and logging


def test_threshold_and_build_are_refused():
    with pytest.raises(ValueError, match=r"takes one of `target`, `threshold` and `build`\. Leave the others"):
        PruningCallback(sp.Constant(0.1), build=slats)


def test_several_optimizers_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"needs one optimizer. The module configures 2: build a .* instead"):
        fitted(tmp_path, PruningCallback(build=slats), Two())


def test_no_threshold_and_no_pruner_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"needs a `target`, a `threshold`, a `build`, or .*`Module.pruner` is None"):
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
    assert known.pruner.step == 4
    assert set(known.pruner.threshold.values()) == {0.2}
