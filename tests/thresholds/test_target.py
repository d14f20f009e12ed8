"""Ask for a sparsity and get it."""

import math
import statistics
from itertools import product

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim import lr_scheduler as schedulers

import softprune as sp
from digit_classifier import OPTIMIZERS, SCHEDULES, STEPS, X, begun, classifier, loss, run, train

TARGETS = [0.5, 0.8, 0.9, 0.95, 0.98, 0.995]
ALL = list(product(TARGETS, OPTIMIZERS, SCHEDULES, [True, False]))
COVERING = {
    (TARGETS[i % len(TARGETS)], optimizer, schedule, (i + i // len(TARGETS)) % 2 == 0)
    for i, (optimizer, schedule) in enumerate(product(OPTIMIZERS, SCHEDULES))
}
"""Every optimizer with every schedule, and every target with and without its scheduler."""


@pytest.mark.parametrize(
    ("target", "optimizer", "schedule", "known"),
    [case if case in COVERING else pytest.param(*case, marks=pytest.mark.slow) for case in ALL],
)
def test_the_run_ends_within_a_tenth_of_a_point_of_the_target(target, optimizer, schedule, known):
    *training, pruner = begun(target, optimizer, schedule, known)
    train(*training, pruner, STEPS)
    assert pruner.sparsity() == pytest.approx(target, abs=1e-3)


@pytest.mark.parametrize(
    ("target", "optimizer", "schedule", "known"),
    [
        (0.9, "sgd", "cosine", True),
        (0.95, "adamw", "step", True),
        (0.98, "sgd", "one-cycle", False),
        (0.8, "adamw", "constant", False),
    ],
)
def test_the_threshold_lands_and_does_not_jump(target, optimizer, schedule, known):
    *training, pruner = begun(target, optimizer, schedule, known)
    penalties, d = [], [0.0]
    for step in range(1, STEPS + 1):
        lr = training[1].param_groups[0]["lr"]
        d += train(*training, pruner, step)
        penalties.append((d[-1] - d[-2]) / max(lr, 1e-12))
    assert max(d) < 1.005 * d[-1]  # it does not go too far, to come back
    moving = schedule == "constant"  # weights move as fast as ever when the run ends, and the quantile with them
    assert d[-2] == pytest.approx(d[-1], rel=0.02 if moving else 0.004)  # the last step lands, it does not jump
    assert d[-STEPS // 20] == pytest.approx(d[-1], rel=0.15 if moving else 0.03)  # nor do the last ten
    if known:
        middle = penalties[STEPS // 10 : -STEPS // 10]
        assert max(middle) < 8 * statistics.median(middle)  # most where the learning rate drops to a tenth


@pytest.mark.parametrize("target", [0.8, pytest.param(0.95, marks=pytest.mark.slow)])
@pytest.mark.parametrize("decay", [pytest.param(3e-3, marks=pytest.mark.slow), 1e-2])
def test_strong_weight_decay_is_met_long_before_the_last_step(target, decay):
    """Under it hidden weights shrink, and sparsity rises while the threshold stands still: it must come down in time,
    or the last step would shift every weight, and what batch normalisation expects is no longer what it gets."""
    steps, model = 400, classifier()
    opt = SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=decay)
    scheduler = schedulers.CosineAnnealingLR(opt, steps)
    threshold = sp.TargetSparsity(target, steps, lr_scheduler=scheduler)
    pruner = sp.Pruner(sp.select(model), opt, threshold=threshold)
    d = train(model, opt, scheduler, pruner, steps - 1)
    before = loss(model)
    d += train(model, opt, scheduler, pruner, steps)
    assert pruner.sparsity() == pytest.approx(target, abs=1e-3)
    assert d[-steps // 20] == pytest.approx(d[-1], rel=0.01)
    assert d[-2] == pytest.approx(d[-1], rel=5e-4)
    assert loss(model) == pytest.approx(before, rel=0.05)


def test_weights_far_from_zero_do_not_mislead():
    """None is zero for a long time, then all could be at once."""
    model = classifier()
    with torch.no_grad():
        for p in sp.select(model).values():
            p.copy_(0.1 * torch.sign(torch.randn(p.shape, generator=torch.Generator().manual_seed(0))))
    opt = SGD(model.parameters(), lr=0.02, momentum=0.9)
    scheduler = schedulers.CosineAnnealingLR(opt, STEPS)
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
    sparsities = []
    for step in range(STEPS):
        train(model, opt, scheduler, pruner, step + 1)
        sparsities.append(pruner.sparsity())
    assert max(sparsities) < 0.94
    assert sparsities[-1] == pytest.approx(0.9, abs=1e-3)


def test_a_target_may_count_multiplications():
    uses = sp.flops_per_weight(classifier(), X[:1])
    _, pruner = run(target=0.9, flops=uses)
    dense = sum(uses[name] * p.numel() for name, p in pruner.params.items())
    left = sum(uses[name] * int((p != 0).sum()) for name, p in pruner.params.items())
    assert left / dense == pytest.approx(0.1, abs=1e-3)
    assert abs(pruner.sparsity() - 0.9) > 0.01  # another thing than weights


def test_to_stop_early_is_not_to_end_and_is_said():
    *training, pruner = begun(0.9, schedule="constant", known=False)
    train(*training, pruner, STEPS // 2)
    before = pruner.sparsity()
    with pytest.warns(UserWarning, match=r"ends after 100 of 200 steps, before its target 0.9. .* not batches"):
        pruner.detach()
    assert pruner.sparsity() == before < 0.89


def test_weights_that_are_no_numbers_spoil_no_others():
    a, b = nn.Parameter(torch.full((100,), math.nan)), nn.Parameter(torch.randn(100))
    opt = SGD([a, b], lr=0.0)
    sp.Pruner({"a": a, "b": b}, opt, threshold=sp.TargetSparsity(0.9, 1, min_density=0.0))
    opt.step()
    assert b.isfinite().all()


def test_equal_weights_in_double_precision():
    model = nn.Linear(10, 10, bias=False).double()
    with torch.no_grad():
        model.weight.fill_(5.0).view(-1)[:90] = 0.7  # not a number of single precision
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sp.Pruner(sp.select(model), optimizer, threshold=sp.TargetSparsity(0.9, 3)) as pruner:
        for _ in range(3):
            optimizer.step()
        assert pruner.sparsity() == 0.9
