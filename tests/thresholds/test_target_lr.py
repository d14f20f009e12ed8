"""A target follows the learning rate: as a scheduler foretells it, as it turns out, and as steps are skipped."""

import math

import pytest
from accelerate import Accelerator
from torch.optim import SGD
from torch.optim import lr_scheduler as schedulers

import softprune as sp
from digit_classifier import OPTIMIZERS, SCHEDULES, STEPS, classifier, loss, train


@pytest.mark.parametrize("other", [0.0, 0.001, 1.0])
def test_the_learning_rate_is_that_of_the_pruned(other):
    """Other param groups may learn at other rates, and come first."""
    model = classifier()
    pruned = sp.select(model)
    rest = [p for name, p in model.named_parameters() if name not in pruned]
    opt = SGD([{"params": rest, "lr": other}, {"params": list(pruned.values()), "lr": 0.1}], momentum=0.9)
    scheduler = schedulers.CosineAnnealingLR(opt, STEPS)
    pruner = sp.Pruner(pruned, opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
    d = train(model, opt, scheduler, pruner, STEPS)
    assert pruner.sparsity() == pytest.approx(0.9, abs=1e-3)
    assert d[-STEPS // 20] == pytest.approx(d[-1], rel=0.03)
    assert 0.3 < d[STEPS // 2] / d[-1] < 1


def test_a_scheduler_may_be_stepped_once_an_epoch():
    model, epoch = classifier(), 20
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = schedulers.ExponentialLR(opt, 0.5)
    goal = sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler, interval=epoch)
    pruner = sp.Pruner(sp.select(model), opt, threshold=goal)
    still = schedulers.ConstantLR(opt, factor=1.0)
    for step in range(epoch, STEPS + 1, epoch):
        train(model, opt, still, pruner, step)  # no warning: all of it was foretold
        scheduler.step()
    assert pruner.sparsity() == pytest.approx(0.9, abs=1e-3)


def test_a_scheduler_that_was_taken_to_step_more_often_is_left_aside():
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    goal = sp.TargetSparsity(0.9, STEPS, lr_scheduler=schedulers.ExponentialLR(opt, 0.5))  # a fall at every step
    pruner = sp.Pruner(sp.select(model), opt, threshold=goal)
    with pytest.warns(UserWarning, match="is not what `lr_scheduler` predicted"):
        train(model, opt, schedulers.ConstantLR(opt, factor=1.0), pruner, STEPS)
    assert pruner.sparsity() == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize("first", [1e-4, 0.0])
def test_a_warm_up_that_nobody_foretold_does_not_prune_at_once(first):
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = schedulers.LambdaLR(
        opt, lambda t: max(first, min(1.0, t / 20)) * 0.5 * (1 + math.cos(math.pi * t / STEPS))
    )
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.95, STEPS))
    d = train(model, opt, scheduler, pruner, STEPS)
    assert pruner.sparsity() == pytest.approx(0.95, abs=1e-3)
    assert d[STEPS // 20] < 0.15 * d[-1]
    assert loss(model) < 0.3


@pytest.mark.parametrize("fall", [0.1, 0.02])
def test_a_learning_rate_that_falls_late_leaves_little_to_the_last_step(fall):
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = schedulers.LambdaLR(opt, lambda t: min(1.0, max(0.0, (1 - t / STEPS) / fall)))
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
    d = train(model, opt, scheduler, pruner, STEPS)
    assert abs(d[-1] / d[-2] - 1) < 0.01
    assert loss(model) < 0.2


@pytest.mark.parametrize("foretold", [True, False])
def test_a_run_with_skipped_steps_ends_at_the_target(foretold):
    """A GradScaler does not step the optimizer where gradients overflow; schedulers and loops count such steps."""
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = SCHEDULES["cosine"](opt)
    goal = sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler if foretold else None)
    pruner = sp.Pruner(sp.select(model), opt, threshold=goal)
    for steps in (30, STEPS - 3):
        train(model, opt, scheduler, pruner, steps)
        scheduler.step()  # and a step is skipped
        if steps == 30:
            scheduler.step()
            scheduler.step()
    assert pruner.step == STEPS - 3
    if foretold:
        assert pruner.sparsity() == pytest.approx(0.9, abs=1e-3)
    pruner.detach()
    zeros = sum(int((p == 0).sum()) for p in sp.select(model).values())
    assert zeros / sum(p.numel() for p in sp.select(model).values()) == pytest.approx(0.9, abs=1e-3)


def test_accelerates_scheduler_is_unwrapped():
    model = classifier()
    accelerator = Accelerator(cpu=True)
    opt = OPTIMIZERS["sgd"](model.parameters())
    model, opt, scheduler = accelerator.prepare(model, opt, SCHEDULES["cosine"](opt))
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
    train(model, opt, scheduler, pruner, STEPS)  # no warning: it does what it foretold
    assert pruner.sparsity() == pytest.approx(0.9, abs=1e-3)
