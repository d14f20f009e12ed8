"""What a pattern costs in accuracy: channels, blocks and zeros anywhere, at equal multiplications or equal weights.

    python benchmarks/patterns.py --images FOLDER            # what docs/data/patterns lacks
    python benchmarks/patterns.py --only blocks --images FOLDER
    python benchmarks/patterns.py --list                     # what there is to do
    python benchmarks/filter_rivals.py --images FOLDER       # the rivals: filters by L1 norm and by group lasso

ResNet-18 and MobileNet-V1 on CIFAR-10, 15 epochs, and two transformers. A run is named as the command line would name
it. `benchmarks/patterns_tables.py` makes tables and pictures.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import grid
from grid import Job, Tables

TABLES = Path(__file__).parent.parent / "docs" / "data" / "patterns"
MULTIPLICATIONS = ("0.3", "0.5", "0.7", "0.9")  # shares of them that are removed
WEIGHTS = ("0.8", "0.9", "0.95")  # shares of the weights
SEEDS = ("0", "1", "2")


SETTINGS = "power=4 arrive=0.75 gradient=calm"  # the defaults of targets


def jobs(recipe: str, targets: tuple[str, ...], seeds: tuple[str, ...] = SEEDS, count: str = "") -> list[Job]:
    """Runs of a recipe to each target, with each seed."""
    more = f"{count} {SETTINGS} epochs=15".strip()
    return [Job(f"{recipe} target={target} {more} seed={seed}") for target, seed in product(targets, seeds)]


SECTIONS: dict[str, list[Job]] = {
    "dense": [Job(f"cifar10/dense epochs=15 seed={seed}") for seed in SEEDS],
    "channels": [
        *jobs("cifar10/channels", MULTIPLICATIONS),
        *jobs("cifar10/target", MULTIPLICATIONS, count="count=multiplications"),
    ],
    "blocks": [*jobs("cifar10/block4", WEIGHTS), *jobs("cifar10/target", WEIGHTS)],
    "mobilenet": [
        Job("mobilenet_cifar10/dense epochs=15 seed=0"),
        *jobs("mobilenet_cifar10/block4", WEIGHTS, seeds=("0",)),
        *jobs("mobilenet_cifar10/target", WEIGHTS, seeds=("0",)),
        *jobs("mobilenet_cifar10/channels", ("0.5", "0.7"), seeds=("0",)),
    ],
    "transformers": [
        *(Job(f"gpt/{pattern} {SETTINGS} seed=0") for pattern in ("neurons", "heads")),
        *(Job(f"vit/{pattern} {SETTINGS} seed=0") for pattern in ("neurons", "heads")),
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="CIFAR-10: a folder with train/ and test/ class folders")
    parser.add_argument("--text", type=Path, help="a folder of source code; Python's standard library when left out")
    options = grid.options(parser, SECTIONS, TABLES)
    tables = Tables(options.tables)
    wanted = [job for name in options.only for job in SECTIONS[name]]
    if options.list:
        print("\n".join(job.text for job in grid.missing(wanted, tables.runs)))
    else:
        grid.run(lambda rows: wanted, options.images, tables, options.processes, options.text, options.models)


if __name__ == "__main__":
    main()
