"""Entries hold every weight, once, at its place."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_networks import block_mask
from softprune.engine import formats
from softprune.engine.formats import Entries, Form


def weights(entries: Entries, channels: int, taps: int, block: int) -> torch.Tensor:
    """[rows, channels, taps] back from the words; taps are single vectors here, ``taps`` of them to a channel group."""
    found = torch.zeros(entries.rows, -(-channels // block) * block, taps, dtype=torch.float32)
    words = entries.words.tolist()
    at = 0

    def put(row: int, offset: int, word: int) -> None:
        assert offset % formats.VECTOR == 0
        group, tap = divmod(offset // formats.VECTOR, taps)
        value = torch.tensor([word], dtype=torch.int32)
        if block == 4:
            found[row, 4 * group : 4 * group + 4, tap] = value.view(torch.int8).float()
        else:
            found[row, group, tap] = value.view(torch.float32)

    lengths = entries.lengths.tolist()
    if entries.form.paired:
        for pair in range(entries.rows // 2):
            both, first, second = lengths[3 * pair : 3 * pair + 3]
            for _ in range(both):
                put(2 * pair, words[at], words[at + 1])
                put(2 * pair + 1, words[at], words[at + 2])
                at += 3
            for row, count in ((2 * pair, first), (2 * pair + 1, second)):
                for _ in range(count):
                    put(row, words[at], words[at + 1])
                    at += 2
    else:
        for row, count in enumerate(lengths):
            for _ in range(count):
                put(row % entries.rows, words[at], words[at + 1])
                at += 2
    assert at == len(words)
    return found


def of_few(entries: Entries, like: torch.Tensor) -> torch.Tensor:
    """The same back from steps of 16 rows."""
    steps, taps = entries.steps, like.shape[2]
    cut = [16 * steps, 20 * steps]
    weight, index = entries.words[: cut[0]].view(steps, 16, 1), entries.words[cut[0] : cut[1]].view(-1, 16, 1)
    first = entries.words[cut[1] :].view(torch.int16).long()
    four = weight.view(torch.int8).float().view(steps, 16, 4)
    place = index.view(torch.uint8).view(-1, 16, 4).transpose(1, 2).reshape(steps, 16).long() + first.view(-1, 1)
    bundle = torch.repeat_interleave(torch.arange(len(entries.lengths)), entries.lengths.long())
    found = torch.zeros(16 * len(entries.lengths), 4096, 4)
    for lane in range(16):
        found.index_put_((bundle * 16 + lane, place[:, lane]), four[:, lane], accumulate=True)
    rows, channels = like.shape[:2]
    groups = -(-channels // 4)
    kept = found[:rows, : groups * taps].view(rows, groups, taps, 4).permute(0, 1, 3, 2).reshape(rows, -1, taps)
    assert float(found.abs().sum()) == float(kept.abs().sum())
    return kept[:, :channels]


def dense(weight: torch.Tensor, groups: int) -> torch.Tensor:
    rows, each = weight.shape[:2]
    full = torch.zeros(rows, groups * each, weight[0, 0].numel())
    for row in range(rows):
        begin = row // (rows // groups) * each
        full[row, begin : begin + each] = weight[row].flatten(1).float()
    return full


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_weight_is_kept(data: st.DataObject) -> None:
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    torch.manual_seed(draw(0, 10**6))
    groups = draw(1, 3)
    shape = (groups * draw(1, 9), draw(1, 9), draw(1, 2), draw(1, 3))
    mask = block_mask(shape, data.draw(st.sampled_from((0.0, 0.5, 0.9, 1.0))), rows=draw(1, 2))
    weight = (torch.randint(-127, 128, shape) * mask).to(torch.int8)
    taps = shape[2] * shape[3]
    right = dense(weight, groups)
    for paired in (False, True):
        entries = formats.int8(weight, groups, tuple(range(taps)), taps, Form(paired))
        assert entries.rows % 4 == 0
        found = weights(entries, groups * shape[1], taps, 4)
        assert torch.equal(found[: shape[0], : groups * shape[1]], right)
        assert not found[shape[0] :].any()
    assert torch.equal(of_few(formats.int8(weight, groups, tuple(range(taps)), taps, Form(few=True)), right), right)
    for slices in {1, min(3, groups * shape[1])}:
        entries = formats.single(weight.float(), groups, tuple(range(taps)), taps, Form(slices=slices))
        assert entries.blocks == int((weight != 0).sum())
        assert torch.equal(weights(entries, groups * shape[1], taps, 1), right)


def test_rows_of_two_share_entries() -> None:
    weight = torch.ones(8, 16, 1, 1, dtype=torch.int8)
    assert len(formats.int8(weight, 1, (0,), 1).words) == 8 * 4 * 2
    paired = formats.int8(weight, 1, (0,), 1, Form(paired=True))
    assert len(paired.words) == 4 * 4 * 3
    assert paired.lengths.tolist() == [4, 0, 0] * 4


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_are_all_rows_in_order(paired: bool, count: int) -> None:
    torch.manual_seed(0)
    weight = (torch.randint(1, 128, (104, 64, 1, 1)) * block_mask((104, 64, 1, 1), 0.7)).to(torch.int8)
    entries = formats.int8(weight, 1, (0,), 1, Form(paired))
    parts = entries.parts(count)
    assert [first for _, _, first, _ in parts] == [0, *(last for _, _, _, last in parts[:-1])]
    assert parts[-1][3] == 104
    assert all(first % 4 == 0 for _, _, first, _ in parts)
    sizes = [b[0] - a[0] for a, b in pairwise([*parts, (len(entries.words),)])]
    assert count > 3 or max(sizes) < 1.4 * min(sizes)


def test_an_empty_layer_has_parts() -> None:
    entries = formats.int8(torch.zeros(5, 8, 1, 1, dtype=torch.int8), 1, (0,), 1)
    assert entries.parts(2)[-1][3] == 8
    assert not len(entries.words)


def test_depthwise_words_are_four_taps_of_one_channel() -> None:
    weight = torch.arange(6 * 9).view(6, 1, 3, 3).to(torch.int8)
    words = formats.depthwise(weight).view(torch.int8).view(2, 3, 4, 4)  # channels / 4, taps / 4, channel, tap
    for channel in range(6):
        taps = words[channel // 4, :, channel % 4].flatten()
        assert taps.tolist() == [*range(9 * channel, 9 * channel + 9), 0, 0, 0]
