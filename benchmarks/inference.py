"""How much faster sparse networks are on a CPU: the engine against dense runtimes, in one interleaved run each.

    python benchmarks/inference.py                                # everything; hours
    python benchmarks/inference.py --networks mlp --threads 1     # a part
    python benchmarks/inference.py --dense                        # the rivals alone
    python benchmarks/inference.py --tables                       # what was measured before

Random weights, and zeros at random places (sparse_networks.py). Rivals run the dense network: none of them skips zeros.
Each number is the median of the ratios of the rounds. Rows go to docs/data/inference.csv as soon as they are measured,
in the place of older ones of the same machine, network, batch and number of threads.
"""

from __future__ import annotations

import argparse
import csv
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

import torch

import softprune as sp
from pages import DOCS
from softprune.bench.comparison import REFERENCE, RIVALS, Candidate, Comparison, compare, unmeasured
from softprune.bench.openvinos import OpenVinoInt8
from softprune.bench.runtimes import Engine, Work
from softprune.report.markdown import table
from sparse_networks import CASES, Case

ROWS = DOCS / "data" / "inference.csv"
BAR = OpenVinoInt8().name
PRECISIONS = {"1x4": ("int8",), "2x4": ("int8",), "unstructured": ("fp32", "int16", "int8")}


@dataclass(frozen=True)
class Row:
    """One candidate at one batch size and number of threads. Ratios are times faster; nan where the bar is missing."""

    network: str
    batch: int
    threads: int
    candidate: str
    sparsity: float
    ms: float
    x_torch: float
    x_torch_low: float
    x_torch_high: float
    x_openvino_int8: float
    x_openvino_int8_low: float
    x_openvino_int8_high: float
    error: float
    rounds: int
    clock: str
    others: float  # of its cores that other processes used
    machine: str
    torch: str

    @property
    def setting(self) -> tuple[str, str, int, int]:
        return self.machine, self.network, self.batch, self.threads

    @property
    def cell(self) -> str:
        return f"{self.x_torch:.2f} / {self.x_openvino_int8:.2f}"


def candidates(case: Case, batch: int, dense: bool) -> Iterator[tuple[Candidate, float]]:
    """Each with the sparsity of its network."""
    samples = case.samples()
    work = Work.of(case.network(), samples, batch)
    yield from ((Candidate(runtime.name, runtime, work), 0.0) for runtime in (REFERENCE, *RIVALS))
    if dense or Engine("int8").missing():
        return
    for pattern, precisions in PRECISIONS.items():
        for level in case.levels:
            network = case.network(level, pattern)
            work, sparsity = Work.of(network, samples, batch), sp.summarize(network).sparsity
            for precision in precisions:
                yield Candidate(f"{precision} {pattern}, {level:.0%}", Engine(precision), work), sparsity


def rows(name: str, measured: Comparison, sparsities: dict[str, float], clock: str, where: str) -> Iterator[Row]:
    times = measured.timings
    for candidate, error in measured.errors.items():
        ratios = [
            astuple(times.faster(candidate, than=bar)) if bar in times.seconds else (float("nan"),) * 3
            for bar in (REFERENCE.name, BAR)
        ]
        low, median, high = zip(*ratios, strict=True)
        yield Row(
            *(name, measured.batch, measured.threads, candidate, sparsities[candidate]),
            *(1000 * times.typical(candidate), median[0], low[0], high[0], median[1], low[1], high[1], error),
            *(len(times.seconds[candidate]), clock, times.others or 0.0, where, torch.__version__),
        )


def machine() -> str:
    """The CPU's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    kinds = {"int": int, "float": float, "str": str}
    with path.open(encoding="utf-8", newline="") as file:
        return [Row(**{f.name: kinds[str(f.type)](line[f.name]) for f in fields(Row)}) for line in csv.DictReader(file)]


def write(path: Path, new: list[Row]) -> None:
    """Beside what is there, in the place of older rows of the same machine and settings."""
    fresh = {row.setting for row in new}
    kept = [row for row in read(path) if row.setting not in fresh]
    lines = [{k: f"{v:.5g}" if isinstance(v, float) else v for k, v in asdict(row).items()} for row in kept + new]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def words(batch: int, threads: int) -> str:
    return f"batch {batch}, {threads} thread{'s' * (threads > 1)}"


def markdown(found: list[Row]) -> str:
    """A table for each machine and network: × torch eager / × OpenVINO's dense int8."""
    texts = []
    for machine, network in dict.fromkeys((row.machine, row.network) for row in found):
        mine = [row for row in found if (row.machine, row.network) == (machine, network)]
        settings = sorted({(row.batch, row.threads) for row in mine})
        cells = {(row.candidate, row.batch, row.threads): row.cell for row in mine}
        names = dict.fromkeys(row.candidate for row in mine)
        lines = [[name, *(cells.get((name, *setting), "-") for setting in settings)] for name in names]
        head = [
            f"{network}, {machine}",
            *(words(*setting) for setting in settings),
        ]
        texts.append(table(head, lines))
    return "\n\n".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dense", action="store_true", help="the rivals alone")
    parser.add_argument("--cpu-time", action="store_true", help="on a machine that others use; one thread only")
    parser.add_argument("--machine", default=machine(), help="its name in tables; the CPU's own, if it is not given")
    parser.add_argument("--tables", action="store_true", help="measure nothing, print what is there")
    parser.add_argument("--out", type=Path, default=ROWS)
    options = parser.parse_args()
    if options.cpu_time and options.threads != [1]:
        parser.error("--cpu-time needs --threads 1: threads that wait for others may count too")
    clock = time.process_time if options.cpu_time else time.perf_counter
    for name in [] if options.tables else options.networks:
        for batch in options.batches:
            found = dict(candidates(CASES[name], batch, options.dense))
            measured = compare(list(found), options.threads, rounds=options.rounds, clock=clock)
            sparsities = {candidate.name: sparsity for candidate, sparsity in found.items()}
            for one in measured:
                kind = "cpu" if options.cpu_time else "wall"
                write(options.out, list(rows(name, one, sparsities, kind, options.machine)))
                print(f"{name}: {one}\n", flush=True)
            print("\n".join(unmeasured(measured)), flush=True)
    print(markdown([row for row in read(options.out) if row.network in options.networks]))


if __name__ == "__main__":
    main()
