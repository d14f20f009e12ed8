"""A run towards a target resumes bit for bit, may be cut short and may be prolonged."""

import copy

import pytest
from torch.optim import lr_scheduler as schedulers

import softprune as sp
from digit_classifier import OPTIMIZERS, SCHEDULES, STEPS, classifier, train
from oracles import assert_same, saved, stop


@pytest.mark.parametrize("stop", [1, 17, 59])
@pytest.mark.parametrize(
    "options", [{}, {"min_density": 0.04}, {"budget": sp.erk}], ids=["plain", "caps that bind", "budget"]
)
def test_it_resumes_bit_for_bit(stop, options):
    def begun(steps: int = 60):
        model = classifier()
        opt = OPTIMIZERS["sgd"](model.parameters())
        scheduler = schedulers.CosineAnnealingLR(opt, steps)
        goal = sp.TargetSparsity(0.95, steps, lr_scheduler=scheduler, **options)
        return model, opt, scheduler, sp.Pruner(sp.select(model), opt, threshold=goal)

    whole, paused, resumed = begun(), begun(), begun()
    train(*whole, 60)
    train(*paused, stop)
    for new, old in zip(resumed[:3], paused[:3], strict=True):
        new.load_state_dict(saved(old.state_dict()))
    train(*resumed, 60)
    assert_same(resumed[0], whole[0])
    assert_same(resumed[3], whole[3])
    assert whole[3].sparsity() == pytest.approx(0.95, abs=1e-3)


def test_a_scheduler_that_was_left_aside_stays_so_after_a_resume():
    results = []
    for pause in (None, 100):
        model = classifier()
        opt = OPTIMIZERS["sgd"](model.parameters())
        scheduler = SCHEDULES["cosine"](opt)
        pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
        with pytest.warns(UserWarning, match="not what `lr_scheduler` predicted"):
            train(model, opt, scheduler, pruner, 100, disturbed=range(30, 60))
        if pause is not None:
            weights, saved, schedule = (copy.deepcopy(x.state_dict()) for x in (model, opt, scheduler))
            model = classifier()
            opt = OPTIMIZERS["sgd"](model.parameters())
            scheduler = SCHEDULES["cosine"](opt)
            pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
            model.load_state_dict(weights)
            opt.load_state_dict(saved)
            scheduler.load_state_dict(schedule)
        train(model, opt, scheduler, pruner, STEPS)
        results.append(model)
    assert_same(*results)


def test_a_run_resumed_with_fewer_steps_than_it_made_ends_at_the_target():
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = SCHEDULES["constant"](opt)
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS))
    train(model, opt, scheduler, pruner, 150)
    weights, saved = (copy.deepcopy(x.state_dict()) for x in (model, opt))
    with pytest.warns(UserWarning, match="ends after 150 of 200 steps"):
        pruner.detach()
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, 100))
    model.load_state_dict(weights)
    opt.load_state_dict(saved)
    train(model, opt, scheduler, pruner, 155)
    after = pruner.threshold
    assert pruner.sparsity() > 0.89
    train(model, opt, scheduler, pruner, 160)
    assert pruner.threshold == after  # it landed once


@pytest.mark.parametrize("goal", [sp.TargetSparsity(0.97, 2 * STEPS), sp.TargetSparsity(0.9, 2 * STEPS)])
def test_a_run_that_ended_can_be_prolonged(goal):
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = SCHEDULES["constant"](opt)
    with sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS)) as pruner:
        train(model, opt, scheduler, pruner, STEPS)
        weights, saved = (copy.deepcopy(x.state_dict()) for x in (model, opt))
    pruner = sp.Pruner(sp.select(model), opt, threshold=goal)
    model.load_state_dict(weights)
    opt.load_state_dict(saved)
    train(model, opt, scheduler, pruner, 2 * STEPS)
    assert pruner.sparsity() == pytest.approx(goal.target, abs=1e-3)


def test_states_of_other_thresholds_are_refused():
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS))
    adaptive = copy.deepcopy(opt.state_dict())
    stop(pruner)
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.SLATS(0.1, STEPS))
    plain = copy.deepcopy(opt.state_dict())
    with pytest.raises(ValueError, match="another threshold than SLATS"):
        opt.load_state_dict(adaptive)
    stop(pruner)
    sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS))
    with pytest.raises(ValueError, match="another threshold than TargetSparsity"):
        opt.load_state_dict(plain)
