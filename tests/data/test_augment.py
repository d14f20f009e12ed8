"""Shifts against a loop, random crops against rejection sampling."""

import math
import random

import pytest
import torch

from softprune.data.augment import Shift, random_box


@pytest.mark.parametrize("flip", [True, False])
def test_a_shift_against_a_loop(flip):
    pixels = torch.randint(1, 256, (40, 2, 6, 5), dtype=torch.uint8)
    numbers = torch.rand(40, 3)
    out = Shift(2, flip)(pixels, numbers)
    seen = set()
    for image, (a, b, c), result in zip(pixels, numbers.tolist(), out, strict=True):
        down, right = 2 - math.floor(5 * a), 2 - math.floor(5 * b)
        seen.add((down, right))
        expected = torch.zeros_like(image)
        for y in range(max(0, down), min(6, 6 + down)):
            for x in range(max(0, right), min(5, 5 + right)):
                expected[:, y, x] = image[:, y - down, x - right]
        assert torch.equal(result, expected.flip(2) if flip and c < 0.5 else expected)
    assert len(seen) > 12


def test_a_shift_by_numbers_next_to_one():
    numbers = torch.full((1, 3), 1 - 2**-24)
    for p in range(1, 40):
        Shift(p)(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), numbers)


@pytest.mark.parametrize(("width", "height"), [(500, 375), (300, 500), (224, 224)])
def test_random_resized_crop_against_rejection_sampling(width, height):
    n = 20_000
    draw = random.Random(0)
    left, top, right, bottom = torch.tensor([random_box(width, height, draw) for _ in range(n)]).double().T
    w, h = right - left, bottom - top
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (right <= width).all()
    assert (bottom <= height).all()
    share = torch.empty(4 * n, dtype=torch.float64).uniform_(0.08, 1)
    ratio = torch.empty_like(share).uniform_(math.log(3 / 4), math.log(4 / 3)).exp()
    sides = (share * width * height * ratio).sqrt(), (share * width * height / ratio).sqrt()
    fits = (sides[0] <= width) & (sides[1] <= height)
    at = torch.linspace(0.02, 0.98, 25, dtype=torch.float64)
    for ours, theirs in ((w * h / (width * height), share[fits]), ((w / h).log(), ratio[fits].log())):
        torch.testing.assert_close(ours.quantile(at), theirs.quantile(at), atol=0.015, rtol=0)
    for start, room in ((left, width - w), (top, height - h)):
        free = room >= 50
        place = (start / (room + 1))[free]
        torch.testing.assert_close(place.quantile(at), at, atol=0.03, rtol=0)


def test_boxes_that_never_fit():
    assert random_box(10, 1000, random.Random(0)) == (0, 493, 10, 506)
    assert random_box(1000, 10, random.Random(0)) == (493, 0, 506, 10)
    assert random_box(1, 1, random.Random(0)) == (0, 0, 1, 1)
