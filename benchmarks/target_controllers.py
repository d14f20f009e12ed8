"""Which controller? Target sparsities on scikit-learn's digits: accuracy, and how constant the penalty is.

    python benchmarks/target_controllers.py --out docs/data/target_digits.csv     # 10 minutes on two cores

Variants of the controller in softprune/target.py, made by its constants, against LATS with the D that ends at the same
sparsity (found by up to eight runs: what a user does by hand today). A row is one run; a second start does only
what is missing. `spread` is the standard deviation of the penalty over its mean, between 10% and 90% of training.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import statistics
import sys
from itertools import product
from pathlib import Path

import torch
from constancy import constancy
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import digits

import softprune as sp
from softprune import target as controller

EPOCHS, BATCH = 20, 64
TARGETS, SEEDS = (0.8, 0.9, 0.95, 0.98), (0, 1, 2)
VARIANTS: dict[str, dict[str, float]] = {
    "softprune": {},
    "quantile from the start": {"LATE": 1e9},
    "quantile in the last 15%": {"LATE": 0.15},
    "quantile in the last 3%": {"LATE": 0.03},
    "prediction to the end": {"LATE": 1e-9},
    "odds ∝ x, not x^1.3": {"GROWTH": 1.0, "LATE": 0.03},
    "no smoothing": {"GAIN": 1.0, "LATE": 0.03},
}
FIELDS = ("variant", "target", "seed", "accuracy", "sparsity", "threshold", "spread", "last")


def run(threshold, seed: int) -> dict[str, float]:
    """One training run; ``threshold(steps, scheduler)`` makes the threshold."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    x, y, x_test, y_test = digits.load()
    model = digits.network()
    steps = EPOCHS * (len(x) // BATCH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=threshold(steps, scheduler))
    penalties = []
    for _ in range(EPOCHS):
        for indices in torch.randperm(len(x)).split(BATCH)[: len(x) // BATCH]:
            nn.functional.cross_entropy(model(x[indices]), y[indices]).backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            mu = pruner.penalty
            penalties.append(max(mu.values()) if isinstance(mu, dict) else mu)
    model.eval()
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    d = pruner.threshold
    return {
        "accuracy": accuracy,
        "sparsity": pruner.sparsity(),
        "threshold": max(d.values()) if isinstance(d, dict) else d,
        **constancy(penalties),
    }


def lats(target: float, seed: int) -> dict[str, float]:
    """LATS with the D that ends at the target: damped steps in log odds against log D; the nearest of eight runs."""
    final, odds, tried = 0.1, target / (1 - target), []
    for _ in range(8):
        tried.append(run(lambda steps, scheduler, D=final: sp.LATS.from_final(D, scheduler, steps), seed))
        sparsity = tried[-1]["sparsity"]
        if abs(sparsity - target) < 2e-3:
            break
        final *= (odds * (1 - sparsity) / sparsity) ** 0.6
    return min(tried, key=lambda result: abs(result["sparsity"] - target))


def job(key: tuple[str, float, int]) -> dict[str, object]:
    variant, target, seed = key
    if variant == "LATS, D by trial":
        return {"variant": variant, "target": target, "seed": seed, **lats(target, seed)}
    for name, value in VARIANTS[variant].items():
        setattr(controller, name, value)
    result = run(lambda steps, scheduler: sp.TargetSparsity(target, steps, lr_scheduler=scheduler), seed)
    return {"variant": variant, "target": target, "seed": seed, **result}


def table(rows: list[dict[str, str]]) -> str:
    lines = [
        "| controller | target | accuracy | sparsity | spread of μ | μ at the end |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for variant, target in product(dict.fromkeys(row["variant"] for row in rows), TARGETS):
        group = [row for row in rows if row["variant"] == variant and float(row["target"]) == target]
        if not group:
            continue
        accuracy = [100 * float(row["accuracy"]) for row in group]
        mean = {key: statistics.fmean(float(row[key]) for row in group) for key in ("sparsity", "spread", "last")}
        deviation = statistics.stdev(accuracy) if len(accuracy) > 1 else 0.0
        lines.append(
            f"| {variant} | {target:.0%} | {statistics.fmean(accuracy):.2f} ± {deviation:.2f}% "
            f"| {mean['sparsity']:.2%} | {mean['spread']:.2f} | {mean['last']:.2f} × |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("target_digits.csv"))
    options = parser.parse_args()
    done = list(csv.DictReader(options.out.open())) if options.out.exists() else []
    known = {(row["variant"], float(row["target"]), int(row["seed"])) for row in done}
    keys = [k for k in product(("LATS, D by trial", *VARIANTS), TARGETS, SEEDS) if k not in known]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not done:
            writer.writeheader()
        with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
            for row in pool.imap_unordered(job, keys):
                writer.writerow(row)
                file.flush()
    print(table(list(csv.DictReader(options.out.open()))))


if __name__ == "__main__":
    main()
