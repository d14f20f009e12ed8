"""Laws of groups over several parameters, against a loop over groups in double precision."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import softprune as sp
from softprune.groups.units import Placed, Slots, UnitPartition
from softprune.kernels.pairs import Pairs
from softprune.prox.group import Grouped

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@st.composite
def networks(draw) -> tuple[list[Tensor], sp.Groups]:
    """Tensors in either layout, cut along any dimension into groups, some of zeros; indices in no group."""
    dtype, number = draw(st.sampled_from(DTYPES)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    thetas, groups = [], {}
    for i in range(draw(st.integers(1, 4))):
        shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
        theta = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        if len(shape) == 4 and draw(st.booleans()):
            theta = theta.contiguous(memory_format=torch.channels_last)
        thetas.append(theta)
        dim = draw(st.integers(0, len(shape) - 1))
        for index in range(shape[dim]):
            label = draw(st.integers(-1, number - 1))
            if label >= 0:
                groups.setdefault(label, []).append((f"p{i}", dim, [index]))
            if draw(st.integers(0, 4)) == 0:
                theta.select(dim, index).zero_()
    return thetas, sp.Groups(groups or {0: [("p0", 0, [0])]})


def bound(thetas: list[Tensor], groups: sp.Groups, p: float) -> Grouped:
    params = {f"p{i}": nn.Parameter(theta) for i, theta in enumerate(thetas)}
    return Grouped(sp.PowerThreshold(p), groups.bind(params))


def parts(tensors: list[Tensor], groups: sp.Groups) -> list[list[Tensor]]:
    """The weights of each group, as views."""
    return [
        [tensors[int(name[1:])].select(dim, index) for name, dim, (index,) in places]
        for places in groups.groups.values()
    ]


def written(prox: Grouped, thetas: list[Tensor], d: float) -> list[Tensor]:
    ws = [torch.full_like(theta, math.nan) for theta in thetas]
    prox.write(Pairs(ws, thetas), [d] * len(thetas))
    return ws


powers = st.sampled_from([1.0, 2.0, 4.0, math.inf])


@settings(max_examples=150, deadline=None)
@given(networks(), powers, st.sampled_from([0.0, 0.3, 0.8, 1.1, 50.0]))
def test_write_scales_each_group_and_leaves_the_rest(drawn, p, d):
    thetas, groups = drawn
    before = [theta.clone() for theta in thetas]
    ws = written(bound(thetas, groups, p), thetas, d)
    expected = [theta.double().clone() for theta in thetas]
    for group in parts(expected, groups):
        r = math.sqrt(sum(float(x.square().sum()) for x in group) / sum(x.numel() for x in group))
        f = 0.0 if r <= d else 1.0 if p == math.inf else (1 - (d / r) ** p) ** (1 / p)
        for x in group:
            x.mul_(f)
    for w, theta, was, exact in zip(ws, thetas, before, expected, strict=True):
        assert w.dtype is theta.dtype
        assert w.stride() == theta.stride()
        assert torch.equal(theta, was)
        torch.testing.assert_close(w.double(), exact, rtol=TOLERANCE[w.dtype], atol=TOLERANCE[w.dtype])
    if d == 0:
        assert all(map(torch.equal, ws, thetas))


@settings(max_examples=100, deadline=None)
@given(networks(), powers, st.sampled_from([0.0, 0.3, 0.8]))
def test_a_group_dies_as_a_whole_exactly_where_its_size_is_at_most_d(drawn, p, d):
    thetas, groups = drawn
    prox = bound(thetas, groups, p)
    radii = prox.partition.radii(Pairs(thetas, thetas))
    for r, group, made in zip(radii, parts(written(prox, thetas, d), groups), parts(thetas, groups), strict=True):
        for w, theta in zip(group, made, strict=True):
            assert torch.equal(w == 0, (theta == 0) | (r <= d))


@settings(max_examples=100, deadline=None)
@given(networks(), st.sampled_from([1.0, 4.0]), st.sampled_from([0.0, 0.3, 0.8]))
def test_the_inverse_maps_back(drawn, p, d):
    """Weights set from outside stay where they are set; where nothing was set, so does θ, to the bit."""
    thetas, groups = drawn
    prox = bound(thetas, groups, p)
    ws = written(prox, thetas, d)
    same = prox.recover(Pairs(ws, thetas), ws, [d] * len(ws))
    assert all(map(torch.equal, same, thetas))
    moved = [w + 0.5 for w in ws]
    back = written(prox, prox.recover(Pairs(moved, thetas), ws, [d] * len(ws)), d)
    for a, b in zip(back, moved, strict=True):
        torch.testing.assert_close(a, b, rtol=4 * TOLERANCE[a.dtype], atol=4 * TOLERANCE[a.dtype])


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_no_number_does_not_leave_its_group(odd):
    thetas = [torch.ones(3, 4), torch.ones(3)]
    thetas[0][1, 2] = odd
    groups = sp.Groups({i: [("p0", 0, [i]), ("p1", 0, [i])] for i in range(3)})
    for p in (1.0, 4.0, math.inf):
        ws = written(bound(thetas, groups, p), thetas, 0.5)
        assert all(w[[0, 2]].isfinite().all() for w in ws)
        assert ws[0][1, 2].isnan() if math.isnan(odd) else ws[0][1, 2] == math.inf
        assert not any((w == 0).any() for w in ws)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_what_training_leaves_has_no_weight_that_reads_a_dead_unit(out, into, data):
    """A layer that makes units along rows and reads others along columns: exactly those rows and columns are zero."""
    theta = torch.rand(out, into) + 0.1
    reads, makes = torch.arange(into), into + torch.arange(out)
    params = {"first": nn.Parameter(torch.rand(into, 2) + 0.1), "second": nn.Parameter(theta)}
    owned = {"first": Slots(0, Placed(reads)), "second": Slots(0, Placed(makes))}
    used = {"second": [Slots(1, Placed(reads))]}
    partition = UnitPartition(params, owned, used, {"all": range(out + into)})
    prox = Grouped(sp.SoftThreshold(), partition)
    thetas = [p.detach() for p in params.values()]
    d = data.draw(st.sampled_from(partition.radii(Pairs(thetas, thetas)).tolist()))
    dead = partition.radii(Pairs(thetas, thetas)) <= d
    ws = written(prox, thetas, d)
    first, second = prox.exact(Pairs(ws, thetas), [d, d])
    assert torch.equal(first == 0, dead[:into, None].expand(-1, 2))
    assert torch.equal(second == 0, dead[into:, None] | dead[None, :into])


@pytest.mark.parametrize("p", [1.0, math.inf])
def test_the_gradient_of_groups_over_parameters_is_that_of_autograd(p):
    generator = torch.Generator().manual_seed(0)
    thetas = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (3,), (2, 3))]
    groups = sp.Groups({i: [("p0", 0, [i]), ("p1", 0, [i]), ("p2", 1, [i])] for i in range(2)})  # index 2 has none
    prox, d = bound(thetas, groups, p), 0.4
    prox.partition.take([1.7, 1.0, 1.0])

    def reference(*xs: Tensor) -> tuple[Tensor, ...]:
        r = (xs[0].square().sum(1) + xs[1].square() + xs[2].square().sum(0)).div(7).sqrt() / 1.7
        alive = r > d
        f = alive * (1 - d / torch.where(alive, r, 1.0)) if p == 1 else alive.double()
        f = torch.where(torch.tensor([True, True, False]), f, 1.0)
        return xs[0] * f[:, None], xs[1] * f, xs[2] * f

    for w, expected in zip(written(prox, thetas, d), reference(*thetas), strict=True):
        torch.testing.assert_close(w, expected)
    leaves = [theta.clone().requires_grad_() for theta in thetas]
    assert torch.autograd.gradcheck(reference, leaves)
    given_grads = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in thetas]
    expected = torch.autograd.grad(reference(*leaves), leaves, given_grads)
    grads = [grad.clone() for grad in given_grads]
    assert prox.pull_back(Pairs(grads, thetas), [d] * 3, overwrite=True) == []
    for a, b in zip(grads, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_number_can_be_a_block():
    theta = torch.tensor(2.0)
    w = torch.empty(())
    Grouped(sp.SoftThreshold(), sp.Blocks(1, 4)).write(Pairs([w], [theta]), [0.5])
    assert w == 1.5
