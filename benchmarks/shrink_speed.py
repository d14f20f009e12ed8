"""What removing channels is worth: parameters, multiplications and time, before and after.

    pip install onnx onnxruntime
    python benchmarks/shrink_speed.py                            # on one core, in three runtimes
    python benchmarks/shrink_speed.py --networks resnet18_cifar --runtimes eager
    python benchmarks/shrink_speed.py --device cuda --runtimes eager compiled --batches 1 256 --networks resnet50

Of every place with channels, neurons or heads the smallest are set to zero, `sp.shrink` removes them, and both networks
take turns. Times are medians; ratios are taken in one run. Accuracy is not the point here: the weights are random.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
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


def eager(model: nn.Module, x: Tensor) -> Callable[[], object]:
    return lambda: model(x)


def compiled(model: nn.Module, x: Tensor) -> Callable[[], object]:
    torch.compiler.reset()
    faster = torch.compile(model)
    return lambda: faster(x)


def onnxruntime(model: nn.Module, x: Tensor) -> Callable[[], object]:
    import onnxruntime as ort

    file = io.BytesIO()
    torch.onnx.export(model, (x,), file, dynamo=False)
    one = ort.SessionOptions()
    one.intra_op_num_threads = torch.get_num_threads()
    session = ort.InferenceSession(file.getvalue(), one, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {session.get_inputs()[0].name: x.numpy()})


RUNTIMES = {"eager": eager, "compiled": compiled, "onnxruntime": onnxruntime}


@torch.inference_mode()
def seconds(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The median time of each, in turns."""
    for call in calls:
        call()
        call()
    times: list[list[float]] = [[] for _ in calls]
    for _, (call, mine) in product(range(rounds), list(zip(calls, times, strict=True))):
        synchronize()
        begin = now()
        call()
        synchronize()
        mine.append(now() - begin)
    return [statistics.median(mine) for mine in times]


def now() -> float:
    """Seconds; of this process alone on a CPU, so that others on the machine do not count."""
    return time.perf_counter() if torch.cuda.is_available() else time.process_time()


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(case: Case, share: float, batch: int, runtimes: Sequence[str], rounds: int, device: str) -> list[str]:
    torch.manual_seed(0)
    model = case.build().eval()
    kill(model, case.example(1), share)
    shrunk = sp.shrink(model, case.example(batch))
    (parameters, left), (before, after) = shrunk.parameters, shrunk.multiplications
    x = case.example(batch).to(device)
    networks = [network.to(device) for network in (model, shrunk.model)]
    if device == "cuda" and x.is_floating_point():
        x = x.bfloat16().to(memory_format=torch.channels_last)
        networks = [network.bfloat16().to(memory_format=torch.channels_last) for network in networks]
    cells = []
    for name in runtimes:
        slow, fast = seconds([RUNTIMES[name](network, x) for network in networks], rounds)
        cells.append(f"{1000 * slow:.1f} -> {1000 * fast:.1f} ms: {slow / fast:.2f} x")
    return [
        f"{share:.0%}",
        f"{batch}",
        f"{parameters / 1e6:.2f} -> {left / 1e6:.2f} M",
        f"{1 - after / before:.1%}",
        *cells,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--shares", type=float, nargs="+", default=[0.25, 0.5, 0.75])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--page", type=Path, default=DOCS / "guides" / "patterns.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, batch, share in product(options.networks, options.batches, options.shares):
        row = measure(CASES[name], share, batch, options.runtimes, options.rounds, options.device)
        rows.append([name, *row])
        print(" | ".join(rows[-1]), flush=True)
    head = ["network", "of the units", "batch", "parameters", "multiplications", *options.runtimes]
    fill([options.page], {f"removal {options.device}": table(head, rows, words=1)})


if __name__ == "__main__":
    main()
