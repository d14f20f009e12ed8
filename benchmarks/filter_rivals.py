"""Rivals of `benchmarks/patterns.py`: whole filters, as Torch-Pruning removes them.

    pip install torch-pruning
    python benchmarks/filter_rivals.py --images FOLDER            # what docs/data/patterns/rivals.csv lacks

ResNet-18 on CIFAR-10 with the data, the optimizer and the 15 epochs of the recipe cifar10/dense: ten epochs of
training, removal to the share of multiplications asked for, five epochs of fine-tuning. The first seed tries several
learning rates for these, since a rival deserves its best one.

    l1       train, remove the filters whose L1 norms are smallest, the same share of every layer: if all layers
             compete, whole layers go first
    lasso    train with the group regularisation of Torch-Pruning's GroupNormPruner, with the strength of its own
             benchmark, remove the smallest groups, for which all layers compete
"""

from __future__ import annotations

import argparse
import copy
import csv
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from softprune import recipes
from softprune.data import Dataset
from softprune.recipes.config import Config
from softprune.training import names
from softprune.training.rate import Rate

TABLE = Path(__file__).parent.parent / "docs" / "data" / "patterns" / "rivals.csv"
FIELDS = ("rival", "target", "lr", "seed", "accuracy", "multiplications", "parameters", "seconds", "device")
BEFORE, AFTER = 10, 5  # epochs
TARGETS = (0.3, 0.5, 0.7, 0.9)
RATES = (0.04, 0.1, 0.4)  # of fine-tuning: a tenth, a quarter and all of that of training
SHARED = 0.1  # the one that every seed is fine-tuned with; the first seed tries all
SEEDS = (0, 1, 2)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Row = dict[str, Any]


class Rival:
    """A network that is trained, cut, and trained again."""

    def __init__(self, kind: str, seed: int, data: Dataset, config: Config) -> None:
        self.kind, self.data, self.config = kind, data, replace(config, seed=seed)
        torch.manual_seed(seed)
        network = names.NETWORKS.find(config.network).build(len(data.classes), data.shape)
        self.network = network.to(DEVICE, memory_format=torch.channels_last)
        self.example = torch.randn(1, *data.shape, device=DEVICE)

    def pruner(self, network: nn.Module) -> Any:
        import torch_pruning as tp

        last = [m for m in network.modules() if isinstance(m, nn.Linear)]
        settings = {"pruning_ratio": 1.0, "iterative_steps": 400, "ignored_layers": last}
        if self.kind == "l1":
            importance = tp.importance.MagnitudeImportance(p=1)
            return tp.pruner.MagnitudePruner(network, self.example, importance, **settings)
        importance = tp.importance.GroupMagnitudeImportance(p=2, normalizer="max")
        return tp.pruner.GroupNormPruner(network, self.example, importance, reg=5e-4, global_pruning=True, **settings)

    def train(self, network: nn.Module, epochs: int, lr: float, warmup: int, pruner: Any = None) -> None:
        config = replace(self.config, epochs=epochs, lr=lr, warmup=warmup)
        loader = self.data.train.loader(batch=config.batch, train=True, seed=config.seed, device=DEVICE, workers=0)
        rate = Rate.of(config, len(loader))
        optimizer = names.OPTIMIZERS.find(config.optimizer).build([{"params": network.parameters()}], config)
        network.train()
        step = 0
        for _ in range(epochs):
            for x, y in loader:
                optimizer.param_groups[0]["lr"] = lr * rate(step)
                with torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda"):
                    loss = nn.functional.cross_entropy(network(x), y, label_smoothing=config.label_smoothing)
                optimizer.zero_grad()
                loss.backward()
                if pruner is not None:
                    pruner.regularize(network)
                optimizer.step()
                step += 1

    def prepare(self) -> None:
        lasso = self.kind == "lasso"
        self.train(
            self.network, BEFORE, self.config.lr, self.config.warmup, self.pruner(self.network) if lasso else None
        )

    def cut(self, target: float) -> nn.Module:
        """A copy without the share ``target`` of the multiplications."""
        import torch_pruning as tp

        network = copy.deepcopy(self.network)
        for p in network.parameters():
            p.grad = None
        pruner = self.pruner(network)
        whole = tp.utils.count_ops_and_params(network, self.example)[0]
        while tp.utils.count_ops_and_params(network, self.example)[0] > (1 - target) * whole:
            pruner.step()
        return network

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> float:
        network.eval()
        right = torch.zeros((), device=DEVICE)
        for x, y in self.data.val.loader(batch=1000, train=False, device=DEVICE, workers=0):
            right += (network(x).argmax(1) == y).sum()
        return float(right) / len(self.data.val)

    def row(self, target: float, lr: float) -> Row:
        import torch_pruning as tp

        begin = time.perf_counter()
        network = self.cut(target)
        self.train(network, AFTER, lr, warmup=1)
        before, after = (tp.utils.count_ops_and_params(n, self.example) for n in (self.network, network))
        return {
            "rival": self.kind,
            "target": target,
            "lr": lr,
            "seed": self.config.seed,
            "accuracy": self.accuracy(network),
            "multiplications": f"{after[0] / before[0]:.6g}",
            "parameters": f"{after[1] / before[1]:.6g}",
            "seconds": round(time.perf_counter() - begin, 1),
            "device": torch.cuda.get_device_name() if DEVICE.type == "cuda" else "CPU",
        }


def work(kind: str, seed: int, images: Path, cells: list[tuple[float, float]], table: Path) -> None:
    """One network, cut in several ways, each of which adds its row to the table when it is done."""
    torch.set_num_threads(1)
    config = recipes.get("cifar10/dense").config
    rival = Rival(kind, seed, names.dataset(replace(config, data=str(images))), config)
    rival.prepare()
    for target, lr in cells:
        row = rival.row(target, lr)
        with table.open("a", newline="") as file:
            csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(row)
        print(row, flush=True)


def read(table: Path) -> list[Row]:
    return list(csv.DictReader(table.read_text().splitlines())) if table.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--processes", type=int, default=3)
    options = parser.parse_args()
    done = {(row["rival"], float(row["target"]), float(row["lr"]), int(row["seed"])) for row in read(options.table)}
    options.table.parent.mkdir(parents=True, exist_ok=True)
    if not options.table.exists():
        options.table.write_text(",".join(FIELDS) + "\n")
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        futures = []
        for seed, kind in product(SEEDS, ("l1", "lasso")):
            rates = RATES if seed == SEEDS[0] else (SHARED,)
            cells = [(t, lr) for lr, t in product(rates, TARGETS) if (kind, t, lr, seed) not in done]
            if cells:
                futures.append(pool.submit(work, kind, seed, options.images, cells, options.table))
        for future in as_completed(futures):
            future.result()


if __name__ == "__main__":
    main()
