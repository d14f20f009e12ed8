"""The power threshold in every precision, against decimal arithmetic, quadrature and its two ends, soft and hard."""

import math
from decimal import Decimal, localcontext
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import hyp2f1

import softprune as sp
from oracles import Oracle, Run, assert_follows, refused
from softprune.kernels.pairs import Pairs

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
each_power = pytest.mark.parametrize("p", [1.01, 1.5, 2, 3.7, 50, 1e6])
powers = st.floats(1, 40) | st.sampled_from([1.0, 1.5, 2.0, 3.0, 4.0])


@st.composite
def weights_and_a_level(draw, dtype):
    """θ and d as numbers of this type: anything at all, subnormal too, and θ within a few steps of d."""
    width = torch.finfo(dtype).bits if dtype is not torch.bfloat16 else 32
    number = st.floats(width=width, allow_nan=False, allow_infinity=False)
    d = torch.tensor(abs(draw(number)), dtype=dtype)
    thetas = torch.tensor(draw(st.lists(number, min_size=1, max_size=8)), dtype=dtype)
    steps = torch.tensor(draw(st.lists(st.integers(-20, 20), min_size=1, max_size=8)), dtype=torch.float64)
    near = (d.double() * (1 + steps * torch.finfo(dtype).eps)).to(dtype)
    theta = torch.cat([thetas, near, -near])
    return theta[theta.isfinite()], d.clamp(max=torch.finfo(dtype).max)


def exact(theta: float, d: float, p: float) -> float:
    """(|θ|^p − d^p)₊^(1/p), with 120 digits."""
    with localcontext(prec=120):
        a, b, power = Decimal(abs(theta)), Decimal(d), Decimal(p)
        return math.copysign(float((a**power - b**power) ** (1 / power)), theta) if a > b else 0.0


def written(prox: sp.Prox, theta: torch.Tensor, d: torch.Tensor | float) -> torch.Tensor:
    w = torch.full_like(theta, torch.nan)
    prox.write(Pairs([w], [theta]), [float(d)])
    return w


# -- the map -----------------------------------------------------------------------------------------------------


@each_dtype
@given(data=st.data(), p=powers)
@settings(deadline=None)
def test_it_is_exact_but_for_the_last_bits_and_zero_exactly_up_to_d(dtype, data, p):
    theta, d = data.draw(weights_and_a_level(dtype))
    info = torch.finfo(dtype)
    for w in (sp.PowerThreshold(p)(theta, d), written(sp.PowerThreshold(p), theta, d)):
        assert w.dtype is dtype
        assert torch.equal(w == 0, theta.abs() <= d)
        assert (w.abs() <= theta.abs()).all()
        expected = torch.tensor([exact(x, d.item(), p) for x in theta.tolist()], dtype=torch.float64)
        # a step above d the root has a logarithm of −36, whose last bit counts; half precision rounds but once, and
        # the smallest numbers are tiny·eps apart
        bits = 0.51 if info.bits == 16 else 40
        torch.testing.assert_close(w.double(), expected, rtol=bits * info.eps, atol=0.51 * info.tiny * info.eps)


@each_dtype
@given(data=st.data())
@settings(deadline=None)
def test_for_p_one_it_is_the_soft_threshold_bit_for_bit(dtype, data):
    theta, d = data.draw(weights_and_a_level(dtype))
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16}[dtype.itemsize]
    for level in (d, d.item()):
        for mapped in (
            lambda prox, level=level: prox(theta, level),
            lambda prox, level=level: written(prox, theta, level),
        ):
            assert torch.equal(mapped(sp.PowerThreshold(1)).view(bits), mapped(sp.SoftThreshold()).view(bits))
    assert torch.equal(sp.PowerThreshold(1).inverse(theta, d), sp.SoftThreshold().inverse(theta, d))
    assert torch.equal(sp.PowerThreshold(1).regularizer(theta, d), sp.SoftThreshold().regularizer(theta, d))


@each_dtype
@given(data=st.data())
@settings(deadline=None)
def test_for_p_infinite_it_is_the_hard_threshold_and_large_p_tend_to_it(dtype, data):
    theta, d = data.draw(weights_and_a_level(dtype))
    hard = torch.where(theta.abs() > d, theta, 0.0)
    assert torch.equal(sp.PowerThreshold(math.inf)(theta, d), hard)
    assert torch.equal(written(sp.PowerThreshold(math.inf), theta, d), hard)
    torch.testing.assert_close(sp.PowerThreshold(1e12)(theta, d), hard, rtol=1e-9, atol=0)


