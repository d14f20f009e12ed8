"""Short runs of a small network: 90% sparse after a few hundred steps, under many optimizers and learning-rate curves.

    python benchmarks/short_runs.py    # the runs that docs/data/short_runs.csv lacks, and the tables of docs/results.md

All runs take about 20 minutes on one core. An MLP of 64-256-256-10 learns scikit-learn's digits in batches of 64, at
random with replacement; three quarters of the images are to train, 450 to test. A row is one run.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer, RAdam
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    LRScheduler,
    PolynomialLR,
    SequentialLR,
)

import softprune as sp
from pages import DOCS, RESULTS, fill
from softprune.report.markdown import table

TABLE = DOCS / "data" / "short_runs.csv"
SEEDS = range(10)
TARGET, BATCH = 0.9, 64
FIELDS = ("setting", "method", "seed", "accuracy", "sparsity", "warned")
Row = dict[str, Any]


class Lion(Optimizer):
    """Chen et al. 2023: steps of one size, in the direction of the sign."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.sub_(group["lr"] * torch.lerp(momentum, p.grad, 0.1).sign())
                momentum.lerp_(p.grad, 0.01)


@dataclass(frozen=True)
class Setting:
    optimizer: Callable[[Iterable[Tensor]], Optimizer]
    steps: int
    curve: Callable[[Optimizer, int], LRScheduler] = CosineAnnealingLR


def _sgd(momentum: float = 0.9) -> Callable[[Iterable[Tensor]], Optimizer]:
    return lambda params: SGD(params, 0.1, momentum)


def _adamw(lr: float) -> Callable[[Iterable[Tensor]], Optimizer]:
    return lambda params: AdamW(params, lr)


def _constant(optimizer: Optimizer, steps: int) -> LRScheduler:
    return ConstantLR(optimizer, 1.0)


def _warmed(optimizer: Optimizer, steps: int) -> LRScheduler:
    return SequentialLR(optimizer, [LinearLR(optimizer, 0.01, total_iters=20), ExponentialLR(optimizer, 0.98)], [20])


SETTINGS = {
    "AdamW 1e-3, 300 steps, cosine": Setting(_adamw(1e-3), 300),
    "AdamW 3e-3, 300 steps, cosine": Setting(_adamw(3e-3), 300),
    "AdamW 3e-3, 1200 steps, cosine": Setting(_adamw(3e-3), 1200),
    "AdamW 1e-3, 600 steps, constant": Setting(_adamw(1e-3), 600, _constant),
    "RAdam 3e-3, 300 steps, cosine": Setting(lambda params: RAdam(params, 3e-3), 300),
    "Lion 5e-4, 300 steps, cosine": Setting(lambda params: Lion(params, 5e-4), 300),
    "SGD without momentum, 300 steps, cosine": Setting(_sgd(0.0), 300),
    "SGD, 300 steps, cosine": Setting(_sgd(), 300),
    "SGD, 600 steps, constant": Setting(_sgd(), 600, _constant),
    "SGD, 200 steps, cosine": Setting(_sgd(), 200),
    "SGD, 200 steps, polynomial, power 2": Setting(_sgd(), 200, lambda o, steps: PolynomialLR(o, steps, power=2)),
    "SGD, 200 steps, exponential to 2%": Setting(_sgd(), 200, lambda o, steps: ExponentialLR(o, 0.02 ** (1 / steps))),
    "SGD, 200 steps, 20 of warm-up, 0.98 each": Setting(_sgd(), 200, _warmed),
}


def _magnitude(steps: int, scheduler: LRScheduler) -> Row:
    """Gradual magnitude pruning from 10% to 75% of the run."""
    start = steps // 10
    arrive = (0.75 * steps - start) / (steps - start)
    threshold = sp.GradualSparsity(TARGET, steps, start=start, arrive=arrive)
    return {"threshold": threshold, "prox": sp.PowerThreshold(math.inf), "gradient": sp.subgradient}


def _at_the_end(prox: sp.Prox) -> Callable[[int, LRScheduler], Row]:
    return lambda steps, scheduler: {
        "threshold": sp.TargetSparsity(TARGET, steps, arrive=1.0, lr_scheduler=scheduler),
        "prox": prox,
    }


METHODS: dict[str, Callable[[int, LRScheduler], Row] | None] = {
    "dense": None,
    "magnitude pruning": _magnitude,
    "soft, arriving at the end": _at_the_end(sp.SoftThreshold()),
    "hard, arriving at the end": _at_the_end(sp.PowerThreshold(math.inf)),
    "default": lambda steps, scheduler: {"threshold": sp.TargetSparsity(TARGET, steps, lr_scheduler=scheduler)},
    "default, no `lr_scheduler`": lambda steps, _: {"threshold": sp.TargetSparsity(TARGET, steps)},
}
AFTER = Setting(_adamw(2e-3), 300, _constant)
AFTER_NAME = "AdamW 2e-3, 300 steps, constant"
MOMENTS = ("after `steps` steps", "300 more steps", "`detach()`, 10 more", "`detach()`, 10 more with `KeepZeros`")


