"""Two processes (gloo) train as one: DDP, FSDP2, and checkpoints that change the number of processes.

One pair of processes runs all scenarios and writes down what came out; the tests compare.
"""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict

from distributed_job import HALF, METHODS, STEPS, Job, doubled, process

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without torch.distributed")


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, object]]:
    """The reference: one process, never interrupted, with a report after half of the steps."""
    jobs = {method: Job(method).train(range(HALF)) for method in METHODS}
    return {method: (job.outcome(), job.train(range(HALF, STEPS)).outcome())[1] for method, job in jobs.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What two processes left behind, given the checkpoints of one."""
    folder = tmp_path_factory.mktemp("distributed")
    for method in METHODS:
        Job(method).train(range(HALF)).save(folder / f"one-{method}")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.multiprocessing.spawn(process, args=(folder,), nprocs=2)
    return folder


@pytest.fixture(scope="module")
def outcomes(folder) -> list[dict]:
    return [torch.load(folder / f"outcomes-{rank}.pt", weights_only=False) for rank in range(2)]


def assert_equal(one: dict, other: dict) -> None:
    """The order of sums differs between one process and two, and nothing else. Just above d the power threshold is so
    steep that the last bit of θ becomes the eighth digit of w."""
    assert one["step"] == other["step"]
    for key in ("threshold", "theta", "w"):
        torch.testing.assert_close(one[key], other[key], rtol=1e-7, atol=1e-9)
    assert one["sparsity"] == other["sparsity"] > 0
    assert one["model"] == other["model"]
    ignored = {"penalty", "threshold", "layers"}
    pairs = zip(one["report"]["layers"], other["report"]["layers"], strict=True)
    for a, b in ((one["report"], other["report"]), *pairs):
        assert {key: a[key] for key in a.keys() - ignored} == {key: b[key] for key in b.keys() - ignored}


@pytest.mark.parametrize("how", ["ddp", "ddp around a threshold", "fsdp", "one to two"])
@pytest.mark.parametrize("method", METHODS)
def test_two_processes_train_as_one(outcomes, alone, how, method):
    for rank in range(2):
        assert_equal(outcomes[rank][how, method], alone[method])


@pytest.mark.parametrize("method", METHODS)
def test_two_processes_save_and_one_goes_on(folder, alone, method):
    resumed = Job(method, seed=1).load(folder / f"two-{method}")
    assert resumed.pruner.step == HALF
    resumed.train(range(HALF, STEPS))
    assert_equal(resumed.outcome(), alone[method])


@pytest.mark.parametrize(
    ("what", "method"),
    [
        ("full", "slats"), ("full", "channels"), ("outside", "slats"), ("outside", "channels"),
        ("saved at every step", "lats"),
    ],
)  # fmt: skip
def test_two_processes_are_not_disturbed(outcomes, alone, what, method):
    for rank in range(2):
        assert_equal(outcomes[rank][what, method], alone[method])


@pytest.mark.parametrize("method", ["slats", "channels"])
def test_weights_set_part_by_part_are_kept(outcomes, method):
    for rank in range(2):
        assert_equal(outcomes[rank]["doubled", method], doubled(Job(method)))


def test_groups_have_pruned_something_and_not_all(alone):
    for method in METHODS:
        assert 0.1 < alone[method]["sparsity"] < 0.9, method


def test_blocks_that_a_shard_would_cut_are_refused(outcomes):
    """Seven rows are 4 + 3 over two processes: blocks of 2 or 4 rows fit, blocks of 3 do not."""
    for rank in range(2):
        assert outcomes[rank]["refusals", "blocks"] == {
            "(2, 4)": "",
            "(4, 1)": "",
            "(3, 4)": "layers.0.weight is sharded along dimension 0 into parts that cut blocks of 3. Shard it along "
            "another dimension (`shard_placement_fn`), or choose blocks that divide the parts.",
            "columns (2, 3)": "",
            "columns (1, 4)": "layers.0.weight is sharded along dimension 1 into parts that cut blocks of 4. Shard it "
            "along another dimension (`shard_placement_fn`), or choose blocks that divide the parts.",
            "vector (3, 4)": "",
            "vector (1, 3)": "layers.0.bias is sharded along dimension 0 into parts that cut blocks of 3. Shard it "
            "along another dimension (`shard_placement_fn`), or choose blocks that divide the parts.",
        }


def test_both_processes_hold_the_same_numbers(outcomes):
    for key, one in outcomes[0].items():
        if key[0] == "refusals":
            continue
        other = outcomes[1][key]
        for name in ("threshold", "theta", "w"):
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=0)
        assert one["report"] == other["report"]


def test_a_rehearsed_step_does_not_count():
    """torch.distributed.checkpoint rehearses one to learn the layout of the state; of plain SGD, at every save."""
    for method in METHODS:
        job = Job(method)
        before = job.outcome()
        for _ in range(3):
            get_state_dict(job.model, job.optimizer)
            job.optimizer.zero_grad()
        after = job.outcome()
        assert after["step"] == 0
        for key in ("threshold", "theta", "w"):
            torch.testing.assert_close(after[key], before[key], rtol=0, atol=0)


def test_a_step_at_a_learning_rate_of_zero_counts():
    """Warm-up may begin there: only a rehearsal is none."""
    job = Job("slats")
    for group in job.optimizer.param_groups:
        group["lr"] = 0.0
    job.train(range(2))
    assert job.pruner.step == 2
