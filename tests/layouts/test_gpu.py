"""On a GPU: the kernels give what the dense layer gives, in eager mode, in a CUDA graph and compiled."""

import warnings

import pytest
import torch
from torch import nn

from softprune.kernels.pairs import Pairs
from softprune.layouts import to_block_sparse, to_semi_structured
from softprune.layouts.block_sparse import blocks
from softprune.prox.nm import NM

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(
        "ignore:.*(beta|prototype|TensorFloat32|semi-structured|online softmax|Sparse invariant)"
    ),  # torch's own
]


def network(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 256, bias=False)).to("cuda", dtype)


def two_of_four(dtype: torch.dtype) -> nn.Sequential:
    model = network(dtype)
    for layer in (model[0], model[2]):
        layer.weight.data = NM(2, 4)(layer.weight.data, 100.0)
    return model


def in_blocks(dtype: torch.dtype, size: int) -> nn.Sequential:
    model = network(dtype)
    for layer in (model[0], model[2]):
        grid = blocks(layer.weight.data, size)
        number = torch.arange(grid.shape[0] * grid.shape[1], device="cuda").view(grid.shape[:2])
        grid *= (number % 10 == 3)[:, :, None, None]
    return model


def close(y: torch.Tensor, expected: torch.Tensor) -> bool:
    tolerance = 1e-2 if y.dtype.itemsize == 2 else 1e-4
    return float((y - expected).norm() / expected.norm()) < tolerance


@pytest.mark.parametrize("tokens", [1, 16, 63, 64, 100, 1024, 1500])
@pytest.mark.parametrize("size", [16, 32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@torch.no_grad()
def test_block_sparse_outputs_equal_dense_ones(dtype, size, tokens):
    model = in_blocks(dtype, size)
    result = to_block_sparse(model, size)
    assert result.converted == ("0", "2")
    x = torch.randn(tokens, 512, device="cuda", dtype=dtype)
    assert close(result.model(x), model(x))
    assert close(result.model(x.view(1, tokens, 512)), model(x)[None])


@pytest.mark.parametrize("tokens", [1, 16, 100, 1024])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_semi_structured_outputs_equal_dense_ones(dtype, tokens):
    model = two_of_four(dtype)
    result = to_semi_structured(model)
    assert result.converted == ("0", "2")
    assert not isinstance(model[0].weight, torch.sparse.SparseSemiStructuredTensor)
    x = torch.randn(tokens, 512, device="cuda", dtype=dtype)
    assert close(result.model(x), model(x))
    assert close(result.model(x.view(1, tokens, 512)), model(x)[None])


@pytest.mark.parametrize("convert", [to_semi_structured, to_block_sparse])
@torch.no_grad()
def test_a_cuda_graph_takes_them(convert):
    model = two_of_four(torch.bfloat16) if convert is to_semi_structured else in_blocks(torch.bfloat16, 64)
    result = convert(model)
    x = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16)
    result.model(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        y = result.model(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert close(y, model(x))


@pytest.mark.slow
@pytest.mark.parametrize("convert", [to_semi_structured, to_block_sparse])
@torch.no_grad()
def test_they_compile(convert):
    model = two_of_four(torch.bfloat16) if convert is to_semi_structured else in_blocks(torch.bfloat16, 64)
    x = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(convert(model).model, mode="reduce-overhead")
        for _ in range(3):
            y = compiled(x).clone()
    assert close(y, model(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_nm_writes_on_a_gpu_what_it_writes_on_a_cpu(dtype):
    prox = NM(2, 4, p=1)
    thetas = [torch.randn(64, 30).to(dtype), torch.randn(8, 16, 3, 3).to(dtype)]
    there = [theta.cuda() for theta in thetas]
    ws = [torch.empty_like(theta) for theta in there]
    prox.write(Pairs(ws, there), [0.3, 100.0])
    for w, theta, d in zip(ws, thetas, (0.3, 100.0), strict=True):
        assert torch.equal(w.cpu(), prox(theta, d))
    for size, expected in zip(prox.sizes(there), prox.sizes(thetas), strict=True):
        assert torch.equal(size.cpu(), expected)
