"""The soft threshold of many tensors at once, blended with θ or not, and its derivative: one launch each on a GPU.

On a GPU a training step is often bound by kernel launches, and one small launch per layer would cost more
than the arithmetic. So one Triton kernel walks over all tensors through a table of their addresses: θ is read
once and w written once. On the CPU, and wherever Triton is missing, plain torch operations do the same tensor
by tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from softprune.columns import Column, levels, rest

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch brings no Triton
    if not TYPE_CHECKING:
        triton = None

_BLOCK = 4096


class Pairs:
    """Tensors x, each with its hidden weight θ of the same shape: w with θ, or a gradient with θ."""

    def __init__(self, xs: Sequence[Tensor], thetas: Sequence[Tensor]) -> None:
        self.xs = xs
        self.thetas = thetas

    @cached_property
    def launchable(self) -> bool:
        """Whether one launch can do it: all on one GPU, of one type, each pair laid out alike and without gaps."""
        first = self.thetas[0]
        return (
            triton is not None
            and first.is_cuda
            and all(
                x.stride() == theta.stride()
                and x.dtype == theta.dtype == first.dtype
                and x.device == theta.device == first.device
                for x, theta in zip(self.xs, self.thetas, strict=True)
            )
        )

    @cached_property
    def table(self) -> Tensor:
        """The addresses of x, the addresses of θ and the lengths, on the device."""
        addresses = [x.data_ptr() for x in (*self.xs, *self.thetas)]
        return upload([*addresses, *self.numels], torch.int64, self.thetas[0].device)

    @cached_property
    def numels(self) -> tuple[int, ...]:
        return tuple(theta.numel() for theta in self.thetas)

    @cached_property
    def blocks(self) -> _Blocks:
        return _blocks(self.numels, self.thetas[0].device)

    @cached_property
    def compute(self) -> Any:
        """The type to compute in."""
        return tl.float64 if self.thetas[0].dtype is torch.float64 else tl.float32

    @property
    def sums(self) -> torch.dtype:
        """The type to add up in: single precision or better."""
        return torch.promote_types(self.thetas[0].dtype, torch.float32)

    @cached_property
    def constants(self) -> dict[str, Any]:
        dtype = self.thetas[0].dtype
        aligned = all(x.data_ptr() % 16 == 0 for x in (*self.xs, *self.thetas))
        return {
            "ELEMENT": _ELEMENT[dtype],
            "ALIGN": 16 if aligned else dtype.itemsize,
            "BLOCK": _BLOCK,
            "num_warps": 4,
            "enable_fp_fusion": False,  # else a − b·c is rounded once here and twice on the CPU
        }

    def launch(self, kernel: Any, *arguments: Any, **constants: Any) -> None:
        """One launch over all blocks, on the GPU where the tensors are, which need not be the current one."""
        with torch.cuda.device(self.thetas[0].device):
            kernel[(self.blocks.number,)](
                self.table, self.blocks.owner, self.blocks.offset, *arguments, **self.constants, **constants
            )


def soft_threshold(pairs: Pairs, *columns: Column) -> None:
    """w ← S_d(θ) for every pair, in place, without waiting for the device; with k after d, (1 − k)·S_d(θ) + k·θ."""
    if pairs.launchable:
        constants = {"BLEND": len(columns) == 2, "COMPUTE": pairs.compute}
        pairs.launch(_soft_threshold_kernel, *_two(columns, pairs), len(pairs.xs), **constants)
        return
    placed = [levels(column, pairs.thetas) for column in columns]
    for w, theta, d, *blend in zip(pairs.xs, pairs.thetas, *placed, strict=True):
        torch.clamp(theta, -d, d, out=w)
        for k in blend:
            w.mul_(rest(k, w))
        torch.sub(theta, w, out=w)


def subgradient(pairs: Pairs, *columns: Column, overwrite: bool) -> list[Tensor]:
    """dL/dw -> dL/dd, or dL/dd and dL/dk, of the columns that are tensors; with ``overwrite``, dL/dw ← dL/dθ.

    d alone   dL/dθ = dL/dw where |θ| > d, else 0         dL/dd = −Σ dL/dw · sign(θ) over |θ| > d
    d and k   dL/dθ = dL/dw where |θ| > d, else k·dL/dw   dL/dd is 1 − k times that, dL/dk = Σ dL/dw · clamp(θ, −d, d)
    """
    sums = (_launch_subgradient if pairs.launchable else _loop_subgradient)(pairs, columns, overwrite)
    return [x.to(column) for x, column in zip(sums, columns, strict=True) if isinstance(column, Tensor)]


def _launch_subgradient(pairs: Pairs, columns: Sequence[Column], overwrite: bool) -> list[Tensor]:
    partial = torch.empty((len(columns), pairs.blocks.number), dtype=pairs.sums, device=pairs.table.device)
    constants = {"BLEND": len(columns) == 2, "OVERWRITE": overwrite, "COMPUTE": pairs.compute}
    pairs.launch(_subgradient_kernel, *_two(columns, pairs), partial, len(pairs.xs), **constants)
    lengths = pairs.blocks.lengths
    return [torch.segment_reduce(x, "sum", lengths=lengths, unsafe=True, initial=0.0) for x in partial]


def _loop_subgradient(pairs: Pairs, columns: Sequence[Column], overwrite: bool) -> list[Tensor]:
    device = pairs.thetas[0].device
    sums = []
    placed = [levels(column, pairs.thetas) for column in columns]
    for grad, theta, d, *blend in zip(pairs.xs, pairs.thetas, *placed, strict=True):
        outside = theta.abs() > d
        turned = torch.where(outside, grad, 0.0)
        slopes = [-(turned * theta.sign()).sum(dtype=pairs.sums)]
        for k in blend:
            slopes = [(1 - k) * slopes[0], (grad * theta.clamp(-d, d).to(pairs.sums)).sum()]
            turned = torch.where(outside, grad, k * grad)
        if overwrite:
            grad.copy_(turned)
        sums.append([x.to(device) for x in slopes])
    return [torch.stack(column) for column in zip(*sums, strict=True)]


def _two(columns: Sequence[Column], pairs: Pairs) -> tuple[Tensor, Tensor]:
    """d and k on the device; where there is no k, kernels are given d twice, and use one."""
    placed = [on_device(column, pairs.table.device) for column in columns]
    return placed[0], placed[-1]


def on_device(d: Column, device: torch.device) -> Tensor:
    """The thresholds as a vector on the device."""
    if isinstance(d, Tensor):
        return d.to(device, non_blocking=True).contiguous()
    if all(x == d[0] for x in d):
        return torch.full((len(d),), d[0], dtype=torch.float64, device=device)
    return upload(d, torch.float64, device)


def upload(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers to the device, through pinned memory: the host does not wait."""
    return torch.tensor(values, dtype=dtype, device="cpu").pin_memory().to(device, non_blocking=True)


