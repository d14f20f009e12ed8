"""Loaders: batches are a function of (seed, epoch, batch), for any number of processes and workers."""

from __future__ import annotations

import random
from itertools import islice

import pytest
import torch

from softprune.data.order import Order
from softprune.data.tensors import TensorSplit
from softprune.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # Python 3.12


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for (x, y), (x_, y_) in zip(ours, theirs, strict=True):
        assert torch.equal(x, x_)
        assert torch.equal(y, y_)


def endless(loader):
    while True:
        yield from loader


def test_batches(kind):
    loader = kind.train.loader(batch=4, train=True)
    assert len(kind.train) == 13
    assert len(loader) == 3
    for x, y in loader:
        assert x.shape == (4, *kind.shape)
        assert y.dtype == torch.int64


def test_resumes_at_any_batch(kind):
    loader = kind.train.loader(batch=4, train=True, seed=3)
    batches, states = [], [loader.state_dict()]
    for batch in islice(endless(loader), 8):
        batches.append(batch)
        states.append(loader.state_dict())
    assert states[:5] == [{"epoch": e, "batch": b} for e, b in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))]
    for done, state in enumerate(states[:-1]):
        torch.rand(3)  # the process's random state has nothing to do with it
        resumed = kind.train.loader(batch=4, train=True, seed=3)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        same(list(islice(endless(resumed), 8 - done)), batches[done:])


def test_epoch_that_is_used_up(kind):
    loader = kind.train.loader(batch=4, train=True)
    loader.load_state_dict({"epoch": 1, "batch": 3})
    assert loader.state_dict() == {"epoch": 2, "batch": 0}
    assert len(list(loader)) == 3


def test_state_goes_on_where_a_loop_broke_off(kind):
    whole = list(kind.train.loader(batch=4, train=True))
    loader = kind.train.loader(batch=4, train=True)
    first = list(islice(loader, 2))
    same(first + list(loader), whole)


def test_state_loaded_within_a_loop(kind):
    whole = list(kind.train.loader(batch=4, train=True))
    loader = kind.train.loader(batch=4, train=True)
    batches = iter(loader)
    next(batches)
    loader.load_state_dict({"epoch": 0, "batch": 2})
    same(list(batches), whole[2:])


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("train", [True, False])
def test_processes_share_every_batch(kind, world, train):
    split = kind.train if train else kind.val
    alone = list(split.loader(batch=4, train=train, seed=1))
    ranks = [list(split.loader(batch=4, train=train, seed=1, rank=r, world=world)) for r in range(world)]
    assert {len(rank) for rank in ranks} == {len(alone)}
    together = [tuple(torch.cat(parts) for parts in zip(*batch, strict=True)) for batch in zip(*ranks, strict=True)]
    same(together, alone)


def test_training_sees_every_image_once_in_a_new_order(small):
    loader = small.train.loader(batch=1, train=True)
    epochs = [[int(y) for _, y in loader] for _ in range(3)]
    assert all(sorted(labels) == list(range(13)) for labels in epochs)
    assert len({tuple(labels) for labels in epochs}) == 3
    assert [int(y) for _, y in small.train.loader(batch=1, train=True, seed=1)] not in epochs


def test_training_drops_the_incomplete_batch(small):
    labels = torch.cat([y for _, y in small.train.loader(batch=5, train=True)]).tolist()
    assert len(labels) == len(set(labels)) == 10


def test_evaluation_sees_every_image_once_in_order(images):
    loader = images.val.loader(batch=2, train=False)
    assert len(loader) == 3
    labels = torch.cat([y for _, y in loader])
    assert [len(y) for _, y in loader] == [2, 2, 1]
    assert torch.equal(labels, images.val.labels if isinstance(images.val, TensorSplit) else images.val.listing.labels)


def test_evaluation_starts_over(kind):
    loader = kind.val.loader(batch=2, train=False)
    next(iter(loader))  # as Lightning's sanity check
    assert len(list(loader)) == 3


def test_augmentation_is_new_in_every_epoch_and_for_every_seed(images):
    def image(seed, epoch):
        loader = images.train.loader(batch=13, train=True, seed=seed)
        loader.load_state_dict({"epoch": epoch, "batch": 0})
        order = Order(13, 13, True, seed).epoch(epoch)
        return next(iter(loader))[0][order.argsort()]

    assert not torch.equal(image(0, 0), image(0, 1))
    assert not torch.equal(image(0, 0), image(1, 0))
    assert torch.equal(image(1, 2), image(1, 2))


def test_global_random_state_is_left_alone(kind):
    before = torch.get_rng_state(), random.getstate()
    list(kind.train.loader(batch=4, train=True))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_workers_give_the_same_and_what_they_prefetch_does_not_count(large):
    before = torch.get_rng_state()
    alone = list(islice(endless(large.train.loader(batch=4, train=True)), 7))
    loader = large.train.loader(batch=4, train=True, workers=2)
    batches = []
    for n, batch in enumerate(islice(endless(loader), 7), 1):
        batches.append(batch)
        assert loader.state_dict() == {"epoch": n // 3, "batch": n % 3}
    same(batches, alone)
    loader.load_state_dict({"epoch": 1, "batch": 1})
    same(list(loader), alone[4:6])
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_with_workers(large):
    loader = large.val.loader(batch=2, train=False, workers=2)
    alone = list(large.val.loader(batch=2, train=False))
    for _ in range(2):
        same(list(loader), alone)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"batch": 0}, "^`batch` must be >= 1. Got 0.$"),
        ({"batch": 5, "world": 2}, "must be divisible by their number. Got 5 images for 2 processes."),
        (
            {"batch": 4, "world": 2, "rank": 2},
            "^`rank` must be >= 0 and < world = 2. Got 2.$",
        ),
        ({"batch": 14}, "must be at most the number of training images. Got 14 for 13 images."),
        ({"batch": 4, "workers": -1}, "^`workers` must be >= 0. Got -1.$"),
    ],
)
def test_refusals(small, arguments, text):
    with pytest.raises(ConfigError, match=text):
        small.train.loader(train=True, **arguments)


@pytest.mark.parametrize("state", [{}, {"epoch": 0, "batch": 4}, {"epoch": -1, "batch": 0}, {"epoch": 0.5, "batch": 0}])
def test_refused_states(small, state):
    with pytest.raises(ConfigError, match=r"a loader with 3 batches an epoch must be \{'epoch': 0 or more, 'batch'"):
        small.train.loader(batch=4, train=True).load_state_dict(state)


@pytest.mark.gpu
@pytest.mark.parametrize("workers", [0, 2])
def test_gpu_gives_what_the_cpu_gives(kind, workers):
    """Small images are augmented there, large ones come through pinned memory."""
    here = list(kind.train.loader(batch=4, train=True))
    there = list(kind.train.loader(batch=4, train=True, device="cuda", workers=workers))
    assert all(x.is_cuda and y.is_cuda for x, y in there)
    for (x, y), (x_, y_) in zip(here, there, strict=True):
        torch.testing.assert_close(x_.cpu(), x, atol=1e-5, rtol=1e-5)
        assert torch.equal(y_.cpu(), y)
