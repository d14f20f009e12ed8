"""Cores and threads: taken, given back, and those of others counted."""

import os
import subprocess
import sys
import time

import pytest
import torch

from softprune.bench import machine
from softprune.bench.machine import Others, cores, on_threads
from softprune.errors import ArgumentError

LINUX = hasattr(os, "sched_getaffinity")


def test_threads_and_cores_are_given_back():
    def fail() -> None:
        assert torch.get_num_threads() == 1
        assert cores() == 1 or not LINUX
        raise KeyError

    before = torch.get_num_threads(), cores()
    with pytest.raises(KeyError), on_threads(1):
        fail()
    assert (torch.get_num_threads(), cores()) == before


def test_all_cores_may_be_used():
    with on_threads(cores()):
        assert torch.get_num_threads() == cores()


@pytest.mark.parametrize("threads", [0, 10_000])
def test_more_threads_than_cores_are_refused(threads):
    message = f"must be between 1 and {cores()}, the cores of this machine. Got {threads}."
    with pytest.raises(ArgumentError, match=message), on_threads(threads):
        pass


def test_the_least_busy_cores_are_taken(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    lines = "cpu 9 9 9 9\ncpu0 {} 0 0 50 7 0 0 0 0 0\ncpu1 40 1 1 50 7 0 0 0 0 0\ncpu2 {} 0 0 9 9 0 0 0 0 0\nintr 1\n"
    stat.write_text(lines.format(10, 30))
    monkeypatch.setattr(machine, "_STAT", stat)
    monkeypatch.setattr(machine.time, "sleep", lambda _: stat.write_text(lines.format(29, 31)))
    assert machine._idle([0, 1, 2], 2) == [1, 2]
    assert machine._busy([1]) == {1: 42 / os.sysconf("SC_CLK_TCK")}


def test_a_busy_process_is_seen_and_this_one_is_not():
    others = Others()
    end = time.monotonic() + 0.5
    mine = time.process_time()
    while time.monotonic() < end:
        pass
    mine = (time.process_time() - mine) / 0.5
    alone = others.cores()
    others = Others()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        time.sleep(0.8)
        found = others.cores()
        busy.kill()
    if not LINUX:
        assert found is None
        return
    assert found > 0.3
    assert alone < os.cpu_count() - mine + 0.2
