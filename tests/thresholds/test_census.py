"""What a target counts is what is really zero, and a target is met within half a group: over random groups."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import softprune as sp
from softprune.groups.units import Placed, Slots, UnitPartition
from softprune.kernels.pairs import Pairs
from softprune.prox.group import Grouped
from softprune.pruner.hidden import Hidden
from softprune.thresholds.budgets import cells
from softprune.thresholds.census import Census, WeightCensus
from softprune.thresholds.units import UnitCensus

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def numbers(draw, shape: tuple[int, ...], dtype: torch.dtype, few: bool) -> Tensor:
    """None of them zero; a few different ones alone, so that groups have the same size."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    if few:
        return torch.randint(1, 3, shape, generator=generator).to(dtype)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (x.sign() * (x.abs() + 0.01)).to(dtype)


@st.composite
def units(draw) -> tuple[Hidden, UnitPartition]:
    """Parameters of up to three dimensions: one makes units, others read them, as in a network."""
    dtype, few, number = draw(st.sampled_from(DTYPES)), draw(st.booleans()), draw(st.integers(1, 12))
    params, owned, used = {}, {}, {}
    for i in range(draw(st.integers(1, 4))):
        shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
        params[f"p{i}"] = nn.Parameter(numbers(draw, shape, dtype, few))
        dims = draw(st.permutations(range(len(shape))))
        slots = [_slots(draw, dim, shape[dim], number) for dim in dims[: draw(st.integers(0, len(dims)))]]
        if slots:
            owned[f"p{i}"], used[f"p{i}"] = slots[0], slots[1:]
    there = torch.cat([torch.zeros(0, dtype=torch.int64), *(s.groups.whole for s in owned.values())]).unique()
    there = there[there >= 0].tolist()
    if not there:
        name, p = next(iter(params.items()))
        owned[name], used[name], there = Slots(0, Placed(torch.zeros(len(p), dtype=torch.int64))), [], [0]
    names = {old: new for new, old in enumerate(there)}
    owned = {name: _renamed(slots, names) for name, slots in owned.items()}
    used = {name: [_renamed(slots, names) for slots in many] for name, many in used.items()}
    partition = UnitPartition(params, owned, used, {"all": range(len(there))})
    if draw(st.booleans()):
        partition.measure([p.detach() for p in params.values()])
    prox = Grouped(draw(st.sampled_from([sp.SoftThreshold(), sp.PowerThreshold(4.0)])), partition)
    return Hidden(params, prox), partition


def _slots(draw, dim: int, size: int, number: int) -> Slots:
    labels = draw(st.lists(st.integers(-1, number - 1), min_size=size, max_size=size))
    return Slots(dim, Placed(torch.tensor(labels)))


def _renamed(slots: Slots, names: dict[int, int]) -> Slots:
    return Slots(slots.dim, Placed(torch.tensor([names.get(x, -1) for x in slots.groups.whole.tolist()])))


@st.composite
def blocks(draw) -> Hidden:
    dtype, few = draw(st.sampled_from(DTYPES)), draw(st.booleans())
    params = {}
    for i in range(draw(st.integers(1, 3))):
        shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
        params[f"p{i}"] = nn.Parameter(numbers(draw, shape, dtype, few))
    grouping = sp.Blocks(draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    scalar = draw(st.sampled_from([sp.SoftThreshold(), sp.PowerThreshold(4.0)]))
    return Hidden(params, Grouped(scalar, grouping.bind(params)))


def left(hidden: Hidden, levels: list[float]) -> list[int]:
    """Weights of each parameter that are really there, in what training would leave behind."""
    hidden.prox.write(hidden.pairs, levels)
    return [int((w != 0).sum()) for w in hidden.prox.exact(Pairs(hidden.ws, hidden.thetas), levels)]


def unit_census(hidden: Hidden, target: float = 0.01, flops=None, min_density: float = 0.0) -> UnitCensus:
    return UnitCensus(hidden, target, None, flops, min_density, "TargetSparsity")


def weight_census(hidden: Hidden, target: float) -> WeightCensus:
    return WeightCensus(hidden, cells(hidden, target, None, None, "TargetSparsity"), 0.0, "TargetSparsity")


def thresholds(hidden: Hidden) -> list[float]:
    """All at which something dies, and 0. Of sizes that differ by rounding, the largest."""
    sizes = torch.cat([size.flatten() for size in hidden.prox.sizes(hidden.thetas)]).double()
    found = [0.0, *sizes[~sizes.isnan()].unique().tolist()]
    return [d for d, next_ in pairwise([*found, math.inf]) if next_ > d * (1 + 1e-12)]


@settings(max_examples=150, deadline=None)
@given(units(), st.floats(0, 1.5), st.data())
def test_the_count_of_units_is_what_is_zero(drawn, d, data):
    """At any threshold, those included at which a unit dies, and next to them: not so near that what is left of its
    weights is no number of half precision."""
    hidden, _ = drawn
    apart = 1e-3 if hidden.params[0].dtype is torch.float16 else 1e-9
    near = data.draw(st.sampled_from(thresholds(hidden)))
    flops = {name: data.draw(st.sampled_from([0.5, 1.0, 49.0])) for name in hidden.names}
    census = unit_census(hidden, flops=flops, target=1e-9)
    for level in (d, near, near * (1 + apart), near * (1 - apart)):
        alive = left(hidden, [level] * len(hidden.names))
        expected = sum(count * flops[name] for name, count in zip(hidden.names, alive, strict=True))
        assert census.left([level] * len(hidden.names))[0] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=150, deadline=None)
