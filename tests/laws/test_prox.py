"""The laws of a proximal map. A new prox is one more line in ``PROXES``, and is held to what it claims.

every prox     minimises its objective (n:m: for the thresholds of its groups as they are), has an inverse and a
               derivative, writes many tensors as it maps one
separable      acts on each weight alone: a grid finds nothing better, weight by weight
convex         its penalty is convex: the map is nonexpansive and increasing
thresholds     w = 0 exactly where |θ| <= d
bounded        ∂w/∂θ is bounded, so that w can be found again from its θ
"""

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, is_dataclass
from functools import partial

import pytest
import torch
from firm_threshold import Firm
from torch import Tensor

import softprune as sp
from oracles import shrink
from proxes import Rows, blocks, firm, nm, power, rows
from softprune.kernels.pairs import Pairs
from softprune.prox.group import Grouped
from softprune.prox.nm import NM


def blend(theta: Tensor, d: float | Tensor, k: float | Tensor) -> Tensor:
    return (1 - k) * shrink(theta, d) + k * theta


@dataclass(frozen=True)
class Law:
    """A prox, levels to try it at, and the same map written in another way, for autograd to differentiate."""

    prox: sp.Prox
    levels: tuple[tuple[float, ...], ...]
    reference: Callable[..., Tensor]
    kinks: tuple[float, ...] = (1.0,)  # at these multiples of d, of |θ| or, if not separable, of a row's ‖θ‖ / √size

    @property
    def nm(self) -> bool:
        return isinstance(self.prox, NM)


PROXES = [
    Law(sp.SoftThreshold(), ((0.7,), (0.0,), (2.5,)), shrink),
    Law(sp.Blend(), ((0.7, 0.3), (0.7, 1.0), (0.7, 1e-9), (0.0, 0.3)), blend),
    Law(Firm(c=3.0), ((0.7,), (0.0,), (2.5,)), firm, kinks=(1.0, 3.0)),
    Law(Rows(), ((0.7,), (0.0,), (2.5,)), rows),
    *(Law(sp.PowerThreshold(p), ((0.7,), (0.0,), (2.5,)), partial(power, p=p)) for p in (1, 1.5, 2, 3, 4, math.inf)),
    Law(Grouped(sp.SoftThreshold(), sp.Blocks(1, 8)), ((0.7,), (0.0,), (2.5,)), partial(blocks, cols=8, p=1)),
    *(
        Law(Grouped(sp.PowerThreshold(p), sp.Blocks(1, 8)), ((0.7,), (0.0,), (2.5,)), partial(blocks, cols=8, p=p))
        for p in (2, 4, math.inf)
    ),
    *(Law(NM(2, 4, p), ((0.7,), (0.0,), (2.5,)), partial(nm, n=2, m=4, p=p)) for p in (1, 2, 4, math.inf)),
    Law(NM(4, 8, 1), ((0.7,), (0.0,), (2.5,)), partial(nm, n=4, m=8, p=1)),
]


def claiming(*claims: str, positive: bool = False):
    """Each prox that makes these claims, at each of its levels."""
    cases = [
        pytest.param(law, levels, id=f"{law.prox}-" + "-".join(map(str, levels)))
        for law in PROXES
        if all(getattr(law.prox, claim) for claim in claims)
        for levels in law.levels
        if levels[0] > 0 or not positive
    ]
    return pytest.mark.parametrize(("law", "levels"), cases)


each_prox = pytest.mark.parametrize("law", PROXES, ids=lambda law: str(law.prox))
each_prox_and_level = claiming()
each_separable_prox = claiming("separable")
each_convex_prox = claiming("convex")
each_prox_that_thresholds = claiming("thresholds")
each_bounded_prox = claiming("bounded")


def thetas(dtype: torch.dtype = torch.float64) -> Tensor:
    """Both signs, zeros, the kinks themselves and one step to either side of them."""
    random = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    marks = torch.tensor([0.0, -0.0, 0.7, -0.7, 2.5, -2.5, 1e-300, 5e-324], dtype=torch.float64)
    return torch.cat([random, marks, torch.nextafter(marks, marks + 1), torch.nextafter(marks, marks - 1)]).to(dtype)


def matrix() -> Tensor:
    """The same as 28 rows of 8, for maps that look at rows."""
    return thetas().view(28, 8)


def smooth(law: Law, levels: tuple[float, ...]) -> Tensor:
    """Rows of ``matrix`` on which the map is smooth: away from its kinks, and from θ = 0, at which d = 0 puts one.

    Farther away where the derivative is not bounded: finite differences must not feel how it grows.
    """
    margin = 1e-3 if law.prox.bounded else 0.1
    alone = law.prox.separable or law.nm
    sizes = matrix().abs() if alone else matrix().norm(dim=1, keepdim=True) / 8**0.5
    kinks = [0.0, *(multiple * levels[0] for multiple in law.kinks)]
    away = [((sizes - kink).abs() > margin).all(1) for kink in kinks]
    if law.nm:  # which weights are the n largest is not about to change
        ranked = matrix().abs().unflatten(1, (-1, law.prox.m)).sort(2).values.diff(dim=2)
        away.append((ranked > margin).flatten(1).all(1))
    return matrix()[torch.stack(away).all(0)]


