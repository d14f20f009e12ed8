"""What the engine's precisions cost in accuracy, on trained networks.

    python benchmarks/patterns.py --images FOLDER --models MODELS           # trains them
    python benchmarks/engine_accuracy.py --images FOLDER --models MODELS    # rows of docs/data/engine_accuracy.csv

Each network of the folder is compiled in every precision, calibrated on 512 training images, and run on all test
images. fp32 is the reference: its predictions are compared with torch's on the first thousand. Times are CPU time of
one image on one thread, the least of many, in turns.
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
from pages import DOCS
from softprune import models, recipes
from softprune.data import Dataset
from softprune.engine.clock import fastest
from softprune.recipes.config import Config
from softprune.training import model_file, names

ROWS = DOCS / "data" / "engine_accuracy.csv"
FIELDS = ("job", "precision", "accuracy", "lost", "ms", "torch ms", "sparsity", "like torch")
PRECISIONS = ("fp32", "int16", "int8")
CALIBRATION, BATCH, COMPARED = 512, 500, 1000
Row = dict[str, Any]


def read(path: Path) -> tuple[Job, nn.Module]:
    """A network that a grid has saved, by the name of its run."""
    job = Job(path.stem.replace("-", "/", 1))
    network: nn.Module = getattr(models, recipes.get(job.recipe).config.network)(10)
    network.load_state_dict(model_file.read(path))
    return job, network.eval()


def predictions(call: Callable[[Tensor], Tensor], images: list[Tensor]) -> Tensor:
    return torch.cat([call(x).argmax(1) for x in images])


@torch.no_grad()
def rows(path: Path, data: Dataset) -> list[Row]:
    job, network = read(path)
    pairs = list(data.val.loader(batch=BATCH, train=False))
    images, labels = [x for x, _ in pairs], torch.cat([y for _, y in pairs])
    calibration = next(iter(data.train.loader(batch=CALIBRATION, train=False)))[0]
    one = images[0][:1]
    engines = [sp.engine.compile(network, one, calibration, kind, threads=1) for kind in PRECISIONS]
    found = [predictions(engine, images) for engine in engines]
    seconds = fastest([lambda: network(one), *(lambda engine=engine: engine(one) for engine in engines)], rounds=15)
    like = predictions(network, images[: COMPARED // BATCH]) == found[0][:COMPARED]
    exact = float((found[0] == labels).float().mean())
    return [
        {
            "job": job.text,
            "precision": kind,
            "accuracy": (accuracy := float((found[i] == labels).float().mean())),
            "lost": exact - accuracy,
            "ms": 1000 * seconds[i + 1],
            "torch ms": 1000 * seconds[0],
            "sparsity": sp.summarize(network).sparsity,
            "like torch": float(like.float().mean()),
        }
        for i, kind in enumerate(PRECISIONS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--only", default="*", help="of the files, as in a shell")
    parser.add_argument("--out", type=Path, default=ROWS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = names.dataset(Config(network="resnet18_cifar", data=str(options.images)))
    if not options.out.exists():
        options.out.write_text(",".join(FIELDS) + "\n")
    for path in sorted(options.models.glob(options.only)):
        found = rows(path, data)
        with options.out.open("a", newline="") as file:
            lines = [{k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in found]
            csv.DictWriter(file, FIELDS, lineterminator="\n").writerows(lines)
        print(*found, sep="\n", flush=True)


if __name__ == "__main__":
    main()
