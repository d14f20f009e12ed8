"""Kernels on a CUDA device: the numbers of the CPU, in one launch. Run with `pytest -m gpu`."""

import pytest
import torch

import softprune as sp
from magnitudes import DISTRIBUTIONS, hidden
from oracles import shrink
from softprune.kernels import shrink as multi_tensor
from softprune.kernels.pairs import Pairs
from softprune.thresholds.quantile import Cell, quantiles, survivors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
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
