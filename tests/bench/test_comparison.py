"""Side by side: who wins is said plainly, and whatever fails is a reason."""

import time
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from softprune import engine
from softprune.bench import comparison
from softprune.bench.clock import Timings
from softprune.bench.comparison import Candidate, Comparison, compare, distance, unmeasured
from softprune.bench.runtimes import Engine, Runtime, TorchEager, Work


def work(batch: int = 2) -> Work:
    return Work.of(nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)).eval(), torch.randn(8, 32), batch)


@dataclass(frozen=True)
class Broken(Runtime):
    """Fails when it converts, or when it starts."""

    name: str
    late: bool

    def convert(self, work):
        def start(threads: int):
            raise ValueError("\n  No such operation.\nAt line 7.")

        return start if self.late else start(1)


def measured(times: dict[str, float], errors: dict[str, float] | None = None) -> Comparison:
    seconds = {name: [second] * 3 for name, second in times.items()}
    found = dict.fromkeys(times, 0.01) | (errors or {})
    return Comparison(1, 1, Timings(seconds), found, frozenset(name for name in times if "softprune" in name))


def test_torch_against_torch():
    mine = work()
    candidates = [Candidate("torch eager", TorchEager(), mine), Candidate("again", TorchEager(), mine)]
    (one,) = compare(candidates, [1], rounds=9, clock=time.process_time)
    assert (one.batch, one.threads, one.reasons) == (2, 1, {})
    assert list(one.errors) == ["torch eager", "again"]
    assert max(one.errors.values()) < 1e-6
    assert 0.3 < one.timings.faster("again", than="torch eager").median < 3
    lines = str(one).splitlines()
    assert lines[0] == "Batch 2, 1 thread."
    assert lines[1].split() == ["runtime", "ms", "x", "torch", "eager", "error"]
    assert [line.partition("  ")[0] for line in lines[2:4]] == ["torch eager", "again"]
    assert lines[4].endswith("The engine was not measured.")


def test_errors_are_those_of_a_candidates_own_network():
    one, other = work(), work()
    candidates = [Candidate("one", TorchEager(), one), Candidate("other", TorchEager(), other)]
    (found,) = compare(candidates, [1], rounds=1)
    assert max(found.errors.values()) < 1e-6


def test_whatever_fails_is_a_reason_and_the_others_go_on():
    mine = work()
    runtimes = [TorchEager(), Broken("early", False), Broken("late", True)]
    found = compare([Candidate(runtime.name, runtime, mine) for runtime in runtimes], [1], rounds=1)
    assert list(found[0].errors) == ["torch eager"]
    assert found[0].reasons == {"early": "No such operation.", "late": "No such operation."}
    assert unmeasured(found) == ["Not measured: early, late. No such operation."]


def test_an_engine_that_wins_and_one_that_does_not():
    fast = measured({"torch eager": 4.0, "int8": 2.0, "softprune int8": 1.0, "softprune fp32": 8.0})
    assert fast.verdict() == "Sparse is faster: softprune int8 is 2.00 x as fast as int8, the fastest of the others."
    slow = measured({"torch eager": 4.0, "int8": 2.0, "softprune int8": 3.0})
    assert slow.verdict() == "Sparse is not faster here: int8 is 1.50 x as fast as softprune int8."
    none = measured({"torch eager": 4.0, "int8": 2.0})
    assert none.verdict() == "The fastest is int8. The engine was not measured."


@pytest.mark.parametrize("error", [0.8, float("nan")])
def test_who_computes_nonsense_wins_nothing(error):
    found = measured({"torch eager": 4.0, "int8": 1.0, "softprune int8": 2.0}, {"int8": error})
    assert found.verdict().startswith("Sparse is faster: softprune int8 is 2.00 x as fast as torch eager")
    assert "Outputs are wrong, and do not count: int8." in str(found)


def test_all_runtimes_of_a_network_and_the_engine_last(monkeypatch):
    monkeypatch.setattr(engine, "compile", lambda model, example, **options: model, raising=False)
    monkeypatch.setattr(comparison, "RIVALS", ())
    candidates = Candidate.all(work())
    assert [c.name for c in candidates] == ["torch eager", "softprune fp32", "softprune int16", "softprune int8"]
    (found,) = compare(candidates, [1], rounds=3)
    assert found.engines == {c.name for c in candidates if isinstance(c.runtime, Engine)}
    assert "Sparse is" in found.verdict()


def test_the_distance_of_nothing_from_nothing():
    assert distance(torch.zeros(3), torch.zeros(3)) == 0
