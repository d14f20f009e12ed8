"""A Linear layer whose weight has blocks of zeros: only the others are stored, and on a GPU only they are multiplied.

The product is one operation of its own, ``softprune::block_sparse_linear``, which ``torch.compile`` and CUDA graphs
take as it is. On a GPU it is torch's Triton kernel for block-sparse weights, launched as measured on an H200
(``benchmarks/patterns_gpu.py``); elsewhere, and in double precision, the weight is made dense and multiplied.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from softprune.errors import ArgumentError, require

SIZES = (16, 32, 64, 128)


class BlockSparseLinear(nn.Module):
    """y = x·Wᵀ + b with the blocks of W that are not zero, row by row. For inference: it gives no gradients.

    Args:
        in_features: columns of W.
        out_features: rows of W.
        size: rows and columns of a block: 16, 32, 64 or 128.
        number: how many blocks are not zero.
        bias: whether there is a b.

    >>> linear = nn.Linear(32, 32)
    >>> _ = linear.weight.data[:16].zero_()
    >>> layer = BlockSparseLinear.of(linear, 16)
    >>> layer
    BlockSparseLinear(in_features=32, out_features=32, size=16, 2 of 4 blocks, bias=True)
    >>> x = torch.randn(3, 32)
    >>> torch.allclose(layer(x), linear(x), atol=1e-6)
    True
    """

    crow_indices: Tensor
    col_indices: Tensor

    def __init__(self, in_features: int, out_features: int, size: int, number: int, bias: bool = True) -> None:
        super().__init__()
        _require(size)
        if in_features % size or out_features % size:
            raise ArgumentError(f"Blocks of {size} x {size} must fill a weight of {out_features} x {in_features}.")
        self.in_features, self.out_features, self.size = in_features, out_features, size
        self.register_buffer("crow_indices", torch.zeros(out_features // size + 1, dtype=torch.int64))
        self.register_buffer("col_indices", torch.zeros(number, dtype=torch.int64))
        self.values = nn.Parameter(torch.zeros(number, size, size), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(out_features), requires_grad=False) if bias else None

    @classmethod
    @torch.no_grad()
    def of(cls, dense: nn.Linear, size: int) -> Self:
        """The same layer, with the blocks of its weight that are not zero."""
        grid = blocks(dense.weight, size)
        kept = (grid != 0).any(3).any(2)
        rows, columns = kept.nonzero(as_tuple=True)
        layer = cls(dense.in_features, dense.out_features, size, len(rows), dense.bias is not None)
        layer.to(dense.weight)
        layer.crow_indices[1:] = kept.sum(1).cumsum(0)
        layer.col_indices.copy_(columns)
        layer.values.copy_(grid[rows, columns])
        if layer.bias is not None:
            layer.bias.copy_(dense.bias)
        return layer.train(dense.training)

    @property
    def weight(self) -> Tensor:
        """W, dense, made anew."""
        shape = self.out_features, self.in_features
        return _dense(self.crow_indices, self.col_indices, self.values, shape)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _product(x, self.crow_indices, self.col_indices, self.values, self.out_features)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        whole = self.in_features * self.out_features // self.size**2
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, size={self.size}, "
            f"{len(self.values)} of {whole} blocks, bias={self.bias is not None}"
        )


def blocks(weight: Tensor, size: int) -> Tensor:
    """A weight as (rows of blocks, columns of blocks, size, size)."""
    _require(size)
    outputs, inputs = weight.shape
    return weight.view(outputs // size, size, inputs // size, size).transpose(1, 2)


def _require(size: int) -> None:
    require("BlockSparseLinear", "size", size, f"one of {', '.join(map(str, SIZES))}", lambda x: x in SIZES)


def _dense(crow_indices: Tensor, col_indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    size = values.shape[1]
    grid = values.new_zeros(shape[0] // size, shape[1] // size, size, size)
    rows = torch.arange(len(grid), device=values.device).repeat_interleave(crow_indices.diff())
    grid[rows, col_indices] = values
    return grid.transpose(1, 2).reshape(shape)


class _Launch(NamedTuple):
    """Of torch's kernel: tokens of a tile, stages of its pipeline, warps."""

    width: int
    stages: int
    warps: int


def _launch(tokens: int, x: Tensor, size: int) -> _Launch:
    """The fastest of a few on an H200 in bf16, most often; elsewhere what little memory is enough for."""
    measured = torch.cuda.get_device_capability(x.device) == (9, 0) and x.dtype.itemsize == 2
    if tokens < 64:
        return _Launch(16, 5 if measured else 1, 4)
    if tokens < 1024 or not measured:
        return _Launch(64, 3 if measured else 1, 4)
    return _Launch(128, 3, 4) if size <= 64 else _Launch(256, 2, 8)


@torch.library.custom_op("softprune::block_sparse_linear", mutates_args=())
def _product(x: Tensor, crow_indices: Tensor, col_indices: Tensor, values: Tensor, outputs: int) -> Tensor:
    """x·Wᵀ."""
    shape = outputs, x.shape[-1]
    if not x.is_cuda or x.dtype is torch.float64 or not x.numel() or not len(values):
        return linear(x, _dense(crow_indices, col_indices, values, shape))
    from torch.sparse._triton_ops import bsr_dense_addmm

    flat = x.reshape(-1, x.shape[-1])
    launch = _launch(len(flat), x, values.shape[1])
    missing = -len(flat) % launch.width
    rows = pad(flat, (0, 0, 0, missing)) if missing else flat
    weight = torch.sparse_bsr_tensor(crow_indices, col_indices, values, size=shape, check_invariants=False)
    meta = {
        "SPLIT_N": len(rows) // launch.width,
        "GROUP_SIZE_ROW": 4,
        "num_stages": launch.stages,
        "num_warps": launch.warps,
    }
    y = x.new_empty(len(rows), outputs)
    bsr_dense_addmm(y.t(), weight, rows.t(), beta=0, out=y.t(), meta=meta)
    return y[: len(flat)].reshape(*x.shape[:-1], outputs)


@_product.register_fake
def _(x: Tensor, crow_indices: Tensor, col_indices: Tensor, values: Tensor, outputs: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], outputs)
