"""Packed panels hold what a convolution reads."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softprune.engine.grids import Grid, choose
from softprune.engine.windows import COPY, FILL, PERMUTE_MORE, Program, Shape, program


def execute(made: Program, source: Grid, target: Grid, image: torch.Tensor) -> torch.Tensor:
    """[panel, packed vector, lane] of the values of a picture; -1 is padding."""
    n, y, x = source.places()
    y, x, ok = y.clamp(max=source.height - 1), x.clamp(max=source.width - 1), source.valid()
    groups = image.split(source.images)
    held = torch.cat([torch.where(ok, group[n, y, x], -99).flatten(0, 1) for group in groups])
    packed = torch.full((target.panels, made.packed, target.lanes), -77)
    for panel, (base, first, last) in enumerate(made.panels):
        for to, mode, vector, mask, index in made.moves[first:last]:
            if mode == FILL:
                packed[panel, to] = -1
            elif mode == COPY:
                packed[panel, to] = held[base + vector]
            else:
                old = packed[panel, to] if mode == PERMUTE_MORE else torch.full((target.lanes,), -1)
                taken = torch.tensor([mask >> i & 1 for i in range(target.lanes)], dtype=torch.bool)
                packed[panel, to] = torch.where(taken, held[base + vector][torch.tensor(made.indices[index])], old)
    return packed


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_taps_are_the_pixels_of_the_window(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    kernel, stride, dilation = ((draw(1, 4), draw(1, 4)), (draw(1, 3), draw(1, 3)), (draw(1, 3), draw(1, 3)))
    shape = Shape(kernel, stride, (draw(0, 3), draw(0, 3), draw(0, 3), draw(0, 3)), dilation)
    height, width = (draw(d * (k - 1) + 1, 24) for d, k in zip(dilation, kernel, strict=True))
    images, lanes = 1 << draw(0, 3), data.draw(st.sampled_from((16, 32)))
    fewer = images >> draw(0, 1) or 1
    source = choose(8, height, width, fewer, lanes)
    target = choose(8, *shape.output(height, width), images, lanes)
    made = program(source, target, shape)
    picture = torch.arange(images * height * width).view(-1, height, width)
    packed = execute(made, source, target, picture)
    n, y, x = target.places()
    valid = target.valid()
    for tap, begin in enumerate(made.taps):
        ky, kx = divmod(tap, kernel[1])
        at_y = y * stride[0] + ky * dilation[0] - shape.padding[2]
        at_x = x * stride[1] + kx * dilation[1] - shape.padding[0]
        inside = (at_y >= 0) & (at_y < height) & (at_x >= 0) & (at_x < width)
        right = torch.where(inside, picture[n, at_y.clamp(0, height - 1), at_x.clamp(0, width - 1)], -1)
        assert torch.equal(packed[:, begin : begin + target.panel][valid], right[valid])


def test_panels_inside_share_a_program() -> None:
    size = choose(1, 224, 224, 1), choose(1, 112, 112, 1)
    made = program(*size, Shape((7, 7), (2, 2), (3,) * 4))
    assert len(made.panels) == 112
    assert len({first for _, first, _ in made.panels}) <= 16


def test_a_window_along_a_run_is_short() -> None:
    grid = choose(1, 56, 56, 1)
    made = program(grid, grid, Shape((3, 3), (1, 1), (1,) * 4))
    assert made.packed == 3 * (grid.panel + 2)
    assert made.taps == (0, 1, 2, 9, 10, 11, 18, 19, 20)