def held(law: Law, levels: tuple[float, ...], theta: Tensor) -> tuple[float | Tensor, ...]:
    """The levels for which w is certified: of n:m, the thresholds of the groups as they are."""
    return (law.prox.level(theta, *levels),) if law.nm else levels


def objective(law: Law, levels: tuple[float | Tensor, ...], theta: Tensor, v: Tensor) -> Tensor:
    return ((v - theta) ** 2).sum() / 2 + law.prox.regularizer(v, *levels).sum()


# -- every prox ----------------------------------------------------------------------------------------------


@each_prox_and_level
def test_no_other_point_does_better_on_the_prox_objective(law, levels):
    """Neither a step from w, all over or in one coordinate, nor zeros, nor θ itself, nor w of other levels."""
    theta = matrix()[:12]
    w = law.prox(theta, *levels)
    fixed = held(law, levels, theta)
    best = objective(law, fixed, theta, w)
    assert best.isfinite()
    generator = torch.Generator().manual_seed(2)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(20):
            move = size * torch.randn(w.shape, generator=generator, dtype=torch.float64)
            alone = torch.zeros_like(w)
            place = tuple(int(torch.randint(n, (), generator=generator)) for n in w.shape)
            alone[place] = move[place]
            for v in (w + move, w * (1 + move), w + alone):
                assert objective(law, fixed, theta, v) >= best - 1e-12
    for i in range(len(w)):
        for row in (torch.zeros(8), theta[i], 0.5 * theta[i], shrink(theta[i], levels[0])):
            v = w.clone()
            v[i] = row
            assert objective(law, fixed, theta, v) >= best - 1e-12


@each_prox_and_level
def test_the_map_is_the_reference(law, levels):
    for theta in (thetas(), matrix()):
        torch.testing.assert_close(law.prox(theta, *levels), law.reference(theta, *levels), rtol=1e-14, atol=1e-14)


@each_prox_and_level
def test_the_inverse_of_zero_is_zero(law, levels):
    assert torch.equal(law.prox.inverse(torch.zeros(3, 2), *levels), torch.zeros(3, 2))


@each_prox
def test_without_a_threshold_it_is_the_identity_and_zero_stays_zero(law):
    """The trap of (1 − d/|θ|)·θ: NaN at θ = 0, d = 0."""
    rest = law.levels[0][1:]
    assert torch.equal(law.prox(matrix(), 0.0, *rest), matrix())
    assert torch.equal(law.prox(torch.zeros(2, 2), 0.0, *rest), torch.zeros(2, 2))
    assert not law.prox.regularizer(torch.zeros(2, 2), *(0.0 for _ in law.levels[0])).any()


