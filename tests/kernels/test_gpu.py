"""Kernels on a CUDA device: the numbers of the CPU, in one launch. Run with `pytest -m gpu`."""

import math

import pytest
import torch

import softprune as sp
from magnitudes import DISTRIBUTIONS, hidden
from oracles import shrink
from proxes import power
from softprune.kernels import shrink as multi_tensor
from softprune.kernels.pairs import Pairs
from softprune.thresholds.quantile import Cell, quantiles, survivors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),
]


def reference(theta: torch.Tensor, d: float, k: float = 0.0) -> torch.Tensor:
    exact = theta.double()
    return ((1 - k) * shrink(exact, d) + k * exact).to(theta.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_one_launch_over_many_tensors(dtype):
    sizes = [(1,), (7,), (64, 3, 7, 7), (100_003,), (0,), (256, 64, 3, 3)]
    thetas = [torch.randn(size, device="cuda", dtype=dtype) for size in sizes]
    thetas[-1] = thetas[-1].to(memory_format=torch.channels_last)
    ws = [torch.full_like(theta, float("nan")) for theta in thetas]
    ds = [torch.tensor(0.1 * (i + 1), dtype=dtype).item() for i in range(len(sizes))]
    multi_tensor.soft_threshold(Pairs(ws, thetas), ds)
    for w, theta, d in zip(ws, thetas, ds, strict=True):
        tolerance = {torch.bfloat16: 2**-8, torch.float16: 2**-10}.get(dtype, 1e-7 if dtype is torch.float32 else 1e-15)
        torch.testing.assert_close(w, reference(theta, d), rtol=tolerance, atol=tolerance)
        assert torch.equal(w == 0, theta.abs() <= d)
    vector = torch.tensor(ds, device="cuda")
    again = [torch.empty_like(w) for w in ws]
    multi_tensor.soft_threshold(Pairs(again, thetas), vector)
    for a, w in zip(again, ws, strict=True):
        torch.testing.assert_close(a, w, rtol=2**-7, atol=1e-6)
    blends = torch.linspace(0, 1, len(ds), device="cuda")
    multi_tensor.soft_threshold(Pairs(again, thetas), vector, blends)
    for w, theta, d, k in zip(again, thetas, ds, blends.tolist(), strict=True):
        torch.testing.assert_close(w, reference(theta, d, k), rtol=4 * tolerance, atol=4 * max(tolerance, 1e-7))


@pytest.mark.parametrize("blend", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_gpu_rounds_as_the_cpu_does(dtype, blend):
    """Else θ would be taken for set from outside, for some weights, when a model moves from one to the other."""
    theta = torch.randn(10_000, dtype=dtype)
    d = theta.abs().double().sort().values[::100].tolist()
    for i, level in enumerate(x * (1 + e) for x in d for e in (-1e-4, 0.0, 1e-4)):
        columns = [[level], [i / len(d) / 3]][: 1 + blend]
        w, moved = torch.empty_like(theta), torch.empty_like(theta, device="cuda")
        multi_tensor.soft_threshold(Pairs([w], [theta]), *columns)
        multi_tensor.soft_threshold(Pairs([moved], [theta.cuda()]), *columns)
        assert torch.equal(moved.cpu(), w)


def test_unaligned_strided_and_special_values():
    flat = torch.randn(1000, device="cuda")
    theta, w = flat[1:998], torch.empty(1001, device="cuda")[3:1000]
    multi_tensor.soft_threshold(Pairs([w], [theta]), [0.5])
    torch.testing.assert_close(w, reference(theta, 0.5))
    theta = torch.randn(8, 16, device="cuda")
    w = torch.zeros(8, 32, device="cuda")[:, ::2]  # not dense: the plain path
    multi_tensor.soft_threshold(Pairs([w], [theta]), [0.5])
    torch.testing.assert_close(w, reference(theta, 0.5))
    theta = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0], device="cuda")
    w = torch.empty_like(theta)
    multi_tensor.soft_threshold(Pairs([w], [theta]), [0.0])
    torch.testing.assert_close(w, theta, equal_nan=True)


def few_steps(found: torch.Tensor, theta: torch.Tensor, d: float, p: float) -> None:
    """Zero exactly where |θ| <= d, and elsewhere a few roundings from the exact weight."""
    exact = power(theta.double(), torch.tensor(d, dtype=theta.dtype, device="cuda").double(), p)
    assert torch.equal(found == 0, exact == 0)
    assert (found.abs() <= theta.abs()).all()
    steps = 1 if theta.element_size() == 2 else 16
    torch.testing.assert_close(found.double(), exact, rtol=steps * torch.finfo(theta.dtype).eps, atol=0)


