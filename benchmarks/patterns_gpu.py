"""Which zeros make a Linear layer faster on a GPU? Every pattern against dense, as ratios within one run.

    python benchmarks/patterns_gpu.py --out patterns.csv            # an H200; ends within 220 seconds
    python benchmarks/patterns_gpu.py --out patterns.csv --quick    # a small case, on a CPU too

    dense                     the layer itself; fp8: torch._scaled_mm with fast accumulation
    75%, 50%, 25% of neurons  dense and narrower: fewer outputs, or fewer inputs where in > out
    2:4 cuSPARSELt            torch's semi-structured tensor; fp8: torch._cslt_sparse_mm with algorithm 0
    2:4 cuSPARSELt, searched  the fastest of what cuSPARSELt's search finds and of all its algorithms
    2:4 CUTLASS               torch's semi-structured tensor, the other backend
    64 x 64 blocks, 90%, ...  torch's Triton kernel for block-sparse weights, with the fastest of a few launches

The candidates take turns, and a ratio is the median over rounds of a candidate's time over dense's in the same round.
"eager" is calls one after the other; "graph" is the same calls in a CUDA graph, where launches cost nothing.
Calls go round enough copies of the weight to fill the L2 cache twice, since in a network other layers evict it.
There is no bias, and the scales of fp8 are 1. Tokens that a kernel cannot take are padded inside the timed call.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from patterns_gpu_candidates import CUDA, DEVICE, FP8, ORDER, PATTERNS, Pattern, first_line
from patterns_gpu_tables import Row, table

DTYPES = {"bf16": torch.bfloat16, "fp8": FP8, "fp32": torch.float32}
SHAPES = ((4096, 14336), (14336, 4096), (768, 3072))
TOKENS = (1, 16, 256, 4096, 16384)
ROUNDS = (5, 21)  # at least, at most
CALLS = 64  # of one turn, at most
TURN = 0.004  # seconds of one turn, about
COLD = 2 * torch.cuda.get_device_properties(0).L2_cache_size if CUDA else 0  # bytes
NAME = torch.cuda.get_device_name() if CUDA else "CPU"
MODES = ("eager", "graph") if CUDA else ("eager",)


@dataclass(frozen=True)
class Case:
    dtype: str
    inputs: int
    outputs: int
    tokens: int


def seconds(work: Callable[[], object]) -> float:
    if not CUDA:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


class Runner:
    """One candidate on one input: its setting, its error against dense, and its turns by mode."""

    def __init__(self, pattern: Pattern, packs: list[Any], masked: Tensor, x: Tensor, until: float) -> None:
        self.pattern, self.packs = pattern, packs
        self.x = pattern.reads(x, packs[0])
        settings = pattern.settings(packs[0], self.x)
        self.setting = settings[0] if len(settings) == 1 else self.fastest(settings, until)
        some = torch.linspace(0, len(x) - 1, min(len(x), 256), device=x.device).long()
        y = pattern.call(packs[0], self.x, self.setting)[some].float()
        expected = x.float()[some] @ masked.float().t()
        expected = expected[:, : y.shape[1]]
        self.error = float((y - expected).norm() / expected.norm())
        self.calls = self.count(self.setting)
        self.turns: dict[str, Callable[[], object]] = {"eager": self.work(self.setting, self.calls)}
        self.failures: dict[str, str] = {}
        if CUDA:
            try:
                self.turns["graph"] = self.captured(self.setting, self.calls)
            except Exception as error:
                self.failures["graph"] = first_line(error)

    def known(self) -> dict[str, Any]:
        multiple = self.pattern.multiple(self.x, self.setting)
        tokens = len(self.x) + -len(self.x) % multiple
        return {"calls": self.calls, "error": self.error, "padded_to": tokens, "setting": str(self.setting)}

    def work(self, setting: Any, calls: int) -> Callable[[], None]:
        def work() -> None:
            for i in range(calls):
                self.pattern.call(self.packs[i % len(self.packs)], self.x, setting)

        return work

    def captured(self, setting: Any, calls: int) -> Callable[[], object]:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph, capture_error_mode="relaxed"):
                self.work(setting, calls)()
        finally:
            torch.cuda.set_stream(stream)  # a capture that fails stays on its own
        graph.replay()
        return graph.replay

    def turn(self, setting: Any, calls: int) -> Callable[[], object]:
        try:
            return self.captured(setting, calls)
        except Exception:
            return self.work(setting, calls)

    def count(self, setting: Any) -> int:
        """Calls of a turn: as many as fill it, and while they are short all copies of the weight."""
        seconds(self.work(setting, 1))
        each = seconds(self.work(setting, 2)) / 2
        copies = len(self.packs) if each < TURN / 10 else 2
        return max(2, min(CALLS, max(round(TURN / each), copies)))

    def fastest(self, settings: list[Any], until: float) -> Any:
        """By time in a graph, where launches do not hide the kernels. The first that works is taken in any case."""
        times: dict[Any, float] = {}
        failure: Exception | None = None
        for setting in settings:
            if times and time.perf_counter() > until:
                break
            try:
                calls = self.count(setting)
                turn = self.turn(setting, calls)
                times[setting] = min(seconds(turn), seconds(turn)) / calls
            except Exception as error:
                failure = failure or error
        if not times:
            raise failure or RuntimeError("There is no setting to try.")
        return min(times, key=lambda setting: times[setting])


def measure(runners: dict[Pattern, Runner], until: float) -> dict[tuple[Pattern, str], list[float]]:
    """Seconds a call, by candidate and mode: one for each round."""
    times: dict[tuple[Pattern, str], list[float]] = {}
    for done in range(ROUNDS[1]):
        if done >= ROUNDS[0] and time.perf_counter() > until:
            break
        for mode, (pattern, runner) in product(MODES, runners.items()):
            if mode not in runner.turns:
                continue
            try:
                times.setdefault((pattern, mode), []).append(seconds(runner.turns[mode]) / runner.calls)
            except Exception as error:
                del runner.turns[mode], times[pattern, mode]
                runner.failures[mode] = first_line(error)
    return times


def summary(times: list[float], dense: list[float]) -> dict[str, Any]:
    ratios = sorted(t / d for t, d in zip(times, dense, strict=True))
    return {
        "microseconds": 1e6 * statistics.median(times),
        "ratio": statistics.median(ratios),
        "low": ratios[len(ratios) // 4],
        "high": ratios[3 * len(ratios) // 4],
        "rounds": len(ratios),
    }


def copied(pattern: Pattern, weight: Tensor, dtype: torch.dtype) -> tuple[list[Any], Tensor]:
    """Copies of the weight as the kernel reads it, and the masked weight."""
    masked = pattern.mask(weight).to(dtype)
    copies = math.ceil(COLD / (pattern.kept * masked.nbytes))
    return [pattern.pack(masked) for _ in range(max(1, min(CALLS, copies)))], masked


def probe(cases: list[Case], patterns: list[Pattern], write: Callable[[Row], None], limit: float) -> None:
    """Measures case by case. A candidate that fails leaves rows that say why."""
    start = time.perf_counter()
    layer, packs = None, {}
    for index, case in enumerate(cases):
        now = time.perf_counter()
        if now - start > limit:
            print(f"Out of time: {len(cases) - index} of {len(cases)} cases were not measured, from {case} on.")
            return
        share = (limit - (now - start)) / (len(cases) - index)
        print(f"{now - start:5.0f} s  {case}", flush=True)
        if layer != (case.dtype, case.inputs, case.outputs):
            layer, packs = (case.dtype, case.inputs, case.outputs), {}
            weight = torch.randn(case.outputs, case.inputs, device=DEVICE)
        x = torch.randn(case.tokens, case.inputs, device=DEVICE).to(DTYPES[case.dtype])
        runners: dict[Pattern, Runner] = {}
        for pattern in patterns:
            try:
                if pattern not in packs:
                    packs[pattern] = copied(pattern, weight, DTYPES[case.dtype])
                runners[pattern] = Runner(pattern, *packs[pattern], x, time.perf_counter() + share / 2)
            except Exception as error:
                for mode in MODES:
                    write(row(case, pattern, mode, failure=first_line(error)))
                if CUDA:
                    torch.cuda.synchronize()  # raises, and ends the run, where the GPU is lost
        times = measure(runners, now + share)
        for mode, (pattern, runner) in product(MODES, runners.items()):
            known = runner.known()
            if (pattern, mode) not in times:
                write(row(case, pattern, mode, **known, failure=runner.failures[mode]))
            elif (patterns[0], mode) in times:
                write(row(case, pattern, mode, **known, **summary(times[pattern, mode], times[patterns[0], mode])))
            else:
                write(row(case, pattern, mode, **known, failure="dense failed"))
        del runners
        if CUDA:
            torch.cuda.empty_cache()


def row(case: Case, pattern: Pattern, mode: str, **values: Any) -> Row:
    return Row(
        NAME,
        torch.__version__,
        **asdict(case),
        candidate=pattern.name,
        kept=pattern.kept,
        bar=pattern.bar,
        mode=mode,
        **values,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="append the rows to this CSV file")
    parser.add_argument("--seconds", type=float, default=220, help="start no case after so long")
    parser.add_argument("--candidates", nargs="+", choices=ORDER, help="these alone, and dense")
    parser.add_argument("--quick", action="store_true", help="one small layer, 16 tokens")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # torch's prototypes
    cases = [Case(dtype, *shape, tokens) for dtype, shape, tokens in product(("bf16", "fp8"), SHAPES, TOKENS)]
    if options.quick:
        cases = [Case("bf16" if CUDA else "fp32", 768, 3072, 16)]
    patterns = [p for p in PATTERNS if p is PATTERNS[0] or p.name in (options.candidates or [p.name])]
    rows: list[Row] = []
    names = [field.name for field in fields(Row)]
    new = not options.out.exists()
    with options.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, names)

        def write(row: Row) -> None:
            rows.append(row)
            writer.writerow(asdict(row))
            file.flush()

        if new:
            writer.writeheader()
        print(f"{NAME}, torch {torch.__version__}, CUDA {torch.version.cuda}, {len(cases)} cases", flush=True)
        try:
            probe(cases, patterns, write, options.seconds)
        finally:
            print(table(rows))


if __name__ == "__main__":
    main()
