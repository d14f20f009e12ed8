"""What is compared in patterns_gpu.py: patterns of zeros in a Linear layer, each with the kernel that uses them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad
from torch.sparse import SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS
from torch.sparse._triton_ops import bsr_dense_addmm

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
FP8 = torch.float8_e4m3fn
ONE = torch.ones((), device=DEVICE)


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]


def padded(x: Tensor, multiple: int = 16) -> Tensor:
    missing = -len(x) % multiple
    if not missing:
        return x
    return pad(x.view(torch.uint8), (0, 0, 0, missing)).view(FP8) if x.dtype is FP8 else pad(x, (0, 0, 0, missing))


@dataclass(frozen=True)
class Pattern:
    """A kind of zeros, and the kernel that uses them. A setting is what the kernel can be tuned by."""

    name: str = "dense"
    kept: float = 1.0
    bar: float = math.inf  # times faster than dense: what reaches it gets built

    def mask(self, weight: Tensor) -> Tensor:
        return weight

    def pack(self, weight: Tensor) -> Any:
        return weight.clone()

    def reads(self, x: Tensor, packed: Any) -> Tensor:
        return x

    def settings(self, packed: Any, x: Tensor) -> list[Any]:
        return ["", "padded to 32"] if x.dtype is FP8 and len(x) < 32 else [""]

    def multiple(self, x: Tensor, setting: Any) -> int:
        """Tokens are padded to a multiple of it."""
        return 32 if setting else 1

    def call(self, packed: Any, x: Tensor, setting: Any) -> Tensor:
        if x.dtype is not FP8:
            return linear(x, packed)
        rows = padded(x, 32) if setting else x
        return torch._scaled_mm(rows, packed.t(), ONE, ONE, out_dtype=torch.bfloat16, use_fast_accum=True)[: len(x)]


@dataclass(frozen=True)
class Narrow(Pattern):
    """Neurons are the outputs of an up projection and the inputs of a down projection."""

    def part(self, weight: Tensor) -> Tensor:
        outputs, inputs = weight.shape
        return weight[:, : round(self.kept * inputs)] if inputs > outputs else weight[: round(self.kept * outputs)]

    def mask(self, weight: Tensor) -> Tensor:
        masked = torch.zeros_like(weight)
        self.part(masked).copy_(self.part(weight))
        return masked

    def pack(self, weight: Tensor) -> Tensor:
        return self.part(weight).clone(memory_format=torch.contiguous_format)

    def reads(self, x: Tensor, packed: Any) -> Tensor:
        return x[:, : packed.shape[1]].contiguous()


@dataclass(frozen=True)
class TwoOfFour(Pattern):
    kept: float = 0.5
    bar: float = 1.2

    def mask(self, weight: Tensor) -> Tensor:
        fours = weight.view(-1, 4)
        largest = fours.abs().topk(2).indices
        return torch.zeros_like(fours).scatter_(1, largest, fours.gather(1, largest)).view_as(weight)


@dataclass(frozen=True)
class Algorithm:
    id: int = 0
    split_k: int = 1
    split_k_mode: int = -1
    by_token: bool = False  # the kernel writes tokens x outputs, else outputs x tokens


def cusparselt(packed: Tensor, x: Tensor, how: Algorithm) -> Tensor:
    arguments = None, None, wide(x), how.by_token, how.id, how.split_k, how.split_k_mode  # some changed their names
    y = torch._cslt_sparse_mm(packed, padded(x).t(), *arguments)
    return (y if how.by_token else y.t())[: len(x)]


def wide(x: Tensor) -> torch.dtype | None:
    return torch.bfloat16 if x.dtype is FP8 else None


@dataclass(frozen=True)
class Tensor24(TwoOfFour):
    """torch's semi-structured tensors, which pad bf16 by themselves."""

    backend: type = SparseSemiStructuredTensorCUSPARSELT

    def pack(self, weight: Tensor) -> Any:
        return self.backend.from_dense(weight)

    def settings(self, packed: Any, x: Tensor) -> list[Any]:
        return [Algorithm() if x.dtype is FP8 else ""]

    def multiple(self, x: Tensor, setting: Any) -> int:
        return 16 if setting else 8

    def call(self, packed: Any, x: Tensor, setting: Any) -> Tensor:
        return cusparselt(packed.packed, x, setting) if setting else linear(x, packed)


