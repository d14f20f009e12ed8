"""Which prox, and when to arrive: the runs behind the defaults of TargetSparsity.

    python benchmarks/beyond.py --images FOLDER --text FOLDER              # what docs/data/beyond lacks
    python benchmarks/beyond.py --only gpt --text FOLDER --processes 3     # one network
    python benchmarks/beyond.py --list                                     # what there is to do

Three networks: ResNet-18 (batch normalisation, SGD) and a small vision transformer (AdamW) on CIFAR-10, and a GPT
(AdamW) on source code. The sweep over p and arrivals has the gradient `identity`, the default when it was made; `calm`,
the default now, has runs of its own. A run is named as the command line would name it, so that `softprune train` and
the name repeat it. `benchmarks/beyond_tables.py` makes tables and pictures.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import grid
from grid import Job, Tables

TABLES = Path(__file__).parent.parent / "docs" / "data" / "beyond"

DEFAULT = ("4", "0.75", "calm")  # p, arrival and gradient of TargetSparsity


@dataclass(frozen=True)
class Network:
    """A family of recipes.

    Several values of a setting are written with spaces between them, and all combinations are run.
    """

    family: str
    start: str  # of magnitude pruning, in epochs: a tenth of the run
    epochs: str | None = None  # the recipe's own when None

    @property
    def shared(self) -> dict[str, str]:
        """Settings of all its runs."""
        return {} if self.epochs is None else {"epochs": self.epochs}

    @property
    def gmp(self) -> dict[str, str]:
        """Settings of magnitude pruning: it arrives at three quarters of the run."""
        return {"start": self.start, "arrive": "0.7222"}

    def dense(self) -> list[Job]:
        return self._jobs("dense", seed="0")

    def magnitude(self, target: str, seed: str = "0") -> list[Job]:
        return self._jobs("gmp", target=target, **self.gmp, seed=seed)

    def target(self, target: str, power: str, arrive: str, gradient: str = "identity", seed: str = "0") -> list[Job]:
        return self._jobs("target", target=target, power=power, arrive=arrive, gradient=gradient, seed=seed)

    def default(self, target: str, seed: str = "0") -> list[Job]:
        return self.target(target, *DEFAULT, seed=seed)

    def _jobs(self, method: str, *, seed: str, **settings: str) -> list[Job]:
        settings = {**settings, **self.shared, "seed": seed}
        values = product(*(setting.split() for setting in settings.values()))
        return [
            Job(" ".join([f"{self.family}/{method}", *map("=".join, zip(settings, chosen, strict=True))]))
            for chosen in values
        ]


GPT, VIT = Network("gpt", "2"), Network("vit", "3")
CNN, LONG = Network("cifar10", "2", epochs="15"), Network("cifar10", "3", epochs="30")
SECTIONS: dict[str, list[Job]] = {
    "gpt": [
        *GPT.dense(),
        *GPT.magnitude("0.8 0.95"),
        *GPT.magnitude("0.9 0.98", seed="0 1 2"),
        *GPT.target("0.8 0.95", power="1", arrive="1"),
        *GPT.target("0.9 0.98", power="1", arrive="1", seed="0 1 2"),
        *GPT.target("0.8 0.95", power="3 4", arrive="0.75"),
        *GPT.target("0.9 0.98", power="3", arrive="0.75", seed="0 1"),
        *GPT.target("0.9 0.98", power="4", arrive="0.75", seed="0 1 2"),
        *GPT.target("0.9 0.98", power="1.5 2 inf", arrive="0.75"),
        *GPT.target("0.9 0.98", power="4", arrive="0.25"),
        *GPT.target("0.9 0.98", power="1 2 4 inf", arrive="0.5"),
        *GPT.target("0.9 0.98", power="3", arrive="0.5", seed="0 1 2"),
        *GPT.target("0.9 0.98", power="3 4", arrive="1"),
        *GPT.default("0.8 0.95"),
        *GPT.default("0.9 0.98", seed="0 1 2"),
    ],
    "cifar10": [
        *CNN.dense(),
        *CNN.magnitude("0.9 0.99"),
        *CNN.magnitude("0.95 0.98 0.995 0.998", seed="0 1 2"),
        *CNN.target("0.9 0.99", power="1", arrive="1"),
        *CNN.target("0.95 0.98 0.995 0.998", power="1", arrive="1", seed="0 1 2"),
        *CNN.target("0.9 0.99", power="4", arrive="0.75"),
        *CNN.target("0.95 0.98 0.995 0.998", power="4", arrive="0.75", seed="0 1 2"),
        *CNN.target("0.98 0.998", power="3", arrive="0.75"),
        *CNN.target("0.95 0.995", power="3", arrive="0.75", seed="0 1 2"),
        *CNN.target("0.95", power="1", arrive="0.75"),
        *CNN.target("0.995", power="1 1.5 2 inf", arrive="0.75"),
        *CNN.target("0.95 0.995", power="4", arrive="0.25"),
        *CNN.target("0.95 0.995", power="1 2 3 4 inf", arrive="0.5"),
        *CNN.target("0.95 0.995", power="3 4 inf", arrive="1"),
        *CNN.default("0.9 0.99"),
        *CNN.default("0.95 0.98 0.995 0.998", seed="0 1 2"),
        *CNN.target("0.95 0.995", power="4", arrive="0.25", gradient="calm"),
        *CNN.target("0.95 0.995", power="inf", arrive="0.5", gradient="calm"),
        *LONG.dense(),
        *LONG.magnitude("0.98 0.995"),
        *LONG.target("0.98 0.995", power="1", arrive="1"),
        *LONG.target("0.98 0.995", power="4", arrive="0.75"),
    ],
    "vit": [
        *VIT.dense(),
        *VIT.magnitude("0.9 0.97", seed="0 1 2"),
        *VIT.target("0.9 0.97", power="1", arrive="1"),
        *VIT.target("0.9 0.97", power="3", arrive="0.75"),
        *VIT.target("0.9 0.97", power="4", arrive="0.75", seed="0 1 2"),
        *VIT.target("0.97", power="1.5", arrive="0.75"),
        *VIT.target("0.97", power="4", arrive="0.25 0.5 1"),
        *VIT.target("0.9 0.97", power="1 3 inf", arrive="0.5"),
        *VIT.default("0.9 0.97", seed="0 1 2"),
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="CIFAR-10: a folder with train/ and test/ class folders")
    parser.add_argument("--text", type=Path, help="a folder of source code; Python's standard library when left out")
    options = grid.options(parser, SECTIONS, TABLES)
    tables = Tables(options.tables)
    jobs = [job for name in options.only for job in SECTIONS[name]]
    if options.list:
        print("\n".join(job.text for job in grid.missing(jobs, tables.runs)))
    else:
        grid.run(lambda rows: jobs, options.images, tables, options.processes, options.text)


if __name__ == "__main__":
    main()
