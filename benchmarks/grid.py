"""Many runs of the command's recipes on one GPU, a few at a time; what is done already is not done again.

A small network's step is bound by the host, so several processes share the GPU, each with the data in memory; five of
them under CUDA's MPS (`nvidia-cuda-mps-control -d`) do a quarter more than three without it, and fill an H200:
eight do no more. A spiking network fills it alone. A folder of three tables takes what comes out, as it comes:

    runs.csv      a run each: what it was, accuracy, sparsity, validation loss, how constant the penalty was
    layers.csv    a layer each: size, zeros, threshold                  (of the first seed)
    curves.csv    a point each: sparsity, threshold, penalty, accuracy  (of the first seed)

Killed at any moment, a grid loses only the runs that were under way.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from softprune import recipes
from softprune.data import Dataset
from softprune.recipes.config import Config
from softprune.training import history, names
from softprune.training.recorder import interval
from softprune.training.run import Run
from summary import constancy

CUDA = torch.cuda.is_available()
Row = dict[str, Any]

FIELDS = {
    "runs": (
        "job",
        "accuracy",
        "sparsity",
        "validation loss",
        "threshold",
        "zeroed",
        "spread",
        "landing",
        "firing rate",
        "synaptic operations",
        "energy (nJ)",
        "parameters left",
        "multiplications left",
        "seconds",
        "device",
    ),
    "layers": ("job", "layer", "parameters", "zeros", "threshold"),
    "curves": ("job", "step", "sparsity", "threshold", "penalty", "accuracy", "val_loss", "pull", "k"),
}
POINTS = 50  # of a curve
SMALLER = ("parameters", "multiplications")  # is the network without what died


@dataclass(frozen=True)
class Job:
    """A recipe and changes to it, written as on the command line: ``cifar10/slats final=0.1 seed=1``."""

    text: str

    @property
    def recipe(self) -> str:
        return self.text.split()[0]

    @property
    def changes(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.text.split()[1:])

    @property
    def first_seed(self) -> bool:
        return self.changes.get("seed", "0") == "0"


class Tables:
    """The three tables of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = self._read("runs")

    def layers(self, job: str) -> list[Row]:
        return [row for row in self._read("layers") if row["job"] == job]

    def curve(self, job: str) -> list[Row]:
        return [row for row in self._read("curves") if row["job"] == job]

    def add(self, run: Row, layers: Iterable[Row], curve: Iterable[Row]) -> None:
        """The run last: it says that the others are complete."""
        self._append("layers", layers)
        self._append("curves", curve)
        self._append("runs", [run])
        self.runs.append({key: str(_short(value)) for key, value in run.items()})

    def _read(self, name: str) -> list[Row]:
        path = self.folder / f"{name}.csv"
        return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []

    def _append(self, name: str, rows: Iterable[Row]) -> None:
        """Below the columns that a table has already, should there be more of them now."""
        path = self.folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        begin = not path.exists()
        fields = FIELDS[name] if begin else path.read_text().partition("\n")[0].split(",")
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, fields, restval="", lineterminator="\n")
            if begin:
                writer.writeheader()
            writer.writerows({key: _short(row.get(key)) for key in fields} for row in rows)


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


class Pull(Callback):
    """What moves a trained threshold: how strong the gradient on s is against weight decay, λ·s; and GPO's k."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._gradient: torch.Tensor | None = None

    def on_train_start(self, trainer: Any, task: Any) -> None:
        if task.pruner is not None and task.pruner.rule.trained:
            task.pruner.rule.threshold.s.register_hook(self._see)

    def _see(self, gradient: torch.Tensor) -> None:
        self._gradient = gradient.detach()

    def on_train_batch_end(self, trainer: Any, task: Any, *_: Any) -> None:
        if self._gradient is None or trainer.global_step % interval(task.steps):
            return
        threshold = task.pruner.rule.threshold
        decay = next(
            group["weight_decay"]
            for group in trainer.optimizers[0].param_groups
            if any(p is threshold.s for p in group["params"])
        )
        row = {
            "step": trainer.global_step,
            "pull": float((self._gradient / (decay * threshold.s.detach())).abs().mean()),
        }
        if hasattr(threshold, "b"):
            row["k"] = float(threshold.SCALE * threshold.b.detach().abs().mean())
        self.rows.append(row)


@dataclass(frozen=True)
class Places:
    """Where the data of recipes are: images for those that need a folder, and another text for those that read text;
    data that are embedded stay."""

    images: Path | None = None
    text: Path | None = None

    def of(self, config: Config) -> str:
        entry = names.kind_of_data(config)
        if entry.kind == "text" and self.text is not None:
            return f"text:{self.text}"
        return str(self.images) if entry.name == "FOLDER" and self.images is not None else config.data


_compiled: tuple[str, int] | None = None  # the network and the batch of the last run


def prepare() -> None:
    """In each process, once. One thread: the work is the GPU's, or small."""
    torch.set_num_threads(1)


