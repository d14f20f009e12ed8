"""What the engine's precisions cost in accuracy, on trained networks.

    python benchmarks/patterns.py --images FOLDER --models MODELS           # trains them
    python benchmarks/engine_accuracy.py --images FOLDER --models MODELS    # rows of docs/data/engine_accuracy.csv

Each network of the folder is compiled in every precision, calibrated on 512 training images, and run on all test
images; a dense one on the rivals, too, with the same calibration. The engine's fp32 is the reference: its predictions
are compared with torch's on the first thousand. Times are CPU time of one image on one thread, the least of many, in
turns.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import softprune as sp
from grid import Job
from inference import machine
from pages import DOCS
from softprune import models, recipes
from softprune.bench.comparison import RIVALS
from softprune.bench.runtimes import Runtime, TorchCompiled, Work
from softprune.data import Dataset
from softprune.engine.clock import fastest
from softprune.recipes.config import Config
from softprune.training import model_file, names

ROWS = DOCS / "data" / "engine_accuracy.csv"
FIELDS = ("job", "runtime", "accuracy", "lost", "ms", "torch ms", "sparsity", "like torch", "machine")
PRECISIONS = ("fp32", "int16", "int8")
CALIBRATION, BATCH, COMPARED = 512, 500, 1000
DENSE = 0.01  # below this share of zeros
Row = dict[str, Any]


def read(path: Path) -> tuple[Job, nn.Module]:
    """A network that a grid has saved, by the name of its run."""
    job = Job(path.stem.replace("-", "/", 1))
    network: nn.Module = getattr(models, recipes.get(job.recipe).config.network)(10)
    network.load_state_dict(model_file.read(path))
    return job, network.eval()


Predict = Callable[[Tensor], Tensor]


def converted(runtime: Runtime, network: nn.Module, example: Tensor, samples: Tensor) -> Predict:
    """For batches as large as the example."""
    work = Work(network, example.clone(), samples)
    call = runtime.convert(work)(1)

    def predict(x: Tensor) -> Tensor:
        work.example.copy_(x)
        return call()

    return predict


def candidates(network: nn.Module, batch: Tensor, samples: Tensor) -> dict[str, tuple[Predict, Predict]]:
    """What computes a batch, and what computes one image."""
    found: dict[str, tuple[Predict, Predict]] = {}
    for kind in PRECISIONS:
        engine = sp.engine.compile(network, batch[:1], samples, kind, threads=1)
        found[kind] = engine, engine
    if sp.summarize(network).sparsity < DENSE:
        for runtime in RIVALS:
            if runtime.missing() is None and not isinstance(runtime, TorchCompiled):
                each = [converted(runtime, network, example, samples) for example in (batch, batch[:1])]
                found[runtime.name] = each[0], each[1]
    return found


def predictions(predict: Predict, images: list[Tensor]) -> Tensor:
    return torch.cat([predict(x).argmax(1) for x in images])


@torch.no_grad()
def rows(path: Path, data: Dataset, where: str) -> list[Row]:
    job, network = read(path)
    pairs = list(data.val.loader(batch=BATCH, train=False))
    images, labels = [x for x, _ in pairs], torch.cat([y for _, y in pairs])
    samples = next(iter(data.train.loader(batch=CALIBRATION, train=False)))[0]
    one = images[0][:1]
    runtimes = candidates(network, images[0], samples)
    found = {name: predictions(predict, images) for name, (predict, _) in runtimes.items()}
    singles = [lambda: network(one), *(lambda predict=predict: predict(one) for _, predict in runtimes.values())]
    torch_seconds, *seconds = fastest(singles, rounds=50)
    like = predictions(network, images[: COMPARED // BATCH]) == found["fp32"][:COMPARED]
    right = {name: float((classes == labels).float().mean()) for name, classes in found.items()}
    return [
        {
            "job": job.text,
            "runtime": name,
            "accuracy": right[name],
            "lost": right["fp32"] - right[name],
            "ms": 1000 * took,
            "torch ms": 1000 * torch_seconds,
            "sparsity": sp.summarize(network).sparsity,
            "like torch": float(like.float().mean()),
            "machine": where,
        }
        for name, took in zip(runtimes, seconds, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--only", default="*", help="of the files, as in a shell")
    parser.add_argument("--machine", default=machine(), help="its name in tables; the CPU's own, if it is not given")
    parser.add_argument("--out", type=Path, default=ROWS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = names.dataset(Config(network="resnet18_cifar", data=str(options.images)))
    if not options.out.exists():
        options.out.write_text(",".join(FIELDS) + "\n")
    for path in sorted(options.models.glob(options.only)):
        found = rows(path, data, options.machine)
        with options.out.open("a", newline="") as file:
            lines = [{k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in found]
            csv.DictWriter(file, FIELDS, lineterminator="\n").writerows(lines)
        print(*found, sep="\n", flush=True)


if __name__ == "__main__":
    main()
