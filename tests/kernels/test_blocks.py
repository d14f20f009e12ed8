"""Blocks of weights: their root mean squares and their threshold, against a loop over blocks in double precision."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from softprune.kernels import blocks
from softprune.kernels.pairs import Pairs
from waiting import no_waiting

SIZES = [(1, 4), (2, 4), (1, 16), (4, 4), (16, 1), (64, 64), (1, 1), (3, 5)]
SHAPES = [(16, 32), (7, 9), (1, 1), (10, 3, 3, 5), (8, 16, 3, 3), (6, 10, 5), (0, 4), (4, 0), (4, 8, 0)]
POWERS = [1, 1.5, 2, 3, math.inf]


def cut(x: Tensor, rows: int, cols: int):
    """Every block, one at a time: where it is among the blocks, and a view of its weights."""
    for o, i in product(range(0, x.shape[0], rows), range(0, x.shape[1], cols)):
        for rest in product(*map(range, x.shape[2:])):
            yield (o // rows, i // cols, *rest), x[(slice(o, o + rows), slice(i, i + cols), *rest)]


def soft_hard(theta: Tensor, d: float, p: float) -> Tensor:
    """θ · (1 − (d/r)^p)^(1/p) for one block, in double precision."""
    r = theta.norm() / theta.numel() ** 0.5
    if r <= d:
        return torch.zeros_like(theta)
    return theta if p == math.inf else theta * (1 - (d / r) ** p) ** (1 / p)


def reference(theta: Tensor, d: float, rows: int, cols: int, p: float) -> Tensor:
    w = theta.double()
    for _, block in cut(w, rows, cols):
        block.copy_(soft_hard(block, d, p))
    return w


@pytest.mark.parametrize("size", SIZES)
def test_scores_are_root_mean_squares(size):
    thetas = [torch.randn(shape) for shape in SHAPES]
    for score, theta in zip(blocks.scores(thetas, *size), thetas, strict=True):
        whole = [math.ceil(n / k) for n, k in zip(theta.shape, (*size, *[1] * (theta.dim() - 2)), strict=True)]
        assert list(score.shape) == whole
        for where, block in cut(theta, *size):
            torch.testing.assert_close(score[where], block.norm() / block.numel() ** 0.5)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("size", SIZES)
def test_each_block_is_scaled_by_its_own_root_mean_square(size, p):
    thetas = [torch.randn(shape, dtype=torch.float64) for shape in SHAPES]
    thetas.append(thetas[3].to(memory_format=torch.channels_last))
    thetas.append(thetas[0].t())
    for column in ([0.1 * i for i in range(len(thetas))], torch.linspace(0, 1.2, len(thetas), dtype=torch.float64)):
        ws = [torch.full_like(theta, torch.nan) for theta in thetas]
        blocks.threshold(Pairs(ws, thetas), column, *size, p)
        for w, theta, d in zip(ws, thetas, column, strict=True):
            torch.testing.assert_close(w, reference(theta, float(d), *size, p), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("size", [(1, 4), (3, 5), (4, 4)])
def test_a_block_dies_exactly_where_its_score_is_at_most_d(size, p, dtype):
    theta = torch.randn(12, 20, 3, dtype=dtype)
    (score,) = blocks.scores([theta], *size)
    w = torch.empty_like(theta)
    for d in torch.sort(score.flatten())[0][::7].to(dtype).tolist():
        blocks.threshold(Pairs([w], [theta]), [d], *size, p)
        assert torch.equal(w == 0, blocks.spread(score, theta.shape, *size) <= d)


@pytest.mark.parametrize("p", POWERS)
def test_single_weights_are_thresholded_without_cancelling(p):
    """Blocks of one weight, next to the threshold: a few roundings from w = (|θ|^p − d^p)^(1/p)."""
    theta = (1 + torch.arange(1, 100) * 2**-23).unsqueeze(1)
    w = torch.empty_like(theta)
    blocks.threshold(Pairs([w], [theta]), [1.0], 1, 1, p)
    exact = theta.double() if p == math.inf else torch.expm1(p * theta.double().log()) ** (1 / p)
    torch.testing.assert_close(w.double(), exact, rtol=2e-6, atol=0)


@pytest.mark.parametrize("p", POWERS)
def test_zero_infinite_and_not_a_number(p):
    theta = torch.tensor([[0.0, 0.0, 1.0, -2.0, math.inf, 1.0, math.nan, 1.0, 1e30, 1.0]])
    w = torch.empty_like(theta)
    blocks.threshold(Pairs([w], [theta]), [0.0], 1, 2, p)
    assert torch.equal(w[:, :6], theta[:, :6])
    assert w[0, 6].isnan()
    assert torch.equal(w[:, 8:], theta[:, 8:])
    blocks.threshold(Pairs([w], [theta]), [0.5], 1, 2, p)
    assert torch.equal(w[0, :2], torch.zeros(2))
    assert torch.equal(w[0, 4:6], theta[0, 4:6])
    assert w[0, 6].isnan()
    blocks.threshold(Pairs([w], [theta]), [1e6], 1, 2, p)
    assert torch.equal(w[0, :4], torch.zeros(4))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9))
def test_spread_gives_each_weight_the_score_of_its_block(out, into, rows, cols):
    x = torch.zeros(out, into, 2)
    for number, (_, block) in enumerate(cut(x, rows, cols)):
        block.fill_(number)
    (score,) = blocks.scores([x], rows, cols)
    torch.testing.assert_close(blocks.spread(score, x.shape, rows, cols), x)


# -- on a GPU ---------------------------------------------------------------------------------------------------


def many(dtype: torch.dtype) -> list[Tensor]:
    thetas = [torch.randn(shape, dtype=dtype) for shape in [*SHAPES, (130, 260), (256, 64, 3, 3), (96, 40, 1, 1)]]
    thetas += [x.to(memory_format=torch.channels_last) for x in thetas if x.dim() == 4]
    return [*thetas, thetas[0].t(), torch.randn(4, 4, dtype=dtype)[:, ::2]]


@pytest.mark.gpu
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", SIZES)
def test_one_launch_does_what_plain_torch_does(size, dtype, p):
    """The same scores bit by bit, so the same zeros; in double precision torch's root may be one bit off."""
    thetas = many(dtype)
    moved = [x.cuda() for x in thetas]
    d = [torch.tensor(0.05 * i, dtype=dtype).item() for i in range(len(thetas))]
    ws, found = [torch.full_like(x, torch.nan) for x in thetas], [torch.full_like(x, torch.nan) for x in moved]
    close = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}
    exact = {"rtol": 4e-16, "atol": 0} if dtype is torch.float64 else {"rtol": 0, "atol": 0}
    for a, b in zip(blocks.scores(moved, *size), blocks.scores(thetas, *size), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a.cpu(), b, **exact)
    blocks.threshold(Pairs(ws, thetas), d, *size, p)
    for column in (d, torch.tensor(d, dtype=torch.float64, device="cuda")):
        blocks.threshold(Pairs(found, moved), column, *size, p)
        for a, w in zip(found, ws, strict=True):
            assert torch.equal(a.cpu() == 0, w == 0)
            torch.testing.assert_close(a.cpu(), w, rtol=close[dtype], atol=torch.finfo(dtype).tiny)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [*SIZES, (128, 128), (256, 256)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_on_a_gpu_too_a_block_dies_exactly_where_its_score_is_at_most_d(size, dtype):
    theta = torch.randn(512, 300, device="cuda", dtype=dtype)
    (score,) = blocks.scores([theta], *size)
    w = torch.empty_like(theta)
    levels = torch.sort(score.flatten())[0]
    for d in levels[:: max(1, len(levels) // 9)].to(dtype).tolist():
        for p in (1, 3, math.inf):
            blocks.threshold(Pairs([w], [theta]), [d], *size, p)
            assert torch.equal(w == 0, blocks.spread(score, theta.shape, *size) <= d)


@pytest.mark.gpu
@pytest.mark.parametrize("p", POWERS)
def test_special_values_on_a_gpu_are_those_of_the_cpu(p):
    theta = torch.tensor([[0.0, 0.0, 1.0, -2.0, math.inf, 1.0, math.nan, 1.0, 1e30, 1.0, 1e-30, 0.0]])
    for d in (0.0, 0.5, 1e6, math.inf):
        w, found = torch.empty_like(theta), torch.empty_like(theta, device="cuda")
        blocks.threshold(Pairs([w], [theta]), [d], 1, 2, p)
        blocks.threshold(Pairs([found], [theta.cuda()]), [d], 1, 2, p)
        torch.testing.assert_close(found.cpu(), w, equal_nan=True)


@pytest.mark.gpu
def test_the_host_does_not_wait():
    thetas = [torch.randn(64, 64, device="cuda") for _ in range(3)]
    ws = [torch.empty_like(x) for x in thetas]
    for _ in range(2):
        with no_waiting():
            blocks.threshold(Pairs(ws, thetas), [0.1, 0.2, 0.3], 1, 4, 3)
            blocks.scores(thetas, 1, 4)