@dataclass(frozen=True)
class Searched24(TwoOfFour):
    def pack(self, weight: Tensor) -> Tensor:
        return torch._cslt_compress(weight)

    def settings(self, packed: Any, x: Tensor) -> list[Any]:
        """What the search finds for both layouts of the result, then every algorithm without split k."""
        found, limit = [], 40
        for by_token in (True, False):
            try:
                search = torch._C._cusparselt.mm_search
                *one, limit = search(packed, padded(x).t(), None, None, wide(x), by_token)
                found.append(Algorithm(*map(int, one), by_token))
            except Exception as error:
                print(f"  cuSPARSELt's search, by_token={by_token}: {first_line(error)}", flush=True)
        by_token = any(one.by_token for one in found)
        return list(dict.fromkeys([*found, *(Algorithm(i, by_token=by_token) for i in range(limit))]))

    def multiple(self, x: Tensor, setting: Algorithm) -> int:
        return 16

    def call(self, packed: Any, x: Tensor, setting: Algorithm) -> Tensor:
        return cusparselt(packed, x, setting)


@dataclass(frozen=True)
class Launch:
    width: int  # tokens of a tile
    stages: int
    warps: int


@dataclass(frozen=True)
class Blocks(Pattern):
    size: int = 64

    def mask(self, weight: Tensor) -> Tensor:
        rows, columns = (n // self.size for n in weight.shape)
        kept = torch.zeros(rows * columns, device=weight.device)
        kept[torch.randperm(len(kept), device=weight.device)[: round(self.kept * len(kept))]] = 1
        mask = kept.view(rows, 1, columns, 1)
        return (weight.view(rows, self.size, columns, self.size) * mask).view_as(weight)

    def pack(self, weight: Tensor) -> Tensor:
        if weight.dtype is not FP8:
            return weight.to_sparse_bsr((self.size, self.size))
        bsr = weight.to(torch.bfloat16).to_sparse_bsr((self.size, self.size))
        return torch.sparse_bsr_tensor(bsr.crow_indices(), bsr.col_indices(), bsr.values().to(FP8), size=bsr.shape)

    def settings(self, packed: Any, x: Tensor) -> list[Any]:
        """torch's own choice, then a few more: it has tuned tables for the A100 alone."""
        tokens = len(padded(x))
        default = Launch(min(self.size, tokens), 1, 4)
        few = [Launch(16, 3, 4), Launch(16, 5, 4)]
        many = [Launch(64, 3, 4), Launch(128, 3, 4), Launch(128, 3, 8), Launch(256, 2, 8)]
        return [default, *(few if tokens < 64 else many)]

    def multiple(self, x: Tensor, setting: Launch) -> int:
        return 16

    def call(self, packed: Any, x: Tensor, setting: Launch) -> Tensor:
        if not CUDA:
            return linear(x, packed)
        rows = padded(x)
        y = torch.empty(len(rows), packed.shape[0], device=x.device, dtype=wide(x) or x.dtype)
        split = len(rows) // setting.width
        meta = {"SPLIT_N": split, "GROUP_SIZE_ROW": 4, "num_stages": setting.stages, "num_warps": setting.warps}
        bsr_dense_addmm(y.t(), packed, rows.t(), beta=0, out=y.t(), meta=meta)
        return y[: len(x)]


PATTERNS = (
    Pattern(),
    *(Narrow(f"{share:.0%} of neurons", share) for share in (0.75, 0.5, 0.25)),
    Tensor24("2:4 cuSPARSELt", backend=SparseSemiStructuredTensorCUSPARSELT),
    Searched24("2:4 cuSPARSELt, searched"),
    Tensor24("2:4 CUTLASS", backend=SparseSemiStructuredTensorCUTLASS),
    *(
        Blocks(f"{size} x {size} blocks, {zeros:.0%}", 1 - zeros, 1.5 if zeros == 0.9 else math.inf, size)
        for size, zeros in product((64, 128), (0.8, 0.9, 0.95))
    ),
)


ORDER = [pattern.name for pattern in PATTERNS]
