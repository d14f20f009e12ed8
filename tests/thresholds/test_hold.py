"""A target that is reached early is held: to the end of training, past it, and across a resume."""

import math

import pytest
import torch
from torch.optim import SGD
from torch.optim import lr_scheduler as schedulers

import softprune as sp
from digit_classifier import OPTIMIZERS, SCHEDULES, STEPS, begun, classifier, train
from oracles import assert_same

HOLDING = tuple(f"softprune.control.{name}" for name in ("looked", "every", "rate", "found", "pace"))
BETWEEN = 3e-3  # from one look to the next; of 24,656 weights, a tenth of a point is 25
slow = pytest.mark.slow
SCHEDULES_TOO = {
    **SCHEDULES,
    "restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, STEPS // 4),
}


def built(threshold: type, arrive: float, schedule: str = "cosine", optimizer: str = "sgd", prox=None, known=True):
    model = classifier()
    opt = OPTIMIZERS[optimizer](model.parameters())
    scheduler = SCHEDULES_TOO[schedule](opt)
    told = {"lr_scheduler": scheduler} if known and threshold is sp.TargetSparsity else {}
    aim = threshold(0.9, STEPS, arrive=arrive, **told)
    return model, opt, scheduler, sp.Pruner(sp.select(model), opt, threshold=aim, prox=prox)


def held(run, until: int) -> float:
    """The largest distance from 90% after any step from now on."""
    pruner, worst = run[3], 0.0
    for step in range(pruner.step, until):
        train(*run, step + 1)
        worst = max(worst, abs(pruner.sparsity() - 0.9))
    return worst