@claiming(positive=True)
def test_vjp_equals_finite_differences_away_from_the_kinks(law, levels):
    theta = smooth(law, levels)
    grad = torch.linspace(-1, 2, theta.numel(), dtype=torch.float64).view(theta.shape)
    step = 1e-6
    at = [torch.tensor(level, dtype=torch.float64) for level in levels]
    dtheta, *dlevels = law.prox.vjp(theta, grad, *at)
    move = torch.randn(theta.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    slope = (law.prox(theta + step * move, *levels) - law.prox(theta - step * move, *levels)) / (2 * step)
    torch.testing.assert_close((dtheta * move).sum(1), (grad * slope).sum(1), rtol=0, atol=1e-7)
    assert len(dlevels) == len(levels)
    for i, dlevel in enumerate(dlevels):
        up, down = ([x + sign * step * (j == i) for j, x in enumerate(levels)] for sign in (1, -1))
        slope = (law.prox(theta, *up) - law.prox(theta, *down)) / (2 * step)
        torch.testing.assert_close(dlevel, (grad * slope).sum(), rtol=0, atol=1e-6)


@claiming(positive=True)
def test_gradcheck_passes_away_from_the_kinks(law, levels):
    inputs = [smooth(law, levels)[:3], *(torch.tensor(x, dtype=torch.float64) for x in levels)]
    assert torch.autograd.gradcheck(law.prox, [x.requires_grad_() for x in inputs])


@each_prox_and_level
@pytest.mark.parametrize("overwrite", [True, False])
def test_pull_back_equals_autograd_through_the_reference(law, levels, overwrite):
    theta = [smooth(law, levels)[:4], smooth(law, levels)[4:5], torch.empty(0, 8).double()]
    before = [torch.linspace(-1, 3, x.numel(), dtype=torch.float64).reshape(x.shape) for x in theta]
    grads = [grad.clone() for grad in before]
    columns = [torch.full((3,), level, dtype=torch.float64) for level in levels]

    inputs = [x.clone().requires_grad_() for x in (*theta, *columns)]
    ws = [law.reference(x, *(column[i] for column in inputs[3:])) for i, x in enumerate(inputs[:3])]
    expected = torch.autograd.grad(ws, inputs, before)

    sums = law.prox.pull_back(Pairs(grads, theta), *columns, overwrite=overwrite)
    for got, wanted in zip(grads, expected[:3] if overwrite else before, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-14)
    for got, wanted in zip(sums, expected[3:], strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


@each_prox
def test_pull_back_with_numbers_for_levels_turns_the_gradient_and_sums_nothing(law):
    levels = law.levels[0]
    theta = smooth(law, levels)
    grad = torch.ones_like(theta)
    assert law.prox.pull_back(Pairs([grad], [theta]), *([x] for x in levels), overwrite=True) == []
    leaf = theta.clone().requires_grad_()
    law.reference(leaf, *levels).sum().backward()
    torch.testing.assert_close(grad, leaf.grad, rtol=0, atol=1e-14)


def many(dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(4, 5), (2, 3, 4, 4), (0,), (3, 0, 2), (7,), (1,)]
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]
    tensors[1] = tensors[1].contiguous(memory_format=torch.channels_last)
    return [*tensors, thetas(dtype)]


@each_prox_and_level
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=lambda x: str(x)[6:])
@pytest.mark.parametrize("known", [True, False], ids=["host", "device"])
def test_write_equals_the_map_on_every_tensor(law, levels, dtype, known):
    theta = many(dtype)
    # a different level for each parameter: a mix-up between them shows
    table = [[level * (1 - i / 20) for i in range(len(theta))] for level in levels]
    columns = table if known else [torch.tensor(x, dtype=torch.promote_types(dtype, torch.float32)) for x in table]
    ws = [torch.full_like(x, torch.nan) for x in theta]
    before = [x.clone() for x in theta]
    law.prox.write(Pairs(ws, theta), *columns)
    tolerance = {torch.float64: 1e-15, torch.float32: 1e-6, torch.bfloat16: 2e-2}[dtype]
    for i, (w, x) in enumerate(zip(ws, theta, strict=True)):
        assert torch.equal(w, law.prox(x, *(column[i] for column in columns)).to(dtype))
        assert w.dtype is dtype
        assert w.stride() == x.stride()
        assert torch.equal(x, before[i])
        (size,) = law.prox.sizes([x])
        rounded = torch.tensor([column[i] for column in table], dtype=size.dtype)  # as what they are compared with
        exact = law.reference(x.double(), *rounded.double())
        summed = 1 if law.prox.separable else 8  # the reference adds in another order
        torch.testing.assert_close(w.double(), exact, rtol=summed * tolerance, atol=summed * tolerance)


@each_prox
def test_a_prox_is_a_frozen_equal_printable_picklable_value(law):
    prox = law.prox
    names = {kind.__name__: kind for kind in (type(prox), sp.SoftThreshold, sp.PowerThreshold, sp.Blocks)}
    printed = eval(repr(prox), {**names, "inf": math.inf})
    for other in (pickle.loads(pickle.dumps(prox)), copy.deepcopy(prox), printed):
        assert other == prox
        assert hash(other) == hash(prox)
    assert all(prox != other.prox for other in PROXES if other is not law)
    assert is_dataclass(prox)
    with pytest.raises((FrozenInstanceError, TypeError)):
        prox.scale = 2.0


# -- separable: it acts on each weight alone ---------------------------------------------------------------------


@each_separable_prox
def test_it_acts_on_each_weight_alone(law, levels):
    theta = thetas()
    w = law.prox(theta, *levels)
    assert torch.equal(law.prox(matrix(), *levels).flatten(), w)
    assert torch.equal(torch.stack([law.prox(x, *levels) for x in theta]), w)


@each_separable_prox
def test_no_grid_point_does_better_on_the_prox_objective(law, levels):
    theta = thetas()[:60, None]
    grid = torch.linspace(-8, 8, 40_001, dtype=torch.float64)[None, :]
    w = law.prox(theta, *levels)
    reached, others = ((v - theta) ** 2 / 2 + law.prox.regularizer(v, *levels) for v in (w, grid))
    assert (reached <= others.min(1, keepdim=True).values + 1e-12).all()
    assert reached.isfinite().all()


