"""What solving for the penalty costs: the quantile of |θ| over all weights, four passes.

    python benchmarks/quantile.py [--out results.json]

One solution of TargetSparsity (survivors and quantile) on 25 million and, on a GPU, one billion weights, in tensors of
ResNet-50's shapes; its share of training at the default refresh rate, one in 100 steps of 37.7 ms (docs/benchmarks.md).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn

import softprune as sp
from softprune.models import resnet50
from softprune.pruner.hidden import Hidden
from softprune.thresholds.quantile import Cell, quantiles, survivors

CUDA = torch.cuda.is_available()
STEP, REFRESH = 37.7, 100  # ms a compiled step of ResNet-50 at batch 256 on an H200, and steps between solutions


def measure(weights: int) -> dict[str, float]:
    shapes = [p.shape for p in sp.select(resnet50()).values()]
    one = sum(shape.numel() for shape in shapes)
    device = "cuda" if CUDA else "cpu"
    copies = max(1, round(weights / one))
    tensors = {
        f"{c}.{i}": nn.Parameter(torch.randn(s, device=device)) for c in range(copies) for i, s in enumerate(shapes)
    }
    hidden = Hidden(tensors)
    cell = Cell(tuple(range(len(tensors))), (1.0,) * len(tensors), 0.95)
    base = torch.cuda.memory_allocated() if CUDA else 0
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        (d,) = quantiles(hidden, [cell])
        alive = sum(survivors(hidden, [d] * len(tensors)))
        times.append(1000 * (time.perf_counter() - begin))
    size = sum(p.numel() for p in hidden.params)
    assert abs(alive - 0.05 * size) <= 1 + 1e-6 * size
    return {
        "weights": size,
        "ms": statistics.median(times[1:]),
        "share of training": statistics.median(times[1:]) / (REFRESH * STEP),
        "extra memory, MB": (torch.cuda.max_memory_allocated() - base) / 1e6 if CUDA else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [measure(n) for n in ((25_000_000, 1_000_000_000) if CUDA else (25_000_000,))]
    for row in rows:
        print("  ".join(f"{key} {value:,.4g}" for key, value in row.items()))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