@pytest.mark.parametrize("threshold", [sp.TargetSparsity, pytest.param(sp.GradualSparsity, marks=slow)])
@pytest.mark.parametrize("arrive", [0.25, 0.5, 0.75, 1.0])
def test_it_arrives_when_it_should_and_holds_to_the_end(threshold, arrive):
    run = built(threshold, arrive)
    arrival = round(arrive * STEPS)
    train(*run, arrival // 2)
    assert run[3].sparsity() < 0.87
    train(*run, arrival)
    assert run[3].sparsity() == pytest.approx(0.9, abs=1e-4)
    assert held(run, STEPS) < BETWEEN
    assert run[3].sparsity() == pytest.approx(0.9, abs=1e-4)


@pytest.mark.parametrize(
    "schedule", ["one-cycle", pytest.param("restarts", marks=slow), pytest.param("constant", marks=slow), "step"]
)
@pytest.mark.parametrize("known", [True, pytest.param(False, marks=slow)])
def test_whatever_the_learning_rate_does(schedule, known):
    run = built(sp.TargetSparsity, 0.5, schedule, "adamw", known=known)
    train(*run, STEPS // 2)
    assert run[3].sparsity() == pytest.approx(0.9, abs=1e-4)
    assert held(run, STEPS) < BETWEEN
    assert run[3].sparsity() == pytest.approx(0.9, abs=1e-4)


@pytest.mark.parametrize("prox", [sp.SoftThreshold(), sp.PowerThreshold(math.inf)], ids=str)
def test_whatever_the_prox(prox):
    run = built(sp.TargetSparsity, 0.5, prox=prox)
    train(*run, STEPS // 2)
    assert held(run, STEPS) < BETWEEN
    assert run[3].sparsity() == pytest.approx(0.9, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_it_looks_more_and_more_rarely_also_where_many_weights_are_equal(dtype, monkeypatch):
    """In half precision a quantile zeroes many equal weights at once, and no look can do better."""
    torch.manual_seed(0)
    p = torch.nn.Parameter(torch.randn(100, 100).to(dtype))
    opt = SGD([p], lr=0.0)
    pruner = sp.Pruner({"weight": p}, opt, threshold=sp.TargetSparsity(0.9, 1000, arrive=0.1))
    looks, look = [], pruner.rule.hold.look
    monkeypatch.setattr(pruner.rule.hold, "look", lambda step, *rest: (looks.append(step), look(step, *rest)))
    for _ in range(400):
        opt.step()
    assert looks[0] == 100
    assert len(looks) < 45


def test_a_budget_that_misses_the_target_a_little_is_held_as_it_is():
    aim = sp.GradualSparsity(0.9, STEPS, arrive=0.5, budget={"0": 0.9, "3": 0.904, "7": 0.904})
    model = classifier()
    opt = OPTIMIZERS["sgd"](model.parameters())
    pruner = sp.Pruner(sp.select(model), opt, threshold=aim)
    train(model, opt, SCHEDULES["cosine"](opt), pruner, STEPS)
    pruner.detach()  # warnings are errors here
    assert pruner.sparsity() == pytest.approx(0.904, abs=1e-3)


def test_detaching_leaves_weights_alone_that_meet_the_target():
    """As after early stopping, when the best weights were put back and measured."""
    run = built(sp.TargetSparsity, 0.5)
    train(*run, 170)
    before = {name: p.detach().clone() for name, p in run[3].params.items()}
    run[3].detach()
    assert all(torch.equal(p, before[name]) for name, p in run[3].params.items())


def test_there_is_no_forecast_of_what_was_reached():
    run = built(sp.TargetSparsity, 0.5)
    train(*run, 90)
    assert run[3].rule.forecast == pytest.approx(0.9, abs=0.05)
    train(*run, 100)
    assert run[3].rule.forecast is None


def test_while_it_holds_weights_come_and_go():
    run = built(sp.TargetSparsity, 0.5)
    train(*run, STEPS // 2)
    before = sp.summarize(run[3])
    d = train(*run, STEPS)
    report = sp.summarize(run[3]).since(before)
    assert report.dropped > 20 < report.regrown
    assert len(set(d)) > STEPS // 4  # d follows


@pytest.mark.parametrize(
    ("threshold", "schedule"),
    [
        (sp.TargetSparsity, "constant"),
        pytest.param(sp.TargetSparsity, "cosine", marks=slow),
        pytest.param(sp.GradualSparsity, "constant", marks=slow),
    ],
)
def test_trained_past_its_steps_the_target_is_held(threshold, schedule):
    run = built(threshold, 1.0, schedule, "adamw")
    train(*run, STEPS)
    assert held(run, 3 * STEPS // 2) < BETWEEN
    run[3].detach()  # warnings are errors here
    assert run[3].sparsity() == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize(
    ("threshold", "stop"),
    [
        (sp.TargetSparsity, 30),
        (sp.GradualSparsity, 103),
        *(
            pytest.param(threshold, stop, marks=slow)
            for threshold in (sp.TargetSparsity, sp.GradualSparsity)
            for stop in (31, 100, 101, 103, 150)
            if (threshold, stop) != (sp.GradualSparsity, 103)
        ),
    ],
)
def test_it_resumes_bit_for_bit_while_it_approaches_and_while_it_holds(threshold, stop):
    whole, paused, fresh = (built(threshold, 0.5, optimizer="adamw") for _ in range(3))
    train(*whole, STEPS)
    train(*paused, stop)
    for new, old in zip(fresh[:3], paused[:3], strict=True):
        new.load_state_dict(old.state_dict())
    train(*fresh, STEPS)
    assert_same(fresh[0], whole[0])
    assert_same(fresh[3], whole[3])


def test_a_state_of_a_version_that_held_nothing_is_completed():
    old = begun(0.9, steps=20, arrive=1.0)
    train(*old, 20)
    state = old[1].state_dict()
    for entry in state["state"].values():
        for key in [key for key in entry if key.startswith(HOLDING)]:
            del entry[key]
    run = begun(0.9, steps=20, arrive=1.0)
    run[0].load_state_dict(old[0].state_dict())
    run[1].load_state_dict(state)
    train(*run, 30)
    assert run[3].sparsity() == pytest.approx(0.9, abs=1e-3)


def test_a_state_of_another_prox_is_refused():
    saved = built(sp.TargetSparsity, 0.5, prox=sp.PowerThreshold(2.0))
    train(*saved, 3)
    other = built(sp.TargetSparsity, 0.5)
    with pytest.raises(ValueError, match=r"saved with another prox than PowerThreshold\(p=4.0\)"):
        other[1].load_state_dict(saved[1].state_dict())


def test_a_state_that_names_no_prox_was_made_with_the_soft_threshold():
    saved = built(sp.TargetSparsity, 0.5, prox=sp.SoftThreshold())
    train(*saved, 3)
    state = saved[1].state_dict()
    for entry in state["state"].values():
        entry.pop("softprune.prox", None)
    other = built(sp.TargetSparsity, 0.5)
    with pytest.raises(
        ValueError, match=r"an earlier version saved it.* Write `Pruner\(..., prox=sp.SoftThreshold\(\)\)`"
    ):
        other[1].load_state_dict(state)
    soft = built(sp.TargetSparsity, 0.5, prox=sp.SoftThreshold())
    soft[1].load_state_dict(state)
    assert soft[3].step == 3


def test_steps_that_a_scaler_skips_do_not_matter():
    run = built(sp.TargetSparsity, 0.5)
    for step in (30, 60, 90):
        train(*run, step)
        run[2].step()  # the scheduler, though the optimizer did not
    train(*run, STEPS // 2 - 3)
    assert run[3].sparsity() == pytest.approx(0.9, abs=1e-3)
    assert held(run, STEPS - 3) < BETWEEN


@pytest.mark.parametrize("arrive", [0.0, 1.5, -1, "soon", True])
def test_an_arrival_outside_of_the_run_is_refused(arrive):
    with pytest.raises(ValueError, match=r"`TargetSparsity\(arrive=...\)` must be > 0 and <= 1. Got"):
        sp.TargetSparsity(0.9, 100, arrive=arrive)


def test_it_arrives_after_a_start():
    aim = sp.TargetSparsity(0.9, 100, start=20, arrive=0.5)
    model = classifier()
    opt = SGD(model.parameters(), lr=0.1, momentum=0.9)
    pruner = sp.Pruner(sp.select(model), opt, threshold=aim)
    run = model, opt, schedulers.ConstantLR(opt, 1.0), pruner
    train(*run, 20)
    assert pruner.sparsity() == 0
    train(*run, 60)
    assert pruner.sparsity() == pytest.approx(0.9, abs=1e-4)
