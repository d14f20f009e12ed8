"""LATS.from_final: the penalty that ends at D, found by playing the lr scheduler forward."""

import copy
import math

import pytest
import torch
from torch.optim import lr_scheduler as lrs

import softprune as sp
from formulas import number, parameter

SCHEDULERS = {
    "cosine": lambda o: lrs.CosineAnnealingLR(o, 60),
    "step": lambda o: lrs.StepLR(o, 20),
    "one cycle": lambda o: lrs.OneCycleLR(o, max_lr=0.3, total_steps=60),
    "warm-up": lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, 0.1, total_iters=10), lrs.CosineAnnealingLR(o, 50)], milestones=[10]
    ),
    "lambda": lambda o: lrs.LambdaLR(o, lambda t: 1 / (1 + t)),
    "cyclic": lambda o: lrs.CyclicLR(o, base_lr=0.01, max_lr=0.2, step_size_up=7),
    "restarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 15),
    "chained": lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, 0.1, 5), lrs.ExponentialLR(o, 0.95)]),
}


@pytest.mark.parametrize("interval", [1, 5])
@pytest.mark.parametrize("start", [0, 13])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_lats_from_final_ends_at_final_and_disturbs_nothing(name, interval, start):
    p, twin = parameter([1.0, -2.0, 3.0]), parameter([1.0, -2.0, 3.0])
    optimizer, undisturbed = (torch.optim.SGD([x], lr=0.1, momentum=0.9) for x in (p, twin))
    scheduler, same = SCHEDULERS[name](optimizer), SCHEDULERS[name](undisturbed)
    before = copy.deepcopy((optimizer.state_dict(), plain(scheduler.state_dict())))

    source = sp.LATS.from_final(0.5, scheduler, steps=60, interval=interval, start=start)

    assert (optimizer.state_dict(), plain(scheduler.state_dict())) == before
    pruner = sp.Pruner({"p": p}, optimizer, threshold=source)
    seen = []
    for step in range(1, 61):
        seen.append(optimizer.param_groups[0]["lr"])
        assert seen[-1] == undisturbed.param_groups[0]["lr"]
        for x, o, s in ((p, optimizer, scheduler), (twin, undisturbed, same)):
            x.grad = torch.ones_like(x) / 100
            o.step()
            if step % interval == 0 and step < 60:
                s.step()
        assert number(pruner.threshold) == pytest.approx(source.penalty * math.fsum(seen[start:]), rel=1e-13, abs=0)
    assert number(pruner.threshold) == pytest.approx(0.5, rel=1e-13, abs=0)
    assert number(pruner.penalty) == pytest.approx(source.penalty, rel=1e-9, abs=0)


def plain(state):
    """A scheduler's state without its functions, which compare by identity."""
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    return [plain(x) for x in state] if isinstance(state, list) else None if callable(state) else state


def test_lats_from_final_leaves_a_learning_rate_alone_that_is_a_tensor():
    """The scheduler writes into such a learning rate in place."""
    lr = torch.tensor(0.1)
    optimizer = torch.optim.Adam([parameter([0.0])], lr=lr)
    source = sp.LATS.from_final(1.0, lrs.ExponentialLR(optimizer, 0.5), steps=3)
    assert source.penalty == pytest.approx(1 / (0.1 + 0.05 + 0.025), rel=1e-6)
    assert lr.item() == torch.tensor(0.1).item()


def test_lats_from_final_goes_on_from_where_the_scheduler_is():
    optimizer = torch.optim.SGD([parameter([0.0])], lr=1.0)
    scheduler = lrs.LambdaLR(optimizer, lambda t: 1.0 if t < 10 else 0.5)
    for _ in range(10):
        optimizer.step()
        scheduler.step()
    assert sp.LATS.from_final(1.0, scheduler, steps=4).penalty == pytest.approx(1.0 / (4 * 0.5))
