"""What removing channels is worth: parameters, multiplications and time, before and after.

    python benchmarks/shrink_speed.py                            # 6 minutes on one core
    python benchmarks/shrink_speed.py --networks resnet18_cifar  # one network

Of every place with channels, neurons or heads the smallest are set to zero, `sp.shrink` removes them, and both networks
take turns. Times are medians; ratios are taken in one run. Accuracy is not the point here: the weights are random.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import softprune as sp
from pages import DOCS, fill
from softprune import models
from softprune.report.markdown import table
from softprune.structure import analyse


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    example: Callable[[int], Tensor]  # of a batch size


def _images(size: int) -> Callable[[int], Tensor]:
    return lambda batch: torch.randn(batch, 3, size, size)


CASES = {
    "resnet50": Case(models.resnet50, _images(224)),
    "mobilenet_v1": Case(models.mobilenet_v1, _images(224)),
    "resnet18_cifar": Case(models.resnet18_cifar, _images(32)),
    "gpt": Case(models.gpt, lambda batch: torch.randint(256, (batch, 256))),
}


@torch.no_grad()
def kill(model: nn.Module, example: Tensor, share: float) -> None:
    """Set to zero what reads this share of the units of every place, the least read of them."""
    structure = analyse(model, example)
    weights = dict(model.named_parameters())
    norms = torch.zeros(max(site.units.stop for site in structure.sites))
    reading = [axis for axis in structure.axes if axis.reads]
    for axis in reading:
        squares = weights[axis.name].square().transpose(0, axis.dim).flatten(1).sum(1)
        norms.index_add_(0, axis.units[axis.units >= 0], squares[axis.units >= 0])
    dead = torch.zeros_like(norms, dtype=torch.bool)
    for site in structure.sites:
        units = torch.tensor(list(site.units))
        dead[units[norms[units].argsort()[: int(share * len(units))]]] = True
    dead = torch.cat([dead, dead.new_zeros(1)])  # index -1 is that of no unit
    for axis in reading:
        weights[axis.name].transpose(0, axis.dim)[dead[axis.units]] = 0


def measure(case: Case, share: float, batch: int, rounds: int) -> list[str]:
    torch.manual_seed(0)
    model = case.build().eval()
    kill(model, case.example(1), share)
    shrunk = sp.shrink(model, case.example(batch))
    latency = shrunk.latency(rounds)
    (parameters, left), (before, after) = shrunk.parameters, shrunk.multiplications
    return [
        f"{share:.0%}",
        f"{batch}",
        f"{parameters / 1e6:.2f} -> {left / 1e6:.2f} M",
        f"{1 - after / before:.1%}",
        f"{1000 * latency.before:.1f} -> {1000 * latency.after:.1f} ms",
        f"{latency.speedup:.2f} x",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--shares", type=float, nargs="+", default=[0.25, 0.5, 0.75])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--page", type=Path, default=DOCS / "guides" / "patterns.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in options.networks:
        for batch in options.batches:
            for share in options.shares:
                rows.append([name, *measure(CASES[name], share, batch, options.rounds)])
                print(" | ".join(rows[-1]), flush=True)
    head = ["network", "of the units", "batch", "parameters", "multiplications", "time", "faster"]
    fill([options.page], {"removal": table(head, rows, words=1)})


if __name__ == "__main__":
    main()
