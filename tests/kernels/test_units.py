"""Groups over several tensors: their sums and their scaling, against a loop over groups in double precision."""

import math
import pickle

import pytest
import torch
from torch import Tensor

from softprune.kernels import units as module
from softprune.kernels.factor import factor
from softprune.kernels.pairs import Pairs
from softprune.kernels.units import Owned, Units, sizes
from waiting import no_waiting

NUMBER = 7


def example(dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], list[Owned | None]]:
    """Rows, columns, channels, a bias, a tensor in no group, one without weights; group 5 is empty."""
    shapes = [(6, 10), (10, 6), (6, 4, 3, 3), (4, 6, 3, 3), (6,), (5, 5), (0, 6), (4, 6, 1, 1)]
    dims = [0, 1, 0, 1, 0, None, 1, -3]
    draw = torch.Generator().manual_seed(0)
    labels = torch.tensor([6, 3, -1, 0, 1, 3]), torch.tensor([2, 2, 4, -1, 0, 1])
    owned = [None if dim is None else Owned(dim, labels[i % 2]) for i, dim in enumerate(dims)]
    return [torch.randn(shape, generator=draw).to(dtype) for shape in shapes], owned


def units(xs: list[Tensor], owned: list[Owned | None]) -> Units:
    return Units(owned, [x.shape for x in xs], NUMBER)


