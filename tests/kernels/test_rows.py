"""Rows of zeros, and how long their gradients may be."""

import pytest
import torch
from torch import Tensor

from softprune.kernels.pairs import Pairs
from softprune.kernels.rows import calm
from waiting import no_waiting

DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def case(dtype: torch.dtype, device: str = "cpu") -> tuple[list[Tensor], list[Tensor]]:
    """Gradients and weights: a matrix, a convolution in either layout, a vector, one that is all zero, one row."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 7), (6, 3, 3, 3), (6, 3, 3, 3), (9,), (4, 5), (1, 3000)]
    grads = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    ws = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    for grad, w, dead in zip(grads, ws, ([1, 4], [0, 5], [2], [3], [0, 1, 2, 3], []), strict=True):
        w[dead] = 0
        grad[dead] *= 100
    ws[0][4, 0], grads[0][1, 2] = 0.5, -0.0  # a row with one weight left is no row of zeros
    grads[2] = grads[2].contiguous(memory_format=torch.channels_last)
    ws[2] = ws[2].contiguous(memory_format=torch.channels_last)
    return [x.to(device) for x in grads], [x.to(device) for x in ws]


def expected(grad: Tensor, w: Tensor) -> Tensor:
    if w.ndim < 2:
        return grad
    rows = [(g.double(), bool(v.any())) for g, v in zip(grad, w, strict=True)]
    alive = [g.norm() for g, left in rows if left]
    if not alive:
        return grad
    mean = sum(alive) / len(alive)
    return torch.stack([g if left or g.norm() <= mean else g * mean / g.norm() for g, left in rows]).to(grad.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_zeros_are_cut_to_the_mean_of_the_others(dtype):
    grads, ws = case(dtype)
    wanted = [expected(g, w) for g, w in zip(grads, ws, strict=True)]
    before = [g.clone() for g in grads]
    calm(Pairs(grads, ws))
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for g, want in zip(grads, wanted, strict=True):
        torch.testing.assert_close(g, want, rtol=tolerance, atol=tolerance)
    assert not torch.equal(grads[0], before[0])
    assert torch.equal(grads[0][4], before[0][4])
    assert torch.equal(grads[3], before[3])  # a vector has no rows
    assert torch.equal(grads[4], before[4])  # all rows are zero, as in a layer that begins so


def test_where_no_row_is_zero_nothing_changes():
    grads, ws = case(torch.float32)
    before = [g.clone() for g in grads]
    calm(Pairs(grads, [torch.ones_like(w) for w in ws]))
    assert all(torch.equal(g, was) for g, was in zip(grads, before, strict=True))


def test_parts_of_a_weight_are_cut_to_the_mean_of_the_whole():
    grads, ws = case(torch.float64)
    whole = [expected(grads[0], ws[0]), expected(grads[1], ws[1])]
    halves = [([g[:3].clone() for g in grads[:2]], [w[:3] for w in ws[:2]])]
    halves += [([g[3:].clone() for g in grads[:2]], [w[3:] for w in ws[:2]])]
    sums: list[list[Tensor]] = []
    for g, w in halves:
        own: list[Tensor] = []
        calm(Pairs([x.clone() for x in g], w), total=lambda value, own=own: own.append(value) or value)
        sums.append(own)
    totals = [a + b for a, b in zip(*sums, strict=True)]
    for g, w in halves:
        order = iter(totals)
        calm(Pairs(g, w), total=lambda value, order=order: next(order))
    for i, want in enumerate(whole):
        torch.testing.assert_close(torch.cat([halves[0][0][i], halves[1][0][i]]), want)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_cuts_as_the_cpu_does_and_waits_for_nothing(dtype):
    (grads, ws), (moved, beside) = case(dtype), case(dtype, "cuda")
    pairs = Pairs(moved, beside)
    calm(Pairs([g.clone(memory_format=torch.preserve_format) for g in moved], beside))  # compiles, makes tables
    assert pairs.launchable
    assert pairs.table.is_cuda
    with no_waiting():
        calm(pairs)
    calm(Pairs(grads, ws))
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for g, want in zip(moved, grads, strict=True):
        torch.testing.assert_close(g.cpu(), want, rtol=tolerance, atol=tolerance)
