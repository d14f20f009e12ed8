"""The soft threshold of many tensors at once, blended with θ or not, and its derivative: one launch each on a GPU.

In the kernel θ is read once and w written once. On the CPU, and wherever one launch cannot do it, plain torch
operations do the same tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from softprune.kernels.columns import Column, is_scalar, placed, typed
from softprune.kernels.pairs import Pairs, on_device

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch brings no Triton
    if not TYPE_CHECKING:
        triton = None


def soft_threshold(pairs: Pairs, *columns: Column) -> None:
    """w ← S_d(θ) for every pair, in place, without a host sync; with k after d, (1 − k)·S_d(θ) + k·θ."""
    if pairs.launchable and all(map(is_scalar, columns)):
        constants = {"BLEND": len(columns) == 2, "COMPUTE": pairs.compute}
        pairs.launch(_soft_threshold_kernel, *_two(columns, pairs), len(pairs.xs), **constants)
        return
    levels = [placed(column, pairs.thetas) for column in columns]
    for w, theta, d, *blend in zip(pairs.xs, pairs.thetas, *levels, strict=True):
        torch.clamp(theta, -d, d, out=w)
        for k in blend:
            w.mul_(complement(k, w))
        torch.sub(theta, w, out=w)


def subgradient(pairs: Pairs, *columns: Column, overwrite: bool) -> list[Tensor]:
    """dL/dw -> dL/dd, or dL/dd and dL/dk, of the columns that are tensors; with ``overwrite``, dL/dw ← dL/dθ.

    d alone   dL/dθ = dL/dw where |θ| > d, else 0         dL/dd = −Σ dL/dw · sign(θ) over |θ| > d
    d and k   dL/dθ = dL/dw where |θ| > d, else k·dL/dw   dL/dd is 1 − k times that, dL/dk = Σ dL/dw · clamp(θ, −d, d)
    """
    one_launch = pairs.launchable and all(map(is_scalar, columns))
    sums = (_launch_subgradient if one_launch else _loop_subgradient)(pairs, columns, overwrite)
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
    levels = [placed(column, pairs.thetas) for column in columns]
    for grad, theta, d, *blend in zip(pairs.xs, pairs.thetas, *levels, strict=True):
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


def complement(k: Any, like: Tensor) -> Tensor:
    """1 − k as a number of the tensor's type: torch would round it on one device and not on another."""
    return typed(1 - k, like)


def _two(columns: Sequence[Column], pairs: Pairs) -> tuple[Tensor, Tensor]:
    """d and k on the device; where there is no k, kernels are given d twice, and use one."""
    vectors = [on_device(column, pairs.table.device) for column in columns]  # type: ignore[arg-type]
    return vectors[0], vectors[-1]


if triton is not None:
    from softprune.kernels.pairs import locate

    @triton.jit  # type: ignore[untyped-decorator]
    def rounded(level, ELEMENT: tl.constexpr, COMPUTE: tl.constexpr):  # type: ignore[no-untyped-def]
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
        rest = rounded(1 - tl.load(blends + tl.load(owner + tl.program_id(0))), ELEMENT, COMPUTE)
        d = rounded(d, ELEMENT, COMPUTE)
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
        d = rounded(d, ELEMENT, COMPUTE)
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