@cache
def dataset(network: str, where: str, image_size: int | None) -> Dataset:
    """In each process, once for each network: images are decoded, text is read."""
    return names.dataset(Config(network=network, data=where, image_size=image_size))


def work(job: Job, places: Places, models: Path | None = None) -> tuple[Row, list[Row], list[Row]]:
    config = recipes.get(job.recipe).config.override(job.text.split()[1:])
    config = replace(config, data=places.of(config))
    if not CUDA:
        config = replace(config, compile=False, precision="32-true")
    samples = dataset(config.network, config.data, config.image_size)
    global _compiled
    if _compiled != (config.network, config.batch):  # else what is compiled already serves again
        torch.compiler.reset()
        _compiled = config.network, config.batch
    begin, pull = time.perf_counter(), Pull()
    with tempfile.TemporaryDirectory() as out:
        run = Run.create(Path(out) / "run", config)
        outcome = run.train(say=lambda _: None, callbacks=[pull], data=samples)
        points = history.read(run.folder / "history.jsonl")
        complete = run.outcome
        if models is not None and job.first_seed:
            models.mkdir(parents=True, exist_ok=True)
            shutil.copy(run.folder / "model.safetensors", models / f"{job.text.replace('/', '-')}.safetensors")
    assert complete is not None
    layers = complete["report"]["layers"]
    row = {
        "job": job.text,
        "accuracy": outcome.accuracy,
        "sparsity": outcome.sparsity,
        "threshold": max((layer["threshold"] or 0.0 for layer in layers), default=0.0),
        "zeroed": sum(layer["zeros"] == layer["parameters"] for layer in layers),
        **constancy(*([point[key] for point in points if "penalty" in point] for key in ("penalty", "threshold"))),
        **outcome.figures,
        **{f"{what} left": pair[1] / pair[0] for what, pair in (complete["small"] or {}).items() if what in SMALLER},
        "seconds": time.perf_counter() - begin,
        "device": torch.cuda.get_device_name() if CUDA else "CPU",
    }
    if not job.first_seed:
        return row, [], []
    curve = [point for point in points if "sparsity" in point]
    thinned = curve[:: max(1, len(curve) // POINTS)] + [point for point in points if "accuracy" in point]
    thinned += pull.rows[:: max(1, len(pull.rows) // POINTS)]
    return (
        row,
        [{"job": job.text, "layer": layer["name"], **layer} for layer in layers],
        [{"job": job.text, **point} for point in sorted(thinned, key=lambda point: point["step"])],
    )


def options(parser: argparse.ArgumentParser, sections: Iterable[str], tables: Path) -> argparse.Namespace:
    """Those of every script that runs a grid, beside its own."""
    parser.add_argument("--only", nargs="+", choices=sections, default=list(sections), metavar="SECTION")
    parser.add_argument("--tables", type=Path, default=tables)
    parser.add_argument("--processes", type=int, default=3 if CUDA else 1)
    parser.add_argument("--models", type=Path, help="a folder that takes the networks of the first seed")
    parser.add_argument("--list", action="store_true", help="say what is missing, and do nothing")
    return parser.parse_args()


def missing(jobs: Iterable[Job], rows: Iterable[Row]) -> list[Job]:
    """What is to be done, given the runs done."""
    done = {row["job"] for row in rows}
    return [job for job in jobs if job.text not in done]


def run(
    jobs: Callable[[list[Row]], Sequence[Job]],
    folder: Path | None,
    tables: Tables,
    processes: int,
    text: Path | None = None,
    models: Path | None = None,
) -> None:
    """Do what ``jobs`` asks for and the tables lack; ``jobs`` sees the runs done, and is asked again after each.

    Args:
        jobs: the runs done -> the runs wanted.
        folder: of the images, for recipes that need one.
        tables: take what comes out.
        processes: at a time.
        text: a file or folder of text, for recipes that read text; their own when None.
        models: takes the networks of the first seed.
    """
    known = {row["job"] for row in tables.runs}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, prepare) as pool:
        waiting = {}
        while True:
            for job in jobs(tables.runs):
                if job.text not in known:
                    known.add(job.text)
                    waiting[pool.submit(work, job, Places(folder, text), models)] = job
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                job = waiting.pop(future)
                try:
                    row, layers, curve = future.result()
                except Exception as error:  # one run's trouble is not the others'
                    print(f"failed: {job.text}: {error}", flush=True)
                    continue
                tables.add(row, layers, curve)
                print(
                    f"{row['accuracy']:.2%}, loss {row['validation loss']:.4f} at {row['sparsity']:.2%} in "
                    f"{row['seconds']:.0f} s: {row['job']}",
                    flush=True,
                )
