"""Training at full size, as the command does it: seconds an epoch, images a second, and who waits for whom.

    python benchmarks/training.py cifar10 --data FOLDER   # ResNet-18, S-LATS, 30 epochs: accuracy, wall and epoch time
    export CUDA_DEVICE_MAX_CONNECTIONS=32                 # as the command does for itself
    python benchmarks/training.py imagenet                # ResNet-50 on a folder of synthetic JPEGs of ImageNet's size

The second trains on JPEG files that the GPU decodes, or workers by torchvision or by Pillow, and on some of these
batches kept on the device, with each number of cores. The share of time that the device waits for data is 1 − (time of
the last) / (time of the others), which counts what decoding takes from the network. The share of time that the loop is
between two steps tells whether batches come too late, or steps take longer. `--out` writes JSON as it goes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from unittest import mock

import torch
from lightning.pytorch import Callback, seed_everything
from torch.utils.data import DataLoader

from image_pipeline import make_images
from softprune import data, recipes
from softprune.data import decode, gpu
from softprune.recipes.config import Config
from softprune.training.run import Run
from softprune.training.stream import Samples
from softprune.training.task import Task
from softprune.training.trainer import build, quieten

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda:0" if CUDA else "cpu")
WAYS = ("GPU", "torchvision", "Pillow")
EVERY = sorted(os.sched_getaffinity(0))


class Clock(Callback):
    """When each step was over, the device included, and how long the loop had been between two steps."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.times: list[tuple[int, float, float]] = []
        self.between, self.ended = 0.0, time.perf_counter()

    def on_train_batch_start(self, *_) -> None:
        self.between += time.perf_counter() - self.ended

    def on_train_batch_end(self, trainer, module, *_) -> None:
        if trainer.global_step % self.every == 0:
            if CUDA:
                torch.cuda.synchronize()
            self.times.append((trainer.global_step, time.perf_counter(), self.between))
        self.ended = time.perf_counter()

    def seconds_a_step(self) -> tuple[float, float]:
        """In all, and between two of them. From the middle on: what comes before is compilation, and batches that
        workers made ready meanwhile."""
        (first, begin, before), (last, end, after) = self.times[(len(self.times) - 1) // 2], self.times[-1]
        return (end - begin) / (last - first), (after - before) / (last - first)


def cifar10(folder: Path, config: Config, small: str) -> tuple[dict[str, object], dict]:
    """Train on a folder of CIFAR-10 and clock it; without a GPU a ``small`` network, uncompiled. Also returns
    what report.json held."""
    config = replace(config, data=str(folder))
    if not CUDA:
        config = replace(config, compile=False, precision="32-true", network=small)
    with tempfile.TemporaryDirectory() as out:
        run = Run.create(Path(out) / "run", config)
        batches = sum(1 for path in (folder / "train").rglob("*") if path.is_file()) // config.batch
        clock = Clock(batches)
        begin = time.perf_counter()
        outcome = run.train(callbacks=[clock])
        wall = time.perf_counter() - begin
        complete = run.outcome
    return {
        "run": f"{config.method}, {config.network}, {config.epochs} epochs, batch {config.batch}",
        "accuracy": outcome.accuracy,
        "sparsity": outcome.sparsity,
        "wall seconds": wall,
        "seconds an epoch": clock.seconds_a_step()[0] * batches,
        **outcome.figures,
    }, complete


def imagenet(steps: int, batch: int, cores: Sequence[int], ways: Sequence[str], out: Path | None) -> dict[str, object]:
    config = recipes.get("resnet50/slats").config
    config = replace(config, batch=batch, epochs=1, warmup=0)
    size = 224
    if not CUDA:
        config, size = replace(config, compile=False, precision="32-true", network="resnet18"), 64
    result: dict[str, object] = {"run": f"resnet50/slats, batch {batch}"}
    with tempfile.TemporaryDirectory() as folder:
        make_images(Path(folder), max(2 * batch, 2048 if CUDA else 64))
        images = data.folder(folder, size=size)
        config = replace(config, epochs=-(-steps // (len(images.train) // batch)))
        for number in cores:
            os.sched_setaffinity(0, EVERY[:number])
            mine = replace(config, workers=number)
            kept, _ = train(Kept(mine, images), steps)
            result[f"{number} cores, images a second from the device"] = batch / kept
            for way in ways:
                if (way == "GPU" and gpu.unable(DEVICE)) or (way == "torchvision" and not decode.torchvision()):
                    continue
                files = data.folder(folder, size=size, on_gpu=way == "GPU")
                with mock.patch.object(decode, "torchvision", return_value=None) if way == "Pillow" else nullcontext():
                    seconds, between = train(Samples(mine, files), steps)
                result[f"{number} cores, images a second by {way}"] = batch / seconds
                result[f"{number} cores, share of time waiting by {way}"] = 1 - kept / seconds
                result[f"{number} cores, share of time between steps by {way}"] = between / seconds
                if out:
                    out.write_text(json.dumps(result, indent=1))
    return result


class Kept(Samples):
    """The first batches, on the device, again and again."""

    def train_dataloader(self) -> DataLoader:
        batches = list(islice(super().train_dataloader(), 4))
        return DataLoader(list(islice(cycle(batches), self.config.epochs * self.batches())), batch_size=None)


def train(module: Samples, steps: int) -> tuple[float, float]:
    """Seconds a step of the command's own task and loaders, and how many of them between two steps."""
    seed_everything(0, verbose=False)
    config, images = module.config, module.data
    task = Task(config, len(images.classes), images.shape, module.batches())
    clock = Clock(max(1, steps // 5))
    trainer = build(config, max_steps=steps, limit_val_batches=0, use_distributed_sampler=False, callbacks=[clock])
    trainer.fit(task, module)
    return clock.seconds_a_step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=["cifar10", "imagenet"])
    parser.add_argument("--data", type=Path, help="cifar10: a folder with train/ and test/ class folders")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=400 if CUDA else 5)
    parser.add_argument("--batch", type=int, default=256 if CUDA else 8)
    parser.add_argument("--cores", type=int, nargs="+", default=[len(EVERY)], help="imagenet: as many workers, too")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="imagenet: who decodes")
    parser.add_argument("--out", type=Path, help="also write the result to this JSON file")
    options = parser.parse_args()
    quieten()
    if options.job == "cifar10":
        if options.data is None:
            parser.error("cifar10 needs --data FOLDER")
        result, _ = cifar10(
            options.data, replace(recipes.get("cifar10/slats").config, epochs=options.epochs), "resnet20"
        )
    else:
        result = imagenet(options.steps, options.batch, options.cores, options.ways, options.out)
    publish(result, options.out)


def publish(result: dict[str, object], out: Path | None) -> None:
    """Print one line each, and write the JSON file, nested values included, if one is wanted."""
    name = torch.cuda.get_device_name() if CUDA else f"CPU, {torch.get_num_threads()} threads"
    result = {"device": name, "torch": torch.__version__, **result}
    for key, value in result.items():
        if not isinstance(value, dict):
            print(f"{key:36} {value:.4g}" if isinstance(value, float) else f"{key:36} {value}")
    if out:
        out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
