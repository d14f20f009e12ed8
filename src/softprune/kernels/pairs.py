"""Many tensors, each with its hidden weight θ, in one launch of a GPU kernel.

On a GPU a training step is often bound by kernel launches, and one small launch per layer would cost more
than the arithmetic. So one Triton kernel walks over all tensors through a table of their addresses; ``locate`` finds
a block's tensor in it. Where one launch cannot do it (``launchable``), plain torch operations do the same tensor by
tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

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


def on_device(d: Sequence[float] | Tensor, device: torch.device) -> Tensor:
    """The thresholds as a vector on the device."""
    if isinstance(d, Tensor):
        return d.to(device, non_blocking=True).contiguous()
    if all(x == d[0] for x in d):
        return torch.full((len(d),), d[0], dtype=torch.float64, device=device)
    return upload(d, torch.float64, device)


def upload(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers to the device; to a GPU through pinned memory, without a host sync."""
    numbers = torch.tensor(values, dtype=dtype, device="cpu")
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)


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