@given(units(), st.floats(0.0, 1.0))
def test_no_threshold_comes_nearer_to_the_target_than_that_of_units(drawn, share):
    hidden, _ = drawn
    census = unit_census(hidden, target=1e-9)
    found = census.sparsity(census.quantiles([share]) * len(hidden.names))
    gone = {d: census.sparsity([d] * len(hidden.names)) for d in thresholds(hidden)}
    assert abs(found - share) <= min(abs(x - share) for x in gone.values()) + 1e-12
    steps = sorted(set(gone.values()))
    if steps[0] == 0 and steps[-1] >= share and len(steps) == len(gone):  # no two of one size
        apart = max(b - a for a, b in pairwise(steps))
        assert abs(found - share) <= apart / 2 + 1e-12


@pytest.mark.filterwarnings("ignore:Nothing is left of")
@settings(max_examples=150, deadline=None)
@given(blocks(), st.floats(0, 1.5), st.data())
def test_the_count_of_blocks_is_what_is_zero(hidden, d, data):
    near = data.draw(st.sampled_from(thresholds(hidden)))
    census: Census = weight_census(hidden, 0.5)
    for level in (d, near):
        if any(p.dtype is torch.float64 for p in hidden.params):  # double precision is counted in single
            level = float(torch.tensor(level).float()) * (1 + 1e-6)
        levels = [level] * len(hidden.names)
        assert census.left(levels) == [sum(left(hidden, levels))]


@settings(max_examples=150, deadline=None)
@given(blocks(), st.floats(0.01, 0.99))
def test_a_target_is_met_within_half_a_block(hidden, share):
    census = weight_census(hidden, share)
    levels = census.spread(census.quantiles([share]))
    gone = census.masses[0] - sum(left(hidden, levels))
    sizes = torch.cat([size.flatten() for size in hidden.prox.sizes(hidden.thetas)]).float()
    same = int(torch.bincount(sizes.unique(return_inverse=True)[1]).max())  # blocks of one size die together
    assert abs(gone - share * census.masses[0]) <= max(hidden.prox.grain / 2, same) + 1
    if same <= hidden.prox.grain:
        assert abs(gone - share * census.masses[0]) <= hidden.prox.grain / 2 + 1


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_no_number_stays_and_the_rest_is_pruned(odd):
    params = {"p": nn.Parameter(torch.randn(10, 4, generator=torch.Generator().manual_seed(0)))}
    params["p"].data[2, 1] = odd
    prox = Grouped(sp.SoftThreshold(), sp.Groups({i: [("p", 0, [i])] for i in range(10)}).bind(params))
    hidden = Hidden(params, prox)
    census = unit_census(hidden, min_density=0.1)
    census.watch_all()
    levels = census.spread(census.quantiles([0.5]))
    assert left(hidden, levels) == [20]
    assert census.left(levels) == [20.0]
    assert not hidden.ws[0][2].eq(0).any()


def test_units_of_one_size_die_together_or_not_at_all():
    """Seven of ten have the same size: 0.3 is met by three, not by all ten."""
    params = {"p": nn.Parameter(torch.ones(10, 4))}
    params["p"].data[:3] = 0.5
    prox = Grouped(sp.SoftThreshold(), sp.Groups({i: [("p", 0, [i])] for i in range(10)}).bind(params))
    census = unit_census(Hidden(params, prox))
    assert census.quantiles([0.3, 0.5, 0.7]) == pytest.approx([0.5, 0.5, 1.0], rel=2e-5)
    assert census.quantiles([0.05]) == [0.0]


def test_millions_are_counted_to_the_last():
    """Of 4099 × 4099 weights all but one row and one column."""
    params = {"up": nn.Parameter(torch.ones(4099, 4099))}
    groups = torch.full((4099,), -1)
    groups[-1] = 0
    slots = Slots(0, Placed(groups)), Slots(1, Placed(groups))
    partition = UnitPartition(params, {"up": slots[0]}, {"up": [slots[1]]}, {"all": [0]})
    census = unit_census(Hidden(params, Grouped(sp.SoftThreshold(), partition)), target=1e-9)
    assert census.left([1.0]) == [4098.0**2]
    assert census.grain == pytest.approx(2 * 4099 - 1, abs=1e-6)
