"""A scheduler, played forward: what it will do, and which ones cannot be played."""

import threading
from functools import partial

import pytest
import torch

import softprune as sp
from oracles import STEPS, loss_of, network, refused
from softprune.attach.future import Future, future_lrs, rewound


def test_a_future_adds_up():
    future = Future([4.0, 2.0, 1.0, 1.0])
    assert [future.to_come(step) for step in range(5)] == [8.0, 4.0, 2.0, 1.0, 0.0]
    assert future.cooler(1, 4.0) == (2 * (1 - 2 / 4) + 2 * (1 - 1 / 4)) / 8
    assert future.cooler(1, 0.0) == 0.0
    assert (future.top, future.last) == (4.0, 1.0)
    assert future.predicts(0, 1.0)
    assert not future.predicts(0, 0.9)


def scheduler():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: sp.LATS.from_final(-1.0, scheduler(), 10), ValueError, "`LATS.from_final(final=...)` must be >= 0"),
        (
            lambda: sp.LATS.from_final(1.0, scheduler(), 0),
            ValueError,
            "(steps=...)` must be a whole number >= 1. Got 0.",
        ),
        (lambda: sp.LATS.from_final(1.0, scheduler(), 5, start=5), ValueError, "must be < steps = 5. Got 5."),
        (lambda: sp.LATS.from_final(1.0, scheduler(), 5, interval=0), ValueError, "`LATS.from_final(interval=...)`"),
        (
            lambda: sp.LATS.from_final(1.0, torch.optim.lr_scheduler.ReduceLROnPlateau(scheduler().optimizer), 5),
            TypeError,
            "Cannot play a ReduceLROnPlateau forward.",
        ),
    ],
)
def test_what_lats_from_a_final_threshold_refuses(build, error, text):
    refused(build, text, error)


def test_a_scheduler_that_ends_before_the_run():
    one_cycle = torch.optim.lr_scheduler.OneCycleLR(torch.optim.SGD([torch.zeros(1)], lr=0.1), 0.1, total_steps=100)
    refused(
        lambda: sp.LATS.from_final(1.0, one_cycle, 200), "`lr_scheduler` ends after 101 optimizer steps, and 200"
    )  # as torch counts
    assert sp.LATS.from_final(1.0, one_cycle, 100).penalty > 0


def test_lats_from_a_final_threshold_refuses_a_learning_rate_of_zero():
    zero = torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD([torch.zeros(1)], lr=0.1), lambda step: 0.0)
    refused(lambda: sp.LATS.from_final(1.0, zero, 5), "needs learning rates that sum to more than 0. Got 0.0 over 5")


class Owner:
    """Its method is a learning-rate curve, and it cannot be copied: it holds a lock, as a sharded network does."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def curve(self, step: int) -> float:
        return 0.5

    __call__ = curve


def test_whoever_owns_the_curve_is_not_copied():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    method = torch.optim.lr_scheduler.LambdaLR(optimizer, Owner().curve)
    assert sp.LATS.from_final(1.0, method, 10).penalty == pytest.approx(1.0 / (10 * 0.05))


def test_a_scheduler_that_cannot_be_copied_is_refused():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    locked = torch.optim.lr_scheduler.LambdaLR(optimizer, Owner())
    refused(lambda: sp.LATS.from_final(1.0, locked, 10), "Cannot play `lr_scheduler` forward. This is because")


def test_a_scheduler_of_another_optimizer_is_refused():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer)
    text = "an `lr_scheduler` must be that of the same optimizer"
    refused(lambda: build(threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler())), text)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("kind", ["cosine", "one cycle"])
def test_accelerate_steps_its_scheduler_once_for_each_process(monkeypatch, kind, split):
    """Two of them, as far as the scheduler can tell."""
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = STEPS if split else 2 * STEPS
    scheduler = {
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        "one cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps - (not split)),
    }[kind]()
    accelerator = accelerate.Accelerator(cpu=True, step_scheduler_with_optimizer=True)
    accelerator.dataloader_config.split_batches = split
    optimizer, scheduler = accelerator.prepare(optimizer, scheduler)
    monkeypatch.setattr(AcceleratorState(), "num_processes", 2)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.LATS.from_final(0.3, scheduler, STEPS))
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        scheduler.step()
    assert list(pruner.threshold.values()) == pytest.approx([0.3, 0.3])


LR = torch.optim.lr_scheduler
SCHEDULERS = {
    "lambda": lambda optimizer: LR.LambdaLR(optimizer, lambda step: min(1.0, (1 + step) / 4) / (1 + step)),
    "steps": lambda optimizer: LR.StepLR(optimizer, 3),
    "cosine": lambda optimizer: LR.CosineAnnealingLR(optimizer, 10),
    "one cycle": lambda optimizer: LR.OneCycleLR(optimizer, 0.3, total_steps=10),
    "restarts": lambda optimizer: LR.CosineAnnealingWarmRestarts(optimizer, 4),
    "one after the other": lambda optimizer: LR.SequentialLR(
        optimizer, [LR.LinearLR(optimizer, 0.1, total_iters=3), LR.ExponentialLR(optimizer, 0.5)], milestones=[3]
    ),
    "both at once": lambda optimizer: LR.ChainedScheduler(
        [LR.ConstantLR(optimizer, 0.1, total_iters=4), LR.ExponentialLR(optimizer, 0.5)]
    ),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_rewound_scheduler_does_what_it_did(kind):
    """And the one that it was made from is left where it is."""
    optimizer = torch.optim.SGD([{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)], "lr": 0.02}], lr=0.1)
    scheduler = SCHEDULERS[kind](optimizer)
    first = future_lrs(scheduler, 10, groups=(1,))
    for step in range(10):
        again = rewound(scheduler)
        assert future_lrs(again, 10, groups=(1,)) == first
        assert again.optimizer.param_groups[1]["params"] is optimizer.param_groups[1]["params"]
        assert optimizer.param_groups[1]["lr"] == pytest.approx(first[step])
        optimizer.step()
        scheduler.step()
    assert len(set(first)) > 2
