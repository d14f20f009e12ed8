"""Filters that die before a batch norm: what becomes of a network whose gradient is the identity, and one that is calm.

    python benchmarks/dead_filters.py     # 8 minutes on one core; prints the table of docs/guides/caveats.md

`digits_resnet` (76,976 weights) on scikit-learn's digits at 98% sparsity, 200 steps of SGD, three seeds.
"""

from __future__ import annotations

import argparse
import math
import statistics
import warnings
from itertools import product

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import cross_entropy

import softprune as sp
from softprune.models import digits_resnet
from softprune.prox.gradient import Gradient
from softprune.report.markdown import table

BATCH, TEST = 64, 450
GRADIENTS = {"identity": sp.identity, "calm": sp.calm}
PROXES = {"p = 1, soft": 1.0, "p = 2": 2.0, "p = 4, the default": 4.0, "p = ∞, hard": math.inf}


def images() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images and labels to train on, and to test with."""
    features, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(features, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[TEST:], order[:TEST]
    return (x[train], y[train]), (x[test], y[test])


def accuracy(gradient: Gradient, p: float, target: float, steps: int, seed: int) -> float:
    """Per cent of the test images, after training."""
    (x, y), (others, labels) = images()
    torch.manual_seed(seed)
    model = digits_resnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    threshold = sp.TargetSparsity(target, steps, lr_scheduler=scheduler)
    prox = sp.PowerThreshold(p)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=threshold, prox=prox, gradient=gradient)
    for _ in range(steps):
        batch = torch.randint(len(x), (BATCH,))
        optimizer.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
        scheduler.step()
    pruner.detach()
    model.eval()
    with torch.no_grad():
        return 100 * float((model(others).argmax(1) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[200, 600])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--target", type=float, default=0.98)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # that weights do not outrun the threshold: these runs are short
    rows = []
    for steps, (name, gradient) in product(options.steps, GRADIENTS.items()):
        found = {
            p: [accuracy(gradient, p, options.target, steps, seed) for seed in range(options.seeds)]
            for p in PROXES.values()
        }
        rows.append([f"{steps} steps, {name}", *(f"{statistics.fmean(values):.1f}%" for values in found.values())])
        print(rows[-1], {p: [round(v, 1) for v in values] for p, values in found.items()}, flush=True)
    print(table([f"accuracy at {options.target:.0%}", *PROXES], rows))


if __name__ == "__main__":
    main()
