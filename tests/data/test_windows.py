"""Windows of a text: where they are, and what follows them."""

import torch

from softprune import data
from softprune.data.windows import EPOCH, MOST, TextSplit, windowed

PLACES = torch.arange(200, dtype=torch.uint8)  # a byte tells where it stands


def starts(split: TextSplit, train: bool, epoch: int = 0, seed: int = 0) -> list[int]:
    loader = split.loader(batch=2, train=train, seed=seed)
    loader.load_state_dict({"epoch": epoch, "batch": 0})
    found = []
    for x, y in loader:
        assert (x.dtype, y.dtype) == (torch.int64, torch.int64)
        assert x.shape[1] == split.context
        assert torch.equal(x, x[:, :1] + torch.arange(split.context))
        assert torch.equal(y, x + 1)
        found += x[:, 0].tolist()
    return found


def test_training_draws_places_anew_for_every_epoch_and_seed():
    split = TextSplit(PLACES, context=7, windows=1000)
    drawn = [starts(split, True, epoch, seed) for epoch, seed in ((0, 0), (1, 0), (0, 1))]
    assert drawn[0] == starts(split, True)
    assert len({tuple(places) for places in drawn}) == 3
    assert set().union(*drawn) == set(range(193))  # the last window ends at the second last byte


def test_evaluation_spreads_windows_over_the_whole_text():
    assert starts(TextSplit(PLACES, context=7, windows=4), False) == [0, 64, 128, 192]
    assert starts(TextSplit(PLACES[:8], context=7, windows=1), False) == [0]


def test_windows_to_validate_with_do_not_overlap():
    for length in range(50, 400):
        split = windowed(bytes(length), 4, "the text").val
        order = split.loader(batch=1, train=False).order
        begins = split._starts(order, 0)
        assert len(begins) == (length // 10 - 1) // 4
        assert (begins.diff() >= 4).all()
        assert begins[-1] + 4 < len(split.text)


def test_how_many_there_are():
    dataset = windowed(bytes(200_000), 8, "the text")
    assert (len(dataset.train), len(dataset.val)) == (EPOCH, MOST)
    assert len(dataset.train.loader(batch=64, train=True)) == 100
    assert isinstance(dataset, data.Dataset)
