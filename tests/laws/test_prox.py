"""The laws of a proximal map. A new prox is one more line in ``PROXES``."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, is_dataclass

import pytest
import torch
from torch import Tensor

import softprune as sp
from softprune.kernels.pairs import Pairs


@dataclass(frozen=True)
class Law:
    """A prox, levels to try it at, and the same map written in another way, for autograd to differentiate."""

    prox: sp.Prox
    levels: tuple[tuple[float, ...], ...]
    reference: Callable[..., Tensor]


def shrink(theta: Tensor, d: float | Tensor) -> Tensor:
    return torch.sign(theta) * torch.relu(theta.abs() - d)


def blend(theta: Tensor, d: float | Tensor, k: float | Tensor) -> Tensor:
    return (1 - k) * shrink(theta, d) + k * theta


PROXES = [
    Law(sp.SoftThreshold(), ((0.7,), (0.0,), (2.5,)), shrink),
    Law(sp.Blend(), ((0.7, 0.3), (0.7, 1.0), (0.7, 1e-9), (0.0, 0.3)), blend),
]

each_prox = pytest.mark.parametrize("law", PROXES, ids=lambda law: type(law.prox).__name__)
each_prox_and_level = pytest.mark.parametrize(("law", "levels"), cases := [
    pytest.param(law, levels, id=type(law.prox).__name__ + "-".join(map(str, levels)))
    for law in PROXES
    for levels in law.levels
])  # fmt: skip
each_prox_and_positive_level = pytest.mark.parametrize(
    ("law", "levels"), [case for case in cases if case.values[1][0] > 0]
)


def thetas(dtype: torch.dtype = torch.float64) -> Tensor:
    """Both signs, zeros, the kinks themselves and one step to either side of them."""
    random = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    marks = torch.tensor([0.0, -0.0, 0.7, -0.7, 2.5, -2.5, 1e-300, 5e-324], dtype=torch.float64)
    return torch.cat([random, marks, torch.nextafter(marks, marks + 1), torch.nextafter(marks, marks - 1)]).to(dtype)


def away_from_kinks(levels: tuple[float, ...], margin: float = 1e-3) -> Tensor:
    """Where the map is smooth: neither |θ| = d nor θ = 0, at which d = 0 puts a kink."""
    theta = thetas()
    return theta[((theta.abs() - levels[0]).abs() > margin) & (theta.abs() > margin)]


# -- the map -------------------------------------------------------------------------------------------------


@each_prox_and_level
def test_no_grid_point_does_better_on_the_prox_objective(law, levels):
    theta = thetas()[:60, None]
    grid = torch.linspace(-8, 8, 40_001, dtype=torch.float64)[None, :]

    def objective(v: Tensor) -> Tensor:
        return (v - theta) ** 2 / 2 + law.prox.regularizer(v, *levels)

    reached = objective(law.prox(theta, *levels))
    assert (reached <= objective(grid).min(1, keepdim=True).values + 1e-12).all()
    assert reached.isfinite().all()


@each_prox_and_level
def test_the_objective_rises_on_either_side_of_the_prox(law, levels):
    """A sharper certificate than a grid: the smallest move that rounding lets us see is no improvement."""
    theta = thetas()
    w = law.prox(theta, *levels)
    here = (w - theta) ** 2 / 2 + law.prox.regularizer(w, *levels)
    for move in (1e-6, -1e-6):
        there = (w + move - theta) ** 2 / 2 + law.prox.regularizer(w + move, *levels)
        assert (there >= here - 1e-15).all()


@each_prox_and_level
def test_it_is_odd(law, levels):
    assert torch.equal(law.prox(-thetas(), *levels), -law.prox(thetas(), *levels))


@each_prox_and_level
def test_it_is_nonexpansive_and_increasing(law, levels):
    theta = thetas().sort().values
    gaps = law.prox(theta, *levels).diff()
    assert (gaps >= -1e-15).all()
    assert (gaps <= theta.diff() + 1e-15).all()


@each_prox_and_level
def test_it_shrinks_toward_zero_and_keeps_the_sign(law, levels):
    theta = thetas()
    w = law.prox(theta, *levels)
    assert (w.abs() <= theta.abs()).all()
    assert (w * theta >= 0).all()


@each_prox_and_level
def test_the_inverse_is_mapped_back_to_the_weight(law, levels):
    w = law.prox(thetas(), *levels)
    torch.testing.assert_close(law.prox(law.prox.inverse(w, *levels), *levels), w, rtol=1e-12, atol=1e-15)
    assert torch.equal(law.prox.inverse(torch.zeros(3), *levels), torch.zeros(3))


@each_prox
def test_without_a_threshold_it_is_the_identity_and_zero_stays_zero(law):
    """The trap of (1 − d/|θ|)·θ: NaN at θ = 0, d = 0."""
    theta = thetas()
    rest = law.levels[0][1:]
    assert torch.equal(law.prox(theta, 0.0, *rest), theta)
    assert torch.equal(law.prox(torch.zeros(2), 0.0, *rest), torch.zeros(2))
    assert torch.equal(law.prox.regularizer(torch.zeros(2), *(0.0 for _ in law.levels[0])), torch.zeros(2))


@each_prox_and_level
def test_infinities_and_nan_stay_what_they_are_and_touch_nothing_else(law, levels):
    theta = torch.tensor([torch.inf, -torch.inf, torch.nan, 3.0, 0.0])
    w = torch.empty(5)
    law.prox.write(Pairs([w], [theta]), *([level] for level in levels))
    for result in (w, law.prox(theta, *levels)):
        assert result[:2].tolist() == [torch.inf, -torch.inf]
        assert result[2].isnan()
        assert torch.equal(result[3:], law.prox(theta[3:], *levels))


@each_prox_and_level
def test_what_training_leaves_behind_is_zero_up_to_the_threshold(law, levels):
    theta = thetas()
    final = law.prox.exact(theta, law.prox(theta, *levels), *levels)
    assert torch.equal(final == 0, theta.abs() <= levels[0])


# -- its derivative ------------------------------------------------------------------------------------------


@each_prox_and_level
def test_the_map_is_the_reference(law, levels):
    torch.testing.assert_close(law.prox(thetas(), *levels), law.reference(thetas(), *levels), rtol=1e-14, atol=1e-14)


@each_prox_and_positive_level
def test_vjp_equals_finite_differences_away_from_the_kinks(law, levels):
    theta = away_from_kinks(levels)
    grad = torch.linspace(-1, 2, len(theta), dtype=torch.float64)
    step = 1e-6
    at = [torch.tensor(level, dtype=torch.float64) for level in levels]
    dtheta, *dlevels = law.prox.vjp(theta, grad, *at)
    slope = (law.prox(theta + step, *levels) - law.prox(theta - step, *levels)) / (2 * step)
    torch.testing.assert_close(dtheta, grad * slope, rtol=0, atol=1e-8)
    assert len(dlevels) == len(levels)
    for i, dlevel in enumerate(dlevels):
        up, down = ([x + sign * step * (j == i) for j, x in enumerate(levels)] for sign in (1, -1))
        slope = (law.prox(theta, *up) - law.prox(theta, *down)) / (2 * step)
        torch.testing.assert_close(dlevel, (grad * slope).sum(), rtol=0, atol=1e-6)


@each_prox_and_positive_level
def test_gradcheck_passes_away_from_the_kinks(law, levels):
    inputs = [away_from_kinks(levels)[:20], *(torch.tensor(x, dtype=torch.float64) for x in levels)]
    assert torch.autograd.gradcheck(law.prox, [x.requires_grad_() for x in inputs])


@each_prox_and_level
@pytest.mark.parametrize("overwrite", [True, False])
def test_pull_back_equals_autograd_through_the_reference(law, levels, overwrite):
    theta = [away_from_kinks(levels)[:30].reshape(5, 6), away_from_kinks(levels)[30:40], torch.empty(0).double()]
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
    theta = away_from_kinks(levels)
    grad = torch.ones_like(theta)
    assert law.prox.pull_back(Pairs([grad], [theta]), *([x] for x in levels), overwrite=True) == []
    leaf = theta.clone().requires_grad_()
    law.reference(leaf, *levels).sum().backward()
    torch.testing.assert_close(grad, leaf.grad, rtol=0, atol=1e-14)


@each_prox
def test_the_derivative_at_the_jump_is_the_one_from_inside(law):
    """At |θ| = d the subgradient is taken as if θ were pruned, in every implementation."""
    levels = law.levels[0]
    at = torch.tensor([levels[0], -levels[0]], dtype=torch.float64)
    inside = torch.tensor([levels[0] / 2, -levels[0] / 2], dtype=torch.float64)
    columns = [torch.tensor([x], dtype=torch.float64) for x in levels]
    for theta in (at, inside):
        grad = torch.ones(2, dtype=torch.float64)
        law.prox.pull_back(Pairs([grad], [theta]), *columns, overwrite=True)
        if theta is at:
            jump = grad
    assert torch.equal(jump, grad)
    by_torch, within = (law.prox.vjp(x, torch.ones(2, dtype=torch.float64), *levels)[0] for x in (at, inside))
    assert torch.equal(by_torch, within)
    torch.testing.assert_close(jump, by_torch, rtol=0, atol=1e-15)


# -- many tensors at once ------------------------------------------------------------------------------------


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
    for i, (w, x) in enumerate(zip(ws, theta, strict=True)):
        assert torch.equal(w, law.prox(x, *(column[i] for column in columns)))
        assert w.dtype is dtype
        assert w.stride() == x.stride()
        assert torch.equal(x, before[i])
    tolerance = {torch.float64: 1e-15, torch.float32: 1e-6, torch.bfloat16: 2e-2}[dtype]
    for i, (w, x) in enumerate(zip(ws, theta, strict=True)):
        exact = law.reference(x.double(), *(column[i] for column in table))
        torch.testing.assert_close(w.double(), exact, rtol=tolerance, atol=tolerance)


# -- the value -----------------------------------------------------------------------------------------------


@each_prox
def test_a_prox_is_a_frozen_equal_printable_picklable_value(law):
    prox = law.prox
    for other in (pickle.loads(pickle.dumps(prox)), copy.deepcopy(prox), eval(repr(prox), vars(sp).copy())):
        assert other == prox
        assert hash(other) == hash(prox)
    assert all(prox != other.prox for other in PROXES if other is not law)
    assert is_dataclass(prox)
    with pytest.raises((FrozenInstanceError, TypeError)):
        prox.scale = 2.0