@each_dtype
@given(data=st.data(), p=powers, q=powers)
@settings(deadline=None)
def test_it_grows_with_theta_and_p_falls_with_d_and_lies_between_soft_and_hard(dtype, data, p, q):
    theta, d = data.draw(weights_and_a_level(dtype))
    p, q = sorted((p, q))
    theta = theta.abs().sort().values
    lower = data.draw(st.floats(0, 1)) * d.double()
    slack = 1 + 80 * torch.finfo(dtype).eps

    def mapped(prox: sp.Prox, level: torch.Tensor = d) -> torch.Tensor:
        return prox(theta, level.to(dtype)).double()

    w = mapped(sp.PowerThreshold(p))
    assert (w[:-1] <= slack * w[1:]).all()
    assert (w <= slack * mapped(sp.PowerThreshold(q))).all()
    assert (w <= slack * mapped(sp.PowerThreshold(p), lower)).all()
    assert (mapped(sp.SoftThreshold()) <= slack * w).all()
    assert (w <= mapped(sp.PowerThreshold(math.inf))).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=lambda dtype: str(dtype)[6:])
@given(data=st.data(), p=powers, scale=st.sampled_from([2.0**-9, 0.5, 4.0, 2.0**12]))
@settings(deadline=None)
def test_scaling_theta_and_d_scales_w(dtype, data, p, scale):
    """By powers of two, which round nothing."""
    numbers = st.floats(-100, 100, width=32).map(lambda x: round(x, 3))
    theta = torch.tensor(data.draw(st.lists(numbers, min_size=1)), dtype=dtype)
    d = torch.tensor(abs(data.draw(numbers)), dtype=dtype)
    prox = sp.PowerThreshold(p)
    assert torch.equal(prox(scale * theta, scale * d), scale * prox(theta, d))


@each_dtype
@pytest.mark.parametrize("p", [1, 1.5, 2, 40, math.inf])
def test_nothing_is_nan_where_theta_or_d_is_zero_or_equal_or_extreme(dtype, p):
    info = torch.finfo(dtype)
    sizes = torch.tensor([0.0, info.tiny * info.eps, info.tiny, 1.0, info.max], dtype=dtype)
    prox = sp.PowerThreshold(p)
    theta = torch.cat([sizes, -sizes])
    for d in sizes[:-1]:
        w = prox(theta, d)
        assert torch.equal(w, written(prox, theta, d))
        assert w.isfinite().all()
        hidden = prox.inverse(w, d)
        assert not hidden.isnan().any()
        assert (hidden.abs() >= w.abs()).all()
        assert prox.inverse(torch.tensor([math.inf, -math.inf], dtype=dtype), d).tolist() == [math.inf, -math.inf]
        assert not prox.regularizer(w[w.abs() <= 1].double(), d.double()).isnan().any()


# -- the way back ------------------------------------------------------------------------------------------------


@each_dtype
@given(data=st.data(), p=powers)
@settings(deadline=None)
def test_theta_is_found_again_from_w(dtype, data, p):
    theta, d = data.draw(weights_and_a_level(dtype))
    theta = theta[(theta.abs() > d) & (theta.abs() < torch.finfo(dtype).max / 2)]
    found = sp.PowerThreshold(p).inverse(sp.PowerThreshold(p)(theta, d), d)
    info = torch.finfo(dtype)
    torch.testing.assert_close(
        found, theta, rtol=16 * info.eps if info.bits > 16 else 2 * info.eps, atol=2 * info.tiny * info.eps
    )


def test_a_weight_much_smaller_than_d_becomes_zero():
    """Its θ is d·(1 + 1e-30 / 3), which rounds to d."""
    prox, w = sp.PowerThreshold(3), torch.tensor([1e-10, -1e-10, 0.1], dtype=torch.float64)
    assert prox.inverse(w, 1.0)[:2].tolist() == [1.0, -1.0]
    torch.testing.assert_close(prox(prox.inverse(w, 1.0), 1.0), torch.tensor([0.0, 0.0, 0.1], dtype=torch.float64))


@pytest.mark.parametrize("p", [1, math.inf])
def test_the_derivative_of_the_soft_and_the_hard_threshold(p):
    theta = torch.tensor([2.0, -2.0, 1.0, 0.5, 0.0], dtype=torch.float64)
    grad = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0], dtype=torch.float64)
    d = torch.tensor([1.0], dtype=torch.float64)
    dtheta, dd = sp.PowerThreshold(p).vjp(theta, grad, d[0])
    (sums,) = sp.PowerThreshold(p).pull_back(Pairs([grad], [theta]), d, overwrite=True)
    assert grad.tolist() == dtheta.tolist() == [1.0, 2.0, 0.0, 0.0, 0.0]
    assert sums.tolist() == [dd.item()] == [-1.0 + 2.0 if p == 1 else 0.0]


