"""Every pixel has one place, and places are found again."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softprune.engine.grids import MOST, choose, images_for

SIZES = st.integers(1, 40)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), SIZES, SIZES, st.sampled_from((1, 2, 4, 8, 16)), st.sampled_from((16, 32)))
def test_every_pixel_has_one_place(batch: int, height: int, width: int, images: int, lanes: int) -> None:
    grid = choose(batch, height, width, images, lanes)
    assert grid.lanes == lanes
    assert grid.panel <= MOST
    assert grid.stride >= grid.panel
    assert sum(grid.counts) == grid.vectors
    n, y, x = grid.places()
    valid = grid.valid()
    pixels = (n * height + y) * width + x
    assert sorted(pixels[valid].tolist()) == list(range(images * height * width))
    panel, vector, lane = grid.find(n[valid], y[valid], x[valid])
    assert torch.equal(torch.stack([panel, vector, lane], 1), valid.nonzero())
    assert all(int(v) < grid.counts[int(p)] for p, v in zip(panel, vector, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), SIZES, SIZES)
def test_no_other_number_of_images_is_much_better(batch: int, height: int, width: int) -> None:
    def cost(images: int) -> int:
        grid = choose(batch, height, width, images)
        return grid.groups * grid.vectors

    assert cost(images_for(batch, height, width)) <= 1.1 * min(cost(1), cost(4), cost(16)) or batch < 4


def test_pictures_of_resnet_fill_their_lanes() -> None:
    for size, vectors in ((224, 3136), (112, 784), (56, 196), (28, 49), (14, 14), (7, 4)):
        assert choose(1, size, size, 1).vectors == vectors
    assert choose(16, 14, 14, 4).vectors == 49
    assert choose(16, 7, 7, 16).vectors == 49
