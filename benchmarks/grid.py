"""Many runs of the command's recipes on one GPU, a few at a time; what is done already is not done again.

A small network's step is bound by the host, so several processes share the GPU, each with the images in memory. A
finished run is one line of JSON: its recipe, what was changed, accuracy, the report and the curves. Killed at any
moment, a grid loses only the runs that were under way.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from softprune import data, recipes
from softprune.training import history
from softprune.training.run import Run

CUDA = torch.cuda.is_available()
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Job:
    """A recipe and changes to it, such as ``("final=0.1", "seed=1")``."""

    recipe: str
    changes: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.recipe, *self.changes))


_images: data.Dataset | None = None


def prepare(folder: Path) -> None:
    """In each process, once: read and decode the images."""
    global _images
    _images = data.folder(folder)


def work(job: Job, folder: Path) -> dict[str, Any]:
    config = replace(recipes.get(job.recipe).config, data=str(folder)).override(job.changes)
    if not CUDA:
        config = replace(config, network="resnet20", compile=False, precision="32-true")
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        run = Run.create(Path(out) / "run", config)
        outcome = run.train(progress=False, images=_images)
        curves = history.read(run.folder / "history.jsonl")
        complete = run.outcome
    assert complete is not None
    return {
        "job": str(job),
        "recipe": job.recipe,
        "changes": dict(change.split("=", 1) for change in job.changes),
        "accuracy": outcome.accuracy,
        "sparsity": outcome.sparsity,
        "seconds": time.perf_counter() - begin,
        "device": torch.cuda.get_device_name() if CUDA else "CPU",
        "report": complete["report"],
        "history": curves,
    }


def run(jobs: Callable[[Rows], Sequence[Job]], folder: Path, out: Path, processes: int) -> Rows:
    """Do what ``jobs`` asks for and ``out`` lacks; ``jobs`` sees what is done, and is asked again after each run."""
    rows = read(out)
    known = {row["job"] for row in rows}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, prepare, (folder,)) as pool, out.open("a") as file:
        waiting = {}
        while True:
            for job in jobs(rows):
                if str(job) not in known:
                    known.add(str(job))
                    waiting[pool.submit(work, job, folder)] = job
            if not waiting:
                return rows
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                row, job = future.result(), waiting.pop(future)
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(f"{row['accuracy']:.2%} at {row['sparsity']:.2%} in {row['seconds']:.0f} s: {job}", flush=True)


def read(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, help="CIFAR-10: a folder with train/ and test/ class folders")
    parser.add_argument(
        "--runs", type=Path, required=True, help="finished runs, a line of JSON each; more are appended"
    )
    parser.add_argument("--csv", type=Path, help="write the table's rows here")
    parser.add_argument("--processes", type=int, default=3 if CUDA else 1)
    parser.add_argument("--epochs", type=int, default=30)
    return parser.parse_args()