@each_separable_prox
def test_the_objective_rises_on_either_side_of_the_prox(law, levels):
    """A sharper certificate than a grid: the smallest move that rounding lets us see is no improvement."""
    theta = thetas()
    w = law.prox(theta, *levels)
    here = (w - theta) ** 2 / 2 + law.prox.regularizer(w, *levels)
    for move in (1e-6, -1e-6):
        there = (w + move - theta) ** 2 / 2 + law.prox.regularizer(w + move, *levels)
        assert (there >= here - 1e-15 * (1 + here)).all()


@each_separable_prox
def test_it_is_odd_shrinks_toward_zero_and_keeps_the_sign(law, levels):
    theta = thetas()
    w = law.prox(theta, *levels)
    assert torch.equal(law.prox(-theta, *levels), -w)
    assert (w.abs() <= theta.abs()).all()
    assert (w * theta >= 0).all()


@each_separable_prox
def test_infinities_and_nan_stay_what_they_are_and_touch_nothing_else(law, levels):
    theta = torch.tensor([torch.inf, -torch.inf, torch.nan, 3.0, 0.0])
    w = torch.empty(5)
    law.prox.write(Pairs([w], [theta]), *([level] for level in levels))
    for result in (w, law.prox(theta, *levels)):
        assert result[:2].tolist() == [torch.inf, -torch.inf]
        assert result[2].isnan()
        assert torch.equal(result[3:], law.prox(theta[3:], *levels))


# -- convex: its penalty is convex -------------------------------------------------------------------------------


@each_convex_prox
def test_it_is_nonexpansive_and_increasing_as_a_whole(law, levels):
    generator = torch.Generator().manual_seed(4)
    for size in (1e-3, 0.1, 1.0, 10.0):
        for _ in range(25):
            theta = 2 * torch.randn(6, 8, generator=generator, dtype=torch.float64)
            move = size * torch.randn(6, 8, generator=generator, dtype=torch.float64)
            moved = law.prox(theta + move, *levels) - law.prox(theta, *levels)
            assert moved.norm() <= move.norm() + 1e-14
            assert (moved * move).sum() >= -1e-14


@claiming("convex", "separable")
def test_it_is_nonexpansive_and_increasing_weight_by_weight(law, levels):
    theta = thetas().sort().values
    gaps = law.prox(theta, *levels).diff()
    assert (gaps >= -1e-15).all()
    assert (gaps <= theta.diff() + 1e-15).all()


# -- thresholds: w = 0 exactly where |θ| <= d --------------------------------------------------------------------


@each_prox_that_thresholds
def test_it_is_zero_exactly_up_to_the_threshold(law, levels):
    """While training, and in what training leaves behind."""
    for theta in (thetas(), matrix()):
        w = law.prox(theta, *levels)
        (size,) = law.prox.sizes([theta])
        (final,) = law.prox.exact(Pairs([w], [theta]), *([level] for level in levels))
        dead = size.abs() <= levels[0]
        assert not w[dead].any()
        tiny = 0.0 if law.prox.separable else 1e-300  # times a factor it may be rounded to zero
        assert w[~dead & (theta.abs() > tiny)].all()
        assert torch.equal(final == 0, w == 0)


@each_prox_that_thresholds
def test_the_inverse_of_a_weight_is_its_hidden_weight(law, levels):
    """Above the threshold the map is one to one, and its inverse is nowhere steeper than the identity."""
    theta = thetas()[thetas().abs() > levels[0]]
    torch.testing.assert_close(law.prox.inverse(law.prox(theta, *levels), *levels), theta, rtol=1e-14, atol=0)


# -- bounded: ∂w/∂θ is bounded -----------------------------------------------------------------------------------


@each_bounded_prox
def test_the_inverse_is_mapped_back_to_the_weight(law, levels):
    """Where it is not bounded, the smallest weights share a θ, which rounds to d."""
    w = law.prox(matrix(), *levels)
    torch.testing.assert_close(law.prox(law.prox.inverse(w, *levels), *levels), w, rtol=1e-12, atol=1e-15)


@claiming("separable", "bounded", positive=True)
def test_the_derivative_at_the_jump_is_the_one_from_inside(law, levels):
    """At |θ| = d the subgradient is taken as if θ were pruned, in every implementation."""
    at, inside = (torch.tensor([x, -x], dtype=torch.float64) for x in (levels[0], levels[0] / 2))
    columns = [torch.tensor([x], dtype=torch.float64) for x in levels]
    grads = []
    for theta in (at, inside):
        grads.append(torch.ones(2, dtype=torch.float64))
        law.prox.pull_back(Pairs(grads[-1:], [theta]), *columns, overwrite=True)
    assert torch.equal(*grads)
    by_torch, within = (law.prox.vjp(x, torch.ones(2, dtype=torch.float64), *levels)[0] for x in (at, inside))
    assert torch.equal(by_torch, within)
    torch.testing.assert_close(grads[0], by_torch, rtol=0, atol=1e-15)
