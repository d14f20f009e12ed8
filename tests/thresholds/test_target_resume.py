"""A run towards a target resumes bit for bit, may be cut short and may be prolonged."""

import copy

import pytest

import softprune as sp
from digit_classifier import OPTIMIZERS, STEPS, begun, classifier, resumed, train
from oracles import assert_same, stop


@pytest.mark.parametrize("stop", [1, 17, 59])
@pytest.mark.parametrize(
    "options", [{}, {"min_density": 0.04}, {"budget": sp.erk}], ids=["plain", "caps that bind", "budget"]
)
def test_it_resumes_bit_for_bit(stop, options):
    arguments = {"target": 0.95, "steps": 60, **options}
    whole, paused = begun(**arguments), begun(**arguments)
    train(*whole, 60)
    train(*paused, stop)
    run = resumed(paused, **arguments)
    train(*run, 60)
    assert_same(run[0], whole[0])
    assert_same(run[3], whole[3])
    assert whole[3].sparsity() == pytest.approx(0.95, abs=1e-3)


def test_a_scheduler_that_was_left_aside_stays_so_after_a_resume():
    whole = begun(0.9)
    with pytest.warns(UserWarning, match="not what `lr_scheduler` predicted"):
        train(*whole, 100, disturbed=range(30, 60))
    run = resumed(whole, target=0.9)
    for one in (whole, run):
        train(*one, STEPS)
    assert_same(run[0], whole[0])


def test_a_run_resumed_with_fewer_steps_than_it_made_ends_at_the_target():
    paused = begun(0.9, schedule="constant", known=False)
    train(*paused, 140)
    run = resumed(paused, target=0.9, schedule="constant", known=False, steps=100)
    with pytest.warns(UserWarning, match="ends after 140 of 200 steps"):
        paused[3].detach()
    train(*run, 141)
    assert run[3].sparsity() == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize("target", [0.97, 0.9])
def test_a_run_that_ended_can_be_prolonged(target):
    ended = begun(0.9, schedule="constant", known=False)
    train(*ended, STEPS)
    run = resumed(ended, target=target, schedule="constant", known=False, steps=2 * STEPS)
    train(*run, 2 * STEPS)
    assert run[3].sparsity() == pytest.approx(target, abs=1e-3)


def test_a_run_that_is_prolonged_to_the_same_target_holds_it():
    ended = begun(0.9, schedule="constant", known=False, steps=100)
    train(*ended, 100)
    run = resumed(ended, target=0.9, schedule="constant", known=False, steps=STEPS)
    for step in range(101, 120):
        train(*run, step)
        assert run[3].sparsity() == pytest.approx(0.9, abs=3e-3)


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