class _Blocks(NamedTuple):
    """The tensors cut into blocks: for each block its tensor and where in the tensor it begins."""

    owner: Tensor
    offset: Tensor
    lengths: Tensor  # blocks of each tensor
    number: int


@lru_cache(maxsize=64)
def _blocks(numels: tuple[int, ...], device: torch.device) -> _Blocks:
    starts = [range(0, max(n, 1), _BLOCK) for n in numels]
    return _Blocks(
        owner=upload([i for i, s in enumerate(starts) for _ in s], torch.int32, device),
        offset=upload([start for s in starts for start in s], torch.int64, device),
        lengths=upload([len(s) for s in starts], torch.int64, device),
        number=sum(len(s) for s in starts),
    )


if triton is not None:
    _ELEMENT = {
        torch.float64: tl.float64,
        torch.float32: tl.float32,
        torch.bfloat16: tl.bfloat16,
        torch.float16: tl.float16,
    }

    @triton.jit  # type: ignore[untyped-decorator]
    def locate(table, owner, offset, thresholds, count, ELEMENT: tl.constexpr, ALIGN: tl.constexpr):  # type: ignore[no-untyped-def]
        """This block's tensor: pointers to x and θ, the elements left, and d."""
        tensor = tl.load(owner + tl.program_id(0))
        start = tl.load(offset + tl.program_id(0))
        x = tl.load(table + tensor).to(tl.pointer_type(ELEMENT)) + start
        theta = tl.load(table + count + tensor).to(tl.pointer_type(ELEMENT)) + start
        left = tl.load(table + 2 * count + tensor) - start
        return tl.multiple_of(x, ALIGN), tl.multiple_of(theta, ALIGN), left, tl.load(thresholds + tensor)

    @triton.jit  # type: ignore[untyped-decorator]
    def _rounded(level, ELEMENT: tl.constexpr, COMPUTE: tl.constexpr):  # type: ignore[no-untyped-def]
        """A level as a number of θ's type, which is what torch's own operations make of it."""
        return level.to(tl.float32).to(ELEMENT).to(COMPUTE) if tl.float64 != ELEMENT else level.to(COMPUTE)

    @triton.jit
    def _clip(x, d):  # type: ignore[no-untyped-def]
        return tl.where(x > d, d, tl.where(x < -d, -d, x))  # NaN stays NaN

    @triton.jit  # type: ignore[untyped-decorator]
    def _map(theta, d, rest, BLEND: tl.constexpr, COMPUTE: tl.constexpr):  # type: ignore[no-untyped-def]
        """θ − (1 − k)·clamp(θ, −d, d), rounded as torch rounds it."""
        x = theta.to(COMPUTE)
        clipped = _clip(x, d)
        if BLEND:
            clipped = (rest * clipped).to(theta.dtype).to(COMPUTE)
        return (x - clipped).to(theta.dtype)

    @triton.jit  # type: ignore[untyped-decorator]
    def _soft_threshold_kernel(  # type: ignore[no-untyped-def]
        table,
        owner,
        offset,
        thresholds,
        blends,
        count,
        BLEND: tl.constexpr,
        ELEMENT: tl.constexpr,
        COMPUTE: tl.constexpr,
        ALIGN: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        w, theta, left, d = locate(table, owner, offset, thresholds, count, ELEMENT, ALIGN)
        rest = _rounded(1 - tl.load(blends + tl.load(owner + tl.program_id(0))), ELEMENT, COMPUTE)
        d = _rounded(d, ELEMENT, COMPUTE)
        i = tl.arange(0, BLOCK)
        if left >= BLOCK:  # without a mask, loads and stores are 16 bytes wide
            tl.store(w + i, _map(tl.load(theta + i), d, rest, BLEND, COMPUTE))
        else:
            tl.store(w + i, _map(tl.load(theta + i, mask=i < left), d, rest, BLEND, COMPUTE), mask=i < left)

    @triton.jit  # type: ignore[untyped-decorator]
    def _subgradient_kernel(  # type: ignore[no-untyped-def]
        table,
        owner,
        offset,
        thresholds,
        blends,
        partial,
        count,
        BLEND: tl.constexpr,
        OVERWRITE: tl.constexpr,
        ELEMENT: tl.constexpr,
        COMPUTE: tl.constexpr,
        ALIGN: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        grad, theta, left, d = locate(table, owner, offset, thresholds, count, ELEMENT, ALIGN)
        k = tl.load(blends + tl.load(owner + tl.program_id(0))).to(COMPUTE)
        d = _rounded(d, ELEMENT, COMPUTE)
        i = tl.arange(0, BLOCK)
        if left >= BLOCK:
            x = tl.load(theta + i).to(COMPUTE)
            g = tl.load(grad + i)
        else:
            x = tl.load(theta + i, mask=i < left, other=0.0).to(COMPUTE)
            g = tl.load(grad + i, mask=i < left, other=0.0)
        outside = tl.abs(x) > d
        turned = tl.where(outside, g, 0.0).to(ELEMENT)
        slope = tl.sum(tl.where(x > 0, -turned.to(COMPUTE), turned.to(COMPUTE)))
        if BLEND:
            slope *= 1 - k
            tl.store(partial + tl.num_programs(0) + tl.program_id(0), tl.sum(g.to(COMPUTE) * _clip(x, d)))
            turned = tl.where(outside, g, (k * g.to(COMPUTE)).to(ELEMENT))
        tl.store(partial + tl.program_id(0), slope)
        if OVERWRITE:
            if left >= BLOCK:
                tl.store(grad + i, turned)
            else:
                tl.store(grad + i, turned, mask=i < left)