class Digits:
    """The data, and one network on its way."""

    def __init__(self, seed: int) -> None:
        digits = load_digits()
        x, self.y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        self.train, self.test = order.tensor_split([3 * len(x) // 4])
        self.x = (x - x[self.train].mean()) / x[self.train].std()
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        self.batches = torch.Generator().manual_seed(100 + seed)

    def fit(self, optimizer: Optimizer, steps: int, scheduler: LRScheduler | None = None) -> None:
        for _ in range(steps):
            chosen = self.train[torch.randint(len(self.train), (BATCH,), generator=self.batches)]
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(self.x[chosen]), self.y[chosen]).backward()
            optimizer.step()
            if scheduler is not None:
                scheduler.step()

    def measure(self) -> Row:
        with torch.no_grad():
            right = self.model(self.x[self.test]).argmax(1) == self.y[self.test]
        weights = torch.cat([p.detach().flatten() for p in sp.select(self.model).values()])
        return {"accuracy": right.float().mean().item(), "sparsity": (weights == 0).float().mean().item()}


def run(setting: Setting, method: str, seed: int) -> Row:
    """One row of the first table."""
    digits = Digits(seed)
    optimizer = setting.optimizer(digits.model.parameters())
    scheduler = setting.curve(optimizer, setting.steps)
    make = METHODS[method]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if make is None:
            digits.fit(optimizer, setting.steps, scheduler)
        else:
            with sp.Pruner(sp.select(digits.model), optimizer, **make(setting.steps, scheduler)):
                digits.fit(optimizer, setting.steps, scheduler)
    warned = any("have moved as far as the threshold" in str(warning.message) for warning in caught)
    return {**digits.measure(), "warned": int(warned)}


def train_on(moment: str, seed: int) -> Row:
    """One row of the second: what becomes of the zeros when training goes on."""
    digits = Digits(seed)
    optimizer = AFTER.optimizer(digits.model.parameters())
    pruner = sp.Pruner(sp.select(digits.model), optimizer, threshold=sp.TargetSparsity(TARGET, AFTER.steps))
    digits.fit(optimizer, AFTER.steps)
    if moment == MOMENTS[1]:
        digits.fit(optimizer, 300)
    if moment in MOMENTS[2:]:
        pruner.detach()
        optimizer = AFTER.optimizer(digits.model.parameters())
        if moment == MOMENTS[3]:
            sp.Pruner(sp.select(digits.model), optimizer, threshold=sp.KeepZeros())
        digits.fit(optimizer, 10)
    return digits.measure()


def missing(rows: list[Row]) -> list[tuple[str, str, int]]:
    done = {(row["setting"], row["method"], int(row["seed"])) for row in rows}
    pairs = [(setting, method) for setting in SETTINGS for method in METHODS]
    pairs += [(AFTER_NAME, moment) for moment in MOMENTS]
    return [(*pair, seed) for pair in pairs for seed in SEEDS if (*pair, seed) not in done]


def read(path: Path) -> list[Row]:
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def complete(path: Path) -> None:
    """Do what the table lacks, and append each run as it ends."""
    jobs = missing(read(path))
    if not jobs:
        return
    torch.set_num_threads(1)
    begin = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="", lineterminator="\n")
        if begin:
            writer.writeheader()
        for setting, method, seed in jobs:
            result = train_on(method, seed) if setting == AFTER_NAME else run(SETTINGS[setting], method, seed)
            short = {key: round(value, 5) for key, value in result.items()}
            writer.writerow({"setting": setting, "method": method, "seed": seed, **short})
            file.flush()


def percent(rows: list[Row], key: str) -> str:
    """Mean ± standard error."""
    values = [100 * float(row[key]) for row in rows]
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values) / math.sqrt(len(values)):.2f}"


def short(rows: list[Row]) -> str:
    """A dagger: most runs of the target warned that weights do not outrun the threshold."""
    lines = []
    for setting in SETTINGS:
        cells = []
        for method in METHODS:
            runs = [row for row in rows if (row["setting"], row["method"]) == (setting, method)]
            warned = 2 * sum(row["warned"] == "1" for row in runs) > len(runs)
            cells.append(percent(runs, "accuracy") + "†" * warned)
        lines.append([setting, *cells])
    return table(["accuracy", *METHODS], lines)


def after(rows: list[Row]) -> str:
    lines = []
    for moment in MOMENTS:
        cell = [row for row in rows if (row["setting"], row["method"]) == (AFTER_NAME, moment)]
        lines.append([moment, percent(cell, "sparsity"), percent(cell, "accuracy")])
    return table(["", "sparsity", "accuracy"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--pages", type=Path, nargs="+", default=[RESULTS])
    options = parser.parse_args()
    complete(options.table)
    rows = read(options.table)
    fill(options.pages, {"short": short(rows), "after": after(rows)})


if __name__ == "__main__":
    main()
