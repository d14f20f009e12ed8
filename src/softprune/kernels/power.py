"""The power threshold of many tensors at once: one launch on a GPU.

With v = (|θ| − d) / d, (d/|θ|)^p is exp(−p·log1p(v)), and w = θ·(1 − exp(−p·log1p(v)))^(1/p), the root by exp and log.
No term cancels, at the threshold or far from it, and none overflows: where v is infinite, as for d = 0, w is θ. Half
precision computes in single precision and rounds once. On the CPU, and wherever one launch cannot do it, plain torch
operations do the same tensor by tensor; the two agree on the zeros, and on the rest up to the last bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softprune.kernels.columns import Column, Level, is_scalar, placed, typed
from softprune.kernels.pairs import Pairs, on_device

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch brings no Triton
    if not TYPE_CHECKING:
        triton = None


def power_threshold(pairs: Pairs, column: Column, p: float) -> None:
    """w ← sign(θ)·(|θ|^p − d^p)₊^(1/p) for every pair, in place, without a host sync; p = ∞ is the hard threshold."""
    if pairs.launchable and is_scalar(column):
        thresholds = on_device(column, pairs.table.device)  # type: ignore[arg-type]
        constants = {"P": float(p), "HARD": p == math.inf, "COMPUTE": pairs.compute}
        pairs.launch(_power_threshold_kernel, thresholds, len(pairs.xs), **constants)
        return
    for w, theta, d in zip(pairs.xs, pairs.thetas, placed(column, pairs.thetas), strict=True):
        plain(theta, d, p, out=w)


def plain(theta: Tensor, d: Level, p: float, out: Tensor) -> Tensor:
    """The same for one tensor, in torch operations, most of them in the memory of ``out``."""
    d = typed(d, theta)  # rounded, as the soft threshold's is: all agree on the zeros
    if p == math.inf:
        return torch.where(theta.abs() <= d, theta.new_zeros(()), theta, out=out)  # NaN stays NaN
    wide = torch.promote_types(theta.dtype, torch.float32)
    w = torch.abs(theta, out=out) if out.dtype is wide else theta.to(wide).abs_()
    w.sub_(d)
    dead = w <= 0
    w.div_(d).clamp_(min=torch.finfo(wide).eps / 4)  # less than all that live: a logarithm of 0 or less is slow
    w.log1p_().mul_(-p).expm1_().neg_()
    w.log_().mul_(1 / p).exp_()  # not pow_, which rounds a number by where it stands in a tensor
    torch.where(dead, w.new_zeros(()), w.mul_(theta), out=w)
    return w if w is out else out.copy_(w)


if triton is not None:
    from triton.language.extra import libdevice

    from softprune.kernels.pairs import locate
    from softprune.kernels.shrink import rounded

    @triton.jit  # type: ignore[untyped-decorator]
    def _map(theta, d, P: tl.constexpr, HARD: tl.constexpr, COMPUTE: tl.constexpr):  # type: ignore[no-untyped-def]
        w = theta.to(COMPUTE)
        x = tl.abs(w)
        if not HARD:
            rest = -libdevice.expm1(-P * libdevice.log1p((x - d) / d))
            w *= tl.exp(tl.log(rest) * (1 / P))
        return tl.where(x <= d, 0.0, w).to(theta.dtype)  # NaN stays NaN

    @triton.jit  # type: ignore[untyped-decorator]
    def _power_threshold_kernel(  # type: ignore[no-untyped-def]
        table,
        owner,
        offset,
        thresholds,
        count,
        P: tl.constexpr,
        HARD: tl.constexpr,
        ELEMENT: tl.constexpr,
        COMPUTE: tl.constexpr,
        ALIGN: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        w, theta, left, d = locate(table, owner, offset, thresholds, count, ELEMENT, ALIGN)
        d = rounded(d, ELEMENT, COMPUTE)
        i = tl.arange(0, BLOCK)
        if left >= BLOCK:  # without a mask, loads and stores are 16 bytes wide
            tl.store(w + i, _map(tl.load(theta + i), d, P, HARD, COMPUTE))
        else:
            tl.store(w + i, _map(tl.load(theta + i, mask=i < left), d, P, HARD, COMPUTE), mask=i < left)
