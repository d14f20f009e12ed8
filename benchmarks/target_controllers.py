"""Which controller? Target sparsities on scikit-learn's digits: accuracy, and how constant the penalty is.

    python benchmarks/target_controllers.py --out docs/data/target_digits.csv     # 25 minutes on two cores

Variants of the rule, made by the constants of softprune/thresholds/odds.py, against LATS with the D that ends at the
same sparsity (found by up to eight runs: what a user does by hand today), with little weight decay and with much: under
much, hidden weights shrink, and sparsity rises, while the threshold stands still. All have the soft threshold and prune
until the end, as LATS does. A row is one run; a second start does only what is missing. `jump` is by how much of itself
the last step moves the threshold.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import statistics
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from torch import nn

from summary import constancy, percent

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import digits

import softprune as sp
from softprune.report.markdown import table
from softprune.thresholds.odds import FIT, odds
from softprune.thresholds.target import TargetRule

EPOCHS, BATCH = 20, 64
TARGETS, SEEDS = (0.8, 0.9, 0.95, 0.98), (0, 1, 2)
DECAYS = (1e-4, 3e-3)
VARIANTS: dict[str, dict[str, float]] = {
    "softprune": {},
    "quantile from the start": {"early": 0.0, "settling": 0, "growth": 0.0, "annealing": 0.0},
    "odds from 3% of the learning on": {"early": 0.03},
    "the quantile as a bound only": {"settling": 10**9},
    "no annealing": {"annealing": 0.0},
    "odds ∝ x, not x^1.3": {"growth": 1.0},
    "no smoothing": {"gain": 1.0},
}
FIELDS = ("variant", "decay", "target", "seed", "accuracy", "sparsity", "threshold", "spread", "landing", "jump")


def run(threshold, decay: float, seed: int) -> dict[str, float]:
    """One training run; ``threshold(steps, scheduler)`` makes the threshold."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    x, y, x_test, y_test = digits.load()
    model = digits.network()
    steps = EPOCHS * (len(x) // BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=decay)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=threshold(steps, scheduler), prox=sp.SoftThreshold())
    penalties, thresholds = [], []
    for _ in range(EPOCHS):
        for indices in torch.randperm(len(x)).split(BATCH)[: len(x) // BATCH]:
            nn.functional.cross_entropy(model(x[indices]), y[indices]).backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            penalties.append(max(pruner.penalty.values()))
            thresholds.append(max(pruner.threshold.values()))
    model.eval()
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    return {
        "accuracy": accuracy,
        "sparsity": pruner.sparsity(),
        "threshold": thresholds[-1],
        **constancy(penalties, thresholds),
        "jump": thresholds[-1] / thresholds[-2] - 1,
    }


def lats(target: float, decay: float, seed: int) -> dict[str, float]:
    """LATS with the D that ends at the target: damped steps in log odds against log D; the nearest of eight runs."""
    final, wanted, tried = 0.1, odds(target), []
    for _ in range(8):
        tried.append(run(lambda steps, scheduler, D=final: sp.LATS.from_final(D, scheduler, steps), decay, seed))
        sparsity = tried[-1]["sparsity"]
        if abs(sparsity - target) < 2e-3:
            break
        final *= (wanted / odds(sparsity)) ** 0.6
    return min(tried, key=lambda result: abs(result["sparsity"] - target))


def job(key: tuple[str, float, float, int]) -> dict[str, object]:
    variant, decay, target, seed = key
    if variant == "LATS, D by trial":
        result = lats(target, decay, seed)
    else:
        TargetRule.fit = replace(FIT, **VARIANTS[variant])
        result = run(
            lambda steps, scheduler: sp.TargetSparsity(target, steps, arrive=1.0, lr_scheduler=scheduler), decay, seed
        )
    return {"variant": variant, "decay": decay, "target": target, "seed": seed, **result}


def tabulate(rows: list[dict[str, str]], decay: float) -> str:
    head = ["controller", *(f"{target:.0%}" for target in TARGETS), "spread of μ", "last 5% of steps", "last step"]
    lines = []
    for variant in ("LATS, D by trial", *VARIANTS):
        group = [row for row in rows if row["variant"] == variant and float(row["decay"]) == decay]
        if group:
            by_target = [
                [float(row["accuracy"]) for row in group if float(row["target"]) == target] for target in TARGETS
            ]
            spread = statistics.fmean(float(row["spread"]) for row in group)
            landing, jump = (max((float(row[key]) for row in group), key=abs) for key in ("landing", "jump"))
            accuracies = [f"{percent(values)}%" for values in by_target]
            lines.append([variant, *accuracies, f"{spread:.2f}", f"{landing:+.2%}", f"{jump:+.2%}"])
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("target_digits.csv"))
    options = parser.parse_args()
    done = list(csv.DictReader(options.out.open())) if options.out.exists() else []
    known = {(row["variant"], float(row["decay"]), float(row["target"]), int(row["seed"])) for row in done}
    keys = [k for k in product(("LATS, D by trial", *VARIANTS), DECAYS, TARGETS, SEEDS) if k not in known]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not done:
            writer.writeheader()
        with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
            for row in pool.imap_unordered(job, keys):
                writer.writerow(row)
                file.flush()
    rows = list(csv.DictReader(options.out.open()))
    for decay in DECAYS:
        print(f"\nWeight decay {decay:g}\n\n{tabulate(rows, decay)}")


if __name__ == "__main__":
    main()