@pytest.mark.parametrize("p", [1.5, 2, 3, 4, math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_power_threshold_of_many_tensors_in_one_launch(dtype, p):
    sizes = [(1,), (7,), (64, 3, 7, 7), (100_003,), (0,), (256, 64, 3, 3)]
    thetas = [torch.randn(size, device="cuda", dtype=dtype) for size in sizes]
    thetas[-1] = thetas[-1].to(memory_format=torch.channels_last)
    ds = [0.0, 0.7, 0.1, 0.3, 0.5, thetas[-1].abs().flatten()[100].item()]
    thetas[-2] = torch.empty(0, device="cuda", dtype=dtype)
    ws = [torch.full_like(theta, torch.nan) for theta in thetas]
    for column in (ds, torch.tensor(ds, device="cuda", dtype=torch.float64)):
        sp.PowerThreshold(p).write(Pairs(ws, thetas), column)
        for w, theta, d in zip(ws, thetas, ds, strict=True):
            few_steps(w, theta, d, p)


@pytest.mark.parametrize("p", [1.01, 1.5, 2, 3, 4, 100, math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_power_threshold_has_the_zeros_of_the_cpu(dtype, p):
    """Next to the threshold, among the smallest numbers that there are, and far away."""
    info = torch.finfo(dtype)
    tiny = info.tiny * info.eps  # the smallest there is
    near = 1 + torch.arange(-64, 65, dtype=torch.float64) * info.eps / 2
    prox = sp.PowerThreshold(p)
    for d in (0.0, tiny, 5 * tiny, info.tiny, 3 * info.tiny, 0.7, 1.0, info.max / 4):
        level = torch.tensor(d, dtype=dtype).double()
        theta = torch.cat(
            [
                level * near,
                level * torch.tensor([2.0, 3.0]),
                torch.arange(10, dtype=torch.float64) * tiny,
                torch.tensor([1e4]),
            ]
        )
        theta = torch.cat([theta, -theta, torch.tensor([math.inf, -math.inf, math.nan])]).to(dtype)
        w, moved = torch.empty_like(theta), torch.empty_like(theta, device="cuda")
        prox.write(Pairs([w], [theta]), [d])
        prox.write(Pairs([moved], [theta.cuda()]), [d])
        assert torch.equal(moved.cpu() == 0, w == 0)
        assert torch.equal(w == 0, theta.double().abs() <= level)
        close = 2 if info.bits == 16 else 40
        torch.testing.assert_close(moved.cpu(), w, rtol=close * info.eps, atol=tiny, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_power_threshold_at_one_is_the_soft_threshold(dtype):
    theta = torch.randn(10_000, device="cuda", dtype=dtype)
    for d in (0.0, 0.3, 0.7):
        soft, w = torch.empty_like(theta), torch.empty_like(theta)
        sp.SoftThreshold().write(Pairs([soft], [theta]), [d])
        sp.PowerThreshold(1).write(Pairs([w], [theta]), [d])
        assert torch.equal(w, soft)


def test_power_threshold_of_unaligned_and_strided_tensors_and_of_levels_for_each_weight():
    prox = sp.PowerThreshold(3)
    flat = torch.randn(10_000, device="cuda")
    theta, w = flat[1:9998], torch.empty(10_001, device="cuda")[3:10_000]
    prox.write(Pairs([w], [theta]), [0.5])
    few_steps(w, theta, 0.5, 3)
    theta, w = torch.randn(8, 16, device="cuda"), torch.zeros(8, 32, device="cuda")[:, ::2]  # not dense: the plain path
    prox.write(Pairs([w], [theta]), [0.5])
    few_steps(w, theta, 0.5, 3)
    d = torch.rand(8, 16, device="cuda")
    prox.write(Pairs([w], [theta]), [d])
    torch.testing.assert_close(w, power(theta.double(), d.double(), 3).float(), rtol=1e-6, atol=0)
    torch.testing.assert_close(prox.inverse(w, d)[w != 0], theta[w != 0], rtol=1e-6, atol=0)
    torch.testing.assert_close(prox.inverse(w.clamp(-0.5, 0.5), 0.5).abs().max().item(), 0.5 * 2 ** (1 / 3))
    assert prox.regularizer(w, 0.5).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_quantiles_are_those_of_the_cpu(name, dtype):
    """Several cells, caps, a tensor that is left out, one that is empty: all of it in one launch for each pass."""
    values = DISTRIBUTIONS[name].to(dtype)
    parts = [values[:1000], values[1000:1001], values[1001:1001], values[1001:3001].reshape(50, 40), values[3001:]]
    cells = [Cell((0, 1, 2), (1.0, 1.0, 1.0), 0.4), Cell((3,), (2.0,), 0.3)]
    caps = [parts[0].float().abs().median().item(), *[float("inf")] * 4]
    found = {}
    for device in ("cpu", "cuda"):
        weights = hidden(*(part.to(device) for part in parts))
        assert weights.pairs.launchable == (device == "cuda")
        d = quantiles(weights, cells, caps)
        found[device] = d, survivors(weights, [d[0], d[0], d[0], d[1], 0.5])
    assert found["cpu"] == found["cuda"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("blend", [False, True])
def test_subgradient_in_one_launch(dtype, overwrite, blend):
    sizes = [(1,), (100_003,), (0,), (256, 64, 3, 3)]
    thetas = [torch.randn(size, device="cuda", dtype=dtype) for size in sizes]
    grads = [torch.randn(size, device="cuda", dtype=dtype) for size in sizes]
    table = [[0.125, 0.5, 1.0, 2.0], [0.75, 0.5, 0.25, 0.125]][: 1 + blend]
    columns = [torch.tensor(x, device="cuda", dtype=torch.promote_types(dtype, torch.float32)) for x in table]
    exact = [torch.tensor(x, device="cuda", dtype=torch.float64, requires_grad=True) for x in table]
    expected = []
    for i, (theta, grad) in enumerate(zip(thetas, grads, strict=True)):
        leaf = theta.double().requires_grad_()
        prox, levels = (sp.Blend() if blend else sp.SoftThreshold()), [column[i] for column in exact]
        prox(leaf, *levels).backward(grad.double())
        expected.append(leaf.grad.to(dtype) if overwrite else grad.clone())
    sums = multi_tensor.subgradient(Pairs(grads, thetas), *columns, overwrite=overwrite)
    for found, column in zip(sums, exact, strict=True):
        torch.testing.assert_close(found.double(), column.grad, rtol=1e-3, atol=1e-2)
    for grad, e in zip(grads, expected, strict=True):
        if blend and overwrite:  # k·g here, g − (1 − k)·g by torch
            torch.testing.assert_close(grad, e, rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(grad, e)
    numbers = multi_tensor.subgradient(Pairs(grads, thetas), *table, overwrite=False)
    assert numbers == []
