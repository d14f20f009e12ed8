"""Several runtimes side by side: how long each takes, how far its outputs are from torch's, and who wins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from softprune.bench.clock import Timings, interleave
from softprune.bench.machine import on_threads
from softprune.bench.onnxruntimes import OnnxFloat, OnnxInt8
from softprune.bench.openvinos import OpenVinoFloat, OpenVinoInt8
from softprune.bench.runtimes import Call, Engine, Runtime, TorchCompiled, TorchEager, Work
from softprune.report.markdown import columns

REFERENCE = TorchEager()
RIVALS: tuple[Runtime, ...] = (TorchCompiled(), OnnxFloat(), OnnxInt8(), OpenVinoFloat(), OpenVinoInt8())
ENGINES: tuple[Runtime, ...] = tuple(Engine(precision) for precision in ("fp32", "int16", "int8"))
WRONG = 0.5
"""An error above which outputs are of no use: such a runtime wins nothing."""


@dataclass(frozen=True)
class Candidate:
    """A runtime, what it is given, and what the table calls it."""

    name: str
    runtime: Runtime
    work: Work

    @staticmethod
    def all(work: Work) -> list[Candidate]:
        """Every runtime on the same network, torch eager first."""
        return [Candidate(runtime.name, runtime, work) for runtime in (REFERENCE, *RIVALS, *ENGINES)]


@dataclass(frozen=True)
class Comparison:
    """What was measured on a number of threads. The first candidate is the reference.

    Args:
        batch: samples in a call.
        threads: on which each of them ran.
        timings: of the candidates that could be measured.
        errors: ‖y − torch's y‖ / ‖torch's y‖ of each, on its own network.
        engines: the names of those that are the engine.
        reasons: why others were not measured, by name.
    """

    batch: int
    threads: int
    timings: Timings
    errors: Mapping[str, float]
    engines: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        reference, *_ = self.timings.seconds
        rows = [["runtime", "ms", f"x {reference}", "error"]]
        for name, error in self.errors.items():
            ratio = self.timings.faster(name, than=reference)
            rows.append([name, f"{1000 * self.timings.typical(name):.3f}", str(ratio), f"{error:.2g}"])
        lines = [f"Batch {self.batch}, {self.threads} thread{'s' * (self.threads > 1)}."]
        lines += [*columns(rows, numbers=(1, 2, 3)), self.verdict()]
        if wrong := [name for name, error in self.errors.items() if not error <= WRONG]:
            lines.append(f"Outputs are wrong, and do not count: {', '.join(wrong)}.")
        if (noise := self.timings.noise()) is not None:
            lines.append(noise)
        return "\n".join(lines)

    def verdict(self) -> str:
        """Whether zeros made it faster than the fastest rival, whatever the precision of that is."""
        right = [name for name, error in self.errors.items() if error <= WRONG]
        rival = min((name for name in right if name not in self.engines), key=self.timings.typical)
        mine = min((name for name in right if name in self.engines), key=self.timings.typical, default=None)
        if mine is None:
            return f"The fastest is {rival}. The engine was not measured."
        ratio = self.timings.faster(mine, than=rival).median
        if ratio > 1:
            return f"Sparse is faster: {mine} is {ratio:.2f} x as fast as {rival}, the fastest of the others."
        return f"Sparse is not faster here: {rival} is {1 / ratio:.2f} x as fast as {mine}."


def compare(
    candidates: Sequence[Candidate],
    threads: Sequence[int],
    *,
    rounds: int = 15,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Comparison]:
    """Time candidates in turns, once for each number of threads.

    Args:
        candidates: the first is the reference, which must run; whatever is wrong with another is a reason.
        threads: how many, for one comparison after the other.
        rounds: of each.
        clock: see ``interleave``.
    """
    starts: dict[str, Callable[[int], Call]] = {}
    reasons: dict[str, str] = {}
    for candidate in candidates:
        if (missing := candidate.runtime.missing()) is not None:
            reasons[candidate.name] = missing
            continue
        try:
            starts[candidate.name] = candidate.runtime.convert(candidate.work)
        except Exception as error:  # whatever a converter raises about a network that it does not know
            reasons[candidate.name] = _sentence(error)
    outputs = _outputs(candidates)
    done = []
    for number in threads:
        calls: dict[str, Call] = {}
        errors: dict[str, float] = {}
        failed = dict(reasons)
        with on_threads(number):
            for name, start in starts.items():
                try:
                    call = start(number)
                    errors[name] = distance(call(), outputs[name])
                    calls[name] = call
                except Exception as error:
                    failed[name] = _sentence(error)
            timings = interleave(calls, rounds=rounds, clock=clock)
        engines = frozenset(c.name for c in candidates if isinstance(c.runtime, Engine))
        done.append(Comparison(len(candidates[0].work.example), number, timings, errors, engines, failed))
    return done


def _outputs(candidates: Sequence[Candidate]) -> dict[str, Tensor]:
    """torch's, of the network of each candidate; of networks that several have, once."""
    found: dict[Work, Tensor] = {}
    with torch.inference_mode():
        for work in dict.fromkeys(candidate.work for candidate in candidates):
            found[work] = work.model(work.example)
    return {candidate.name: found[candidate.work] for candidate in candidates}


def unmeasured(comparisons: Sequence[Comparison]) -> list[str]:
    """A line for each reason why candidates are missing."""
    names: dict[str, list[str]] = {}
    for name, reason in dict.fromkeys(pair for comparison in comparisons for pair in comparison.reasons.items()):
        names.setdefault(reason, []).append(name)
    return [f"Not measured: {', '.join(found)}. {reason.rstrip('.')}." for reason, found in names.items()]


def distance(y: Tensor, reference: Tensor) -> float:
    """‖y − reference‖ / ‖reference‖.

    >>> distance(torch.tensor([3.0, 5.0]), torch.tensor([3.0, 4.0]))
    0.2
    """
    y, reference = y.detach().double(), reference.detach().double()
    return float((y - reference).norm() / reference.norm().clamp_min(1e-30))


def _sentence(error: Exception) -> str:
    """The first line that says something, or the name of the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:200]
