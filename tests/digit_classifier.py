"""A classifier of scikit-learn's digits, small enough to be trained a hundred times."""

from collections.abc import Container
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import lr_scheduler as schedulers
from torch.optim.lr_scheduler import LRScheduler

import softprune as sp
from oracles import saved

DIGITS = load_digits()


X = torch.tensor(DIGITS.images, dtype=torch.float32).unsqueeze(1) / 16


Y = torch.tensor(DIGITS.target)


STEPS, BATCH = 200, 64


OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda p: AdamW(p, lr=3e-3, weight_decay=1e-2),
    "adam": lambda p: Adam(p, lr=3e-3),
}


SCHEDULES = {
    "cosine": lambda o: schedulers.SequentialLR(
        o,
        [schedulers.LinearLR(o, 0.1, total_iters=10), schedulers.CosineAnnealingLR(o, STEPS - 10)],
        [10],
    ),
    "step": lambda o: schedulers.MultiStepLR(o, [STEPS // 2, 3 * STEPS // 4]),
    "one-cycle": lambda o: schedulers.OneCycleLR(o, max_lr=o.param_groups[0]["lr"], total_steps=STEPS + 1),
    "constant": lambda o: schedulers.ConstantLR(o, factor=1.0),
    "polynomial": lambda o: schedulers.PolynomialLR(o, STEPS, power=0.9),
}


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def train(
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    pruner: sp.Pruner,
    until: int,
    disturbed: Container[int] = (),
) -> list[float]:
    """Thresholds after each step; in some, the learning rate is not the scheduler's."""
    thresholds = []
    for step in range(pruner.step, until):
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(step))[:BATCH]
        nn.functional.cross_entropy(model(X[order]), Y[order]).backward()
        foretold = optimizer.param_groups[0]["lr"]
        if step in disturbed:
            optimizer.param_groups[0]["lr"] = 0.5 * foretold
        optimizer.step()
        optimizer.param_groups[0]["lr"] = foretold
        scheduler.step()
        optimizer.zero_grad()
        thresholds.append(max(pruner.threshold.values()))
    return thresholds


def loss(model: nn.Module) -> float:
    """As batch normalisation has it for evaluation."""
    model.eval()
    with torch.no_grad():
        value = nn.functional.cross_entropy(model(X), Y).item()
    model.train()
    return value


def begun(
    target: float,
    optimizer: str = "sgd",
    schedule: str = "cosine",
    known: bool = True,
    steps: int = STEPS,
    **options: Any,
) -> tuple[nn.Module, Optimizer, LRScheduler, sp.Pruner]:
    """All that ``train`` takes; the target is told of the scheduler if that is to be ``known``."""
    model = classifier()
    opt = OPTIMIZERS[optimizer](model.parameters())
    scheduler = SCHEDULES[schedule](opt)
    threshold = sp.TargetSparsity(target, steps, lr_scheduler=scheduler if known else None, **options)
    return model, opt, scheduler, sp.Pruner(sp.select(model), opt, threshold=threshold)


def run(**arguments: Any) -> tuple[nn.Module, sp.Pruner]:
    training = begun(**arguments)
    train(*training, STEPS)
    return training[0], training[3]


def resumed(paused: tuple, **arguments: Any) -> tuple[nn.Module, Optimizer, LRScheduler, sp.Pruner]:
    """A fresh run, which gets what a paused one saved."""
    fresh = begun(**arguments)
    for new, old in zip(fresh[:3], paused[:3], strict=True):
        new.load_state_dict(saved(old.state_dict()))
    return fresh