def test_the_derivative_is_bounded_for_the_soft_and_the_hard_threshold_alone():
    at = torch.tensor([1 + 1e-12], dtype=torch.float64)
    for p in (1, 1.01, 1.5, 2, 3, 40, math.inf):
        (slope,) = sp.PowerThreshold(p).vjp(at, torch.ones_like(at), 1.0)
        assert sp.PowerThreshold(p).bounded == (slope.item() == 1.0)


def test_the_hard_threshold_with_the_subgradient_is_magnitude_pruning():
    """The network computes with θ where |θ| > d; what is pruned gets no gradient."""
    run = Run.of("momentum", "slats", prox=sp.PowerThreshold(math.inf), gradient=sp.subgradient)
    oracle = Oracle("momentum", "slats")
    oracle.gradient = lambda theta, d: theta * (theta.detach().abs() > d)
    assert run.train() == pytest.approx(oracle.train(), rel=1e-12)
    assert_follows(run, oracle, rtol=1e-12, atol=1e-14)


# -- the certificate ---------------------------------------------------------------------------------------------

SIZES = [1e-12, 1e-3, 0.3, 0.699, 0.7, 0.701, 1.0, 3.0, 50.0, 1e6]


def penalty(w: float, d: float, p: float) -> float:
    return sp.PowerThreshold(p).regularizer(torch.tensor(w, dtype=torch.float64), d).item()


@each_power
@pytest.mark.parametrize("w", SIZES[1:-1])
def test_the_penalty_is_the_area_between_the_inverse_and_the_identity(w, p):
    def height(u: float) -> float:
        small, large = sorted((u, 0.7))
        return (large - u) + large * math.expm1(math.log1p((small / large) ** p) / p)

    marks = sorted({0.0, w, *(x for k in (-20, -5, -1, 0, 1, 5, 20) if (x := 0.7 * math.exp(k / p)) < w)})
    area = math.fsum(quad(height, a, b, epsabs=0, epsrel=1e-13)[0] for a, b in pairwise(marks))
    assert penalty(w, 0.7, p) == pytest.approx(area, rel=1e-12)


@pytest.mark.parametrize("w", SIZES)
def test_the_penalty_in_closed_form(w):
    """p = 2 by elementary functions, others by Gauss's hypergeometric function where that does not cancel."""
    d = 0.7
    hyperbola = w * d * d / (math.hypot(w, d) + w) / 2 + d * d * math.asinh(w / d) / 2
    assert penalty(w, d, 2) == pytest.approx(hyperbola, rel=1e-14)
    for p in (1.1, 1.5, 3, 4.5):
        area = w * d * hyp2f1(-1 / p, 1 / p, 1 + 1 / p, -((w / d) ** p)) - w * w / 2
        if w < 1:
            assert penalty(w, d, p) == pytest.approx(area, rel=1e-12)
    m = min(w, d)
    assert penalty(w, d, math.inf) == pytest.approx(d * m - m * m / 2, rel=1e-14)


@each_power
def test_where_the_loss_is_zero_the_penalty_pulls_by_the_bias(p):
    """θ − w = ρ'(w), which falls from d at w = 0 toward 0: the penalty is concave, and its slope at 0 that of L1."""
    w = torch.logspace(-6, 4, 300, dtype=torch.float64, requires_grad=True)
    prox = sp.PowerThreshold(p)
    (slope,) = torch.autograd.grad(prox.regularizer(w, 0.7).sum(), w)
    bias = (prox.inverse(w, 0.7) - w).detach()
    torch.testing.assert_close(slope, bias, rtol=1e-9, atol=1e-11)
    assert (slope.diff() < 1e-11).all()
    assert slope[0].item() == pytest.approx(0.7, abs=1e-5)


@pytest.mark.parametrize("p", [1.5, 2, 3])
def test_the_bias_fades_as_the_weight_grows(p):
    """θ − w → d^p / (p·θ^(p−1))."""
    for theta in (10.0, 100.0, 1000.0):
        bias = theta - sp.PowerThreshold(p)(torch.tensor(theta, dtype=torch.float64), 0.7).item()
        assert bias == pytest.approx(0.7**p / (p * theta ** (p - 1)), rel=theta**-p, abs=1e-12)


def test_the_picture_of_maps_and_penalties(tmp_path):
    pytest.importorskip("power_picture").main(tmp_path / "power.png")
    assert (tmp_path / "power.png").read_bytes().startswith(b"\x89PNG")


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "got"), [(0.99, "0.99"), (-math.inf, "-inf"), (math.nan, "nan"), ("2", "'2'"), (True, "True")]
)
def test_powers_below_one_are_refused(p, got):
    refused(lambda: sp.PowerThreshold(p), f"`PowerThreshold(p=...)` must be >= 1. Got {got}.")
