"""The paper's findings on CIFAR-10 with ResNet-18: the runs. `benchmarks/figures.py` draws and tabulates them.

    python benchmarks/findings.py --data FOLDER                        # what docs/data/findings lacks
    python benchmarks/findings.py --data FOLDER --only slats target    # some sections
    python benchmarks/findings.py --list                               # what there is to do

A section is a list of runs. Runs are named as the command line would name them, so a finding is repeated by
`softprune train` and the run's name.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

import grid
from grid import Job, Row, Tables

TABLES = Path(__file__).parent.parent / "docs" / "data" / "findings"
SEEDS = (0, 1, 2)
FINALS = (0.03, 0.05, 0.09, 0.14)  # D: 91, 95, 98 and 99% zero at the end, under S-LATS
SPIKING_EPOCHS = 10
DECAYS = (6e-4, 9e-4, 1.5e-3, 2.2e-3)  # λ of the trained s: 90, 95, 98 and 99% zero at the end
SHARED_DECAYS = (3.4e-3, 4.5e-3, 8e-3, 1.4e-2, 2.3e-2)  # of one s for all parameters: 90, 92, 95, 98 and 99%
STARTS = (-130.0, -100.0, -80.0, -60.0, -40.0, -20.0)  # of s


def over(recipe: str, key: str, values: Iterable[float], *more: str, seeds: Iterable[int] = SEEDS) -> list[Job]:
    """A recipe at several values of a setting, for every seed; seeds change slowest."""
    return [
        Job(" ".join((recipe, f"{key}={value:g}", *more, f"seed={seed}"))) for seed, value in product(seeds, values)
    ]


def dense(recipe: str, *more: str) -> list[Job]:
    return [Job(" ".join((recipe, *more, f"seed={seed}"))) for seed in SEEDS]


def target(rows: list[Row]) -> list[Job]:
    """The sparsity that S-LATS reached, as a target: both can be compared at one sparsity.

    With the prox of S-LATS, and pruning until the end as S-LATS does.
    """
    found = []
    for row in rows:
        job = Job(row["job"])
        if job.recipe == "cifar10/slats" and set(job.changes) == {"final", "seed"}:
            final, seed = job.changes["final"], job.changes["seed"]
            aim = f"target={float(row['sparsity']):.4f} power=1 arrive=1"
            found.append(Job(f"cifar10/slats final={final} {aim} seed={seed}"))
    return found


def fixed(jobs: list[Job]) -> Callable[[list[Row]], list[Job]]:
    return lambda rows: jobs


NO_DECAY = "weight_decay=0"
SECTIONS: dict[str, Callable[[list[Row]], list[Job]]] = {
    "dense": fixed(dense("cifar10/dense")),
    "slats": fixed(over("cifar10/slats", "final", FINALS, seeds=range(6))),  # what all others are compared with
    "target": target,
    "lats": fixed(over("cifar10/lats", "final", FINALS)),
    "schedules": fixed(
        [
            *over("cifar10/slats", "final", FINALS[1:], NO_DECAY),
            *over("cifar10/sine", "final", FINALS[1:3], NO_DECAY),
            *over("cifar10/linear", "final", FINALS[1:3], NO_DECAY),
            *over("cifar10/log2", "final", FINALS[1:3], NO_DECAY),
        ]
    ),
    "pgh": fixed(
        [job for beta in ("0.1", "1e-5", "1e-10") for job in over(f"cifar10/pgh-{beta}", "final", FINALS[1:3])]
    ),
    "init": fixed(over("cifar10/pgh-0", "final", (0.03, 0.1, 0.15, 0.2, 0.3))),
    "stds": fixed(over("cifar10/sine", "final", (0.022, *FINALS))),  # it ends sparser than S-LATS
    "str": fixed(over("cifar10/str", "threshold_decay", DECAYS)),
    "str-gs": fixed(over("cifar10/str-gs", "threshold_decay", SHARED_DECAYS)),
    "gpo": fixed(over("cifar10/gpo", "threshold_decay", DECAYS)),
    "starts": fixed(over("cifar10/str", "init", STARTS, "threshold_decay=0.0005", seeds=SEEDS[:1])),
    "batch": fixed(
        [  # the learning rate with the square root of the batch, as the paper's from 256 to 1024
            *dense("cifar10/dense", "batch=256", "lr=0.28"),
            *dense("cifar10/dense", "batch=1024", "lr=0.56"),
            *over("cifar10/slats", "final", FINALS[1:3], "batch=256", "lr=0.28"),
            *over("cifar10/slats", "final", FINALS[1:3], "batch=1024", "lr=0.56"),
        ]
    ),
    "warmup": fixed(
        [
            *over("cifar10/slats", "final", FINALS[1:2], "warmup=10"),
            *over("cifar10/lats", "final", FINALS[1:2], "warmup=10"),
        ]
    ),
    "mobilenet": fixed(
        [
            *dense("cifar10/dense", "network=mobilenet_v1_cifar"),
            *over("cifar10/slats", "final", (0.1, 0.3), "network=mobilenet_v1_cifar"),
            *over("cifar10/str", "threshold_decay", DECAYS[1::2], "network=mobilenet_v1_cifar"),
        ]
    ),
    "spiking": fixed(
        [
            *dense("sew_cifar10/dense", f"epochs={SPIKING_EPOCHS}"),
            *over("sew_cifar10/slats", "final", (0.02, 0.05, 0.15), f"epochs={SPIKING_EPOCHS}"),
            *over("sew_cifar10/sine", "final", (0.02, 0.05, 0.15), f"epochs={SPIKING_EPOCHS}"),
        ]
    ),
}


def missing(section: str, rows: list[Row]) -> list[Job]:
    """What is to be done, given the runs done."""
    return grid.missing(SECTIONS[section](rows), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="CIFAR-10: a folder with train/ and test/ class folders")
    options = grid.options(parser, SECTIONS, TABLES)
    tables = Tables(options.tables)

    def jobs(rows: list[Row]) -> list[Job]:
        return [job for name in options.only for job in SECTIONS[name](rows)]

    if options.list:
        for name in options.only:
            jobs_to_do = missing(name, tables.runs)
            print(f"{name:12} {len(jobs_to_do):4} runs to do" + "".join(f"\n  {job.text}" for job in jobs_to_do))
    elif options.data is None:
        parser.error("training needs --data FOLDER")
    else:
        grid.run(jobs, options.data, tables, options.processes)


if __name__ == "__main__":
    main()