def slices(xs: list[Tensor], owned: list[Owned | None], group: int):
    """All that is in a group, index by index."""
    for i, (x, own) in enumerate(zip(xs, owned, strict=True)):
        for index in [] if own is None else (own.labels == group).nonzero().flatten().tolist():
            yield i, x.select(own.dim, index)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sums_over_groups(dtype):
    xs, owned = example(dtype)
    ys = [torch.randn_like(x) for x in xs]
    groups, counts = units(xs, owned), sizes(owned, [x.shape for x in xs], NUMBER)
    squares, products = groups.squares(Pairs(xs, xs)), groups.products(xs, ys)
    assert squares.dtype is products.dtype is torch.promote_types(dtype, torch.float32)
    for group in range(NUMBER):
        parts = list(slices(xs, owned, group))
        assert counts[group] == sum(x.numel() for _, x in parts)
        exact = sum((x.double() ** 2).sum() for _, x in parts) if parts else torch.zeros(()).double()
        torch.testing.assert_close(squares[group].double(), exact, rtol=1e-5, atol=1e-5)
        others = list(slices(ys, owned, group))
        exact = sum((x.double() * y.double()).sum() for (_, x), (_, y) in zip(parts, others, strict=True))
        torch.testing.assert_close(products[group].double(), exact + torch.zeros(()).double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_each_group_is_scaled_by_its_factor(dtype):
    xs, owned = example(dtype)
    factors = torch.linspace(0, 1, NUMBER)
    expected = [x.clone() for x in xs]
    for group in range(NUMBER):
        for _, part in slices(expected, owned, group):
            part.mul_(factors[group])
    ws = [torch.full_like(x, torch.nan) for x in xs]
    units(xs, owned).scale(Pairs(ws, xs), factors)
    for w, e in zip(ws, expected, strict=True):
        torch.testing.assert_close(w, e)


def test_groups_are_pickled_without_what_they_cache():
    xs, owned = example()
    groups = units(xs, owned)
    sums = groups.squares(Pairs(xs, xs))
    fresh = len(pickle.dumps(units(xs, owned)))
    assert len(pickle.dumps(groups)) == fresh
    assert torch.equal(pickle.loads(pickle.dumps(groups)).squares(Pairs(xs, xs)), sums)


def test_without_groups_nothing_is_scaled():
    x = torch.randn(3, 4)
    groups = Units([None], [x.shape], 0)
    w = torch.empty_like(x)
    groups.scale(Pairs([w], [x]), groups.squares(Pairs([x], [x])))
    assert torch.equal(w, x)


@pytest.mark.parametrize("p", [1, 1.01, 1.5, 2, 3, 100, math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_factor_does_not_cancel(p, dtype):
    """Next to the threshold and far from it, against 1 − (d/r)^p = −expm1(p · log1p((d − r)/r)) in double precision."""
    eps = torch.finfo(dtype).eps
    d = torch.tensor(0.7, dtype=dtype).double()
    r = torch.cat([d * (1 + torch.arange(1, 50, dtype=torch.float64) * eps * 8), torch.tensor([1.0, 1e4, 1e30])])
    r = r.to(dtype)
    exact = (-torch.expm1(p * torch.log1p((d - r.double()) / r.double()))) ** (1 / p) if p < math.inf else 1 + 0 * d
    found = factor(r, 0.7, p)
    torch.testing.assert_close(found.double(), exact.expand_as(found), rtol=max(20 * eps, 2e-14), atol=0)
    assert torch.equal(factor(r, torch.full_like(r, 0.7), p), found)


@pytest.mark.parametrize("p", [1, 1.5, 3, math.inf])
def test_the_factor_of_special_values(p):
    nan, inf = math.nan, math.inf
    r = torch.tensor([0.0, 0.5, 1.0, 2.0, inf, nan])
    assert torch.equal(factor(r, 0.0, p)[:5], torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0]))
    assert torch.equal(factor(r, inf, p)[:5], torch.zeros(5))
    found = factor(r, 1.0, p)
    assert torch.equal(found[:3], torch.zeros(3))
    assert 0 < found[3] <= 1
    assert found[4] == 1
    assert found[5] == 1 if p == inf else found[5].isnan()


# -- on a GPU ---------------------------------------------------------------------------------------------------


def network(dtype: torch.dtype) -> tuple[list[Tensor], list[Owned | None], int]:
    """Convolutions in both layouts, linear layers owned by rows and by columns, tensors of few and of many weights."""
    shapes = [(256, 64, 3, 3), (64, 256, 1, 1), (64, 3, 7, 7), (1000, 300), (300, 1000), (300,), (77, 5), (2, 6, 4000)]
    dims = [1, 0, 1, 1, 0, 0, None, 1]
    draw = torch.Generator().manual_seed(0)
    xs = [torch.randn(shape, generator=draw).to(dtype) for shape in shapes]
    xs += [x.to(memory_format=torch.channels_last) for x in xs[:3]]
    dims += dims[:3]
    number = 400
    owned = [
        None if dim is None else Owned(dim, torch.randint(-1, number, (x.shape[dim],), generator=draw))
        for x, dim in zip(xs, dims, strict=True)
    ]
    few, some = example(dtype)
    return [*xs, *few], [*owned, *some], number


@pytest.mark.gpu
@pytest.mark.parametrize("tiles", [8192, 1])  # of one step, and of several
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_few_launches_do_what_plain_torch_does(dtype, tiles, monkeypatch):
    monkeypatch.setattr(module, "_TILES", tiles)
    xs, owned, number = network(dtype)
    groups = Units(owned, [x.shape for x in xs], number)
    moved = [x.cuda() for x in xs]
    assert groups._cut(Pairs(moved, moved)) is not None
    sums = groups.squares(Pairs(moved, moved))
    torch.testing.assert_close(sums.cpu(), groups.squares(Pairs(xs, xs)), rtol=1e-5, atol=1e-5)
    factors = torch.rand(number, dtype=sums.dtype)
    ws, found = [torch.full_like(x, torch.nan) for x in xs], [torch.full_like(x, torch.nan) for x in moved]
    groups.scale(Pairs(ws, xs), factors)
    on_gpu = factors.cuda()
    with no_waiting():
        groups.scale(Pairs(found, moved), on_gpu)
        again = groups.squares(Pairs(moved, moved))
    assert torch.equal(again, sums)
    for a, w in zip(found, ws, strict=True):
        assert torch.equal(a.cpu(), w)


@pytest.mark.gpu
@pytest.mark.parametrize("p", [1, 1.5, 3, 100, math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_factor_on_a_gpu_is_that_of_the_cpu(p, dtype):
    near = 0.7 * (1 + torch.arange(-50, 50) * torch.finfo(dtype).eps)
    r = torch.cat([near, torch.rand(2000), torch.tensor([0.0, 1e30, math.inf, math.nan])]).to(dtype)
    for d in (0.0, 0.7, math.inf, torch.rand_like(r)):
        expected = factor(r, d, p)
        found = factor(r.cuda(), d.cuda() if isinstance(d, Tensor) else d, p).cpu()
        assert torch.equal(found == 0, expected == 0)
        torch.testing.assert_close(found, expected, rtol=100 * torch.finfo(dtype).eps, atol=0, equal_nan=True)
