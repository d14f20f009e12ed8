"""What the threshold leaves of a group: f(r), by which all of its weights are multiplied.

r is the size of the group, its root mean square. A block and a group over several tensors share f, and so does what
counts them: those with r <= d are zero.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from softprune.kernels.columns import Level, typed

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch brings no Triton
    if not TYPE_CHECKING:
        triton = None

_BLOCK = 1024


def factor(r: Tensor, d: Level, p: float) -> Tensor:
    """f(r) = (1 − (d/r)^p)^(1/p) where r > d, else 0: what is left of a group whose root mean square is r.

    p = 1 is the soft threshold of the norm, p = ∞ the hard one. d is a number, or a tensor like r. No term cancels or
    overflows (``kernels.power``): f is 1 for d = 0 and for an infinite r, and NaN stays NaN.
    """
    if triton is not None and r.is_cuda and r.is_contiguous() and r.numel():
        levels = d.to(r) if isinstance(d, Tensor) else torch.full((), d, dtype=r.dtype, device=r.device)
        levels, f = levels.expand_as(r).contiguous(), torch.empty_like(r)
        with torch.cuda.device(r.device):
            grid = (triton.cdiv(r.numel(), _BLOCK),)
            _factor_kernel[grid](r, levels, f, r.numel(), P=float(p), HARD=p == math.inf, BLOCK=_BLOCK)
        return f
    d = typed(d, r)
    dead = r <= d
    if p == math.inf:
        return torch.where(dead, 0.0, torch.ones_like(r))
    if p == 1:
        f = r.clamp(max=torch.finfo(r.dtype).max)
        f = (f - d).div_(f)
    else:
        f = (r - d).div_(d).clamp_(min=torch.finfo(r.dtype).eps / 4)  # a logarithm of 0 or less is slow
        f.log1p_().mul_(-p).expm1_().neg_()
        f.log_().mul_(1 / p).exp_()
    return f.masked_fill_(dead, 0.0)


if triton is not None:
    from triton.language.extra import libdevice

    @triton.jit  # type: ignore[untyped-decorator]
    def left_over(r, d, P: tl.constexpr, HARD: tl.constexpr):  # type: ignore[no-untyped-def]
        """f(r)."""
        if HARD:
            f = tl.full(r.shape, 1.0, r.dtype)
        elif P == 1:
            f = tl.where(r == float("inf"), 1.0, (r - d) / r)
        else:
            rest = -libdevice.expm1(-P * libdevice.log1p((r - d) / d))
            f = tl.exp(tl.log(rest) * (1 / P))
        return tl.where(r <= d, 0.0, f)  # NaN stays NaN

    @triton.jit  # type: ignore[untyped-decorator]
    def _factor_kernel(  # type: ignore[no-untyped-def]
        r, d, f, count, P: tl.constexpr, HARD: tl.constexpr, BLOCK: tl.constexpr
    ):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        found = left_over(tl.load(r + i, mask=i < count), tl.load(d + i, mask=i < count), P, HARD)
        tl.store(f + i, found, mask=i < count)
