"""Groups of weights that span several tensors: channels, neurons, heads. Their sums and their scaling.

A tensor owns groups along one of its dimensions: each index belongs to one group, or to none. The threshold of a group
acts on its size r: w = θ · f(r) (factor.py). On the CPU, and wherever one launch cannot do it,
plain torch operations do it tensor by tensor. No sum depends on the order in which threads arrive.

On a GPU a tensor is a matrix in memory, cut into tiles: its columns belong to indices, or its rows do, whichever leaves
fewer partial sums. One launch adds the squares of each tile, one adds up the partial sums of each group, one scales.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from softprune.kernels.pairs import Pairs, upload
from softprune.kernels.tiles import SIDE, Matrix, Tiles, around, tiles

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch brings no Triton
    if not TYPE_CHECKING:
        triton = None


_TILES = 8192  # about as many programs add squares; fewer leave fewer partial sums


@dataclass(frozen=True, eq=False)
class Owned:
    """The groups of one tensor: the group of each index along ``dim``, −1 where it is in none."""

    dim: int
    labels: Tensor


def sizes(owned: Sequence[Owned | None], shapes: Sequence[Sequence[int]], number: int) -> Tensor:
    """How many weights each group has, on the CPU."""
    found = torch.zeros(number, dtype=torch.int64, device="cpu")
    for cut, shape in zip(owned, shapes, strict=True):
        if cut is not None and len(cut.labels):
            found += _counts(cut.labels.cpu(), number) * (math.prod(shape) // len(cut.labels))
    return found


class Units:
    """``number`` groups over many tensors: ``owned[i]`` says how tensor i, of ``shapes[i]``, is cut, if it is."""

    def __init__(self, owned: Sequence[Owned | None], shapes: Sequence[torch.Size], number: int) -> None:
        self.shapes = [torch.Size(shape) for shape in shapes]
        self.dims = [None if x is None else x.dim % len(s) for x, s in zip(owned, self.shapes, strict=True)]
        self.labels = [None if x is None else x.labels.cpu() for x in owned]
        self.number = number
        self._cache: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    def squares(self, pairs: Pairs) -> Tensor:
        """Σ θ² over each group, in single precision or better."""
        if (cut := self._cut(pairs)) is not None:
            return self._launch_sums(pairs, cut)
        return self.products(pairs.thetas, pairs.thetas)

    def products(self, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> Tensor:
        """Σ x·y over each group, in single precision or better, in plain torch."""
        device = xs[0].device
        parts = [torch.zeros(0, device=device)]
        for x, y, dim in zip(xs, ys, self.dims, strict=True):
            if dim is not None:
                wide = x.to(torch.promote_types(x.dtype, torch.float32))
                others = [i for i in range(x.dim()) if i != dim]
                products = wide.square() if x is y else wide * y
                parts.append((products.sum(others) if others else products).to(device))
        order, lengths = self._order(device)
        return torch.segment_reduce(torch.cat(parts)[order], "sum", lengths=lengths, unsafe=True, initial=0.0)

    def scale(self, pairs: Pairs, factors: Tensor) -> None:
        """w ← θ · factors[label] for every pair, in place; w ← θ where a weight is in no group."""
        if (cut := self._cut(pairs)) is not None:
            self._launch(_scale_kernel, pairs, cut, cut.scaled, factors.to(pairs.sums), cut.labels)
            return
        factors = torch.cat([factors, factors.new_ones(1)])  # label −1 is the last
        for w, theta, dim, labels in zip(pairs.xs, pairs.thetas, self.dims, self._labels(factors.device), strict=True):
            if dim is None:
                w.copy_(theta)
            else:
                f = factors[labels].to(theta.device)
                torch.mul(theta, f.view(-1, *(1,) * (theta.dim() - dim - 1)), out=w)

    def _launch_sums(self, pairs: Pairs, cut: _Cut) -> Tensor:
        partial = torch.empty(cut.partials, dtype=pairs.sums, device=pairs.table.device)
        sums = torch.empty(self.number, dtype=pairs.sums, device=pairs.table.device)
        self._launch(_squares_kernel, pairs, cut, cut.summed, partial, cut.steps)
        if self.number:
            with torch.cuda.device(sums.device):
                _gather_kernel[(self.number,)](partial, cut.lists, cut.ends, sums, BLOCK=256, num_warps=1)
        return sums

    def _launch(self, kernel: Any, pairs: Pairs, cut: _Cut, tiles: Tiles, *arguments: Any) -> None:
        constants = {k: pairs.constants[k] for k in ("ELEMENT", "num_warps", "enable_fp_fusion")}
        if tiles.number:
            with torch.cuda.device(pairs.table.device):
                kernel[(tiles.number,)](
                    pairs.table,
                    *tiles[:3],
                    cut.matrices,
                    *arguments,
                    len(pairs.thetas),
                    SIDE=SIDE,
                    COMPUTE=pairs.compute,
                    **constants,
                )

    def _cut(self, pairs: Pairs) -> _Cut | None:
        """The matrices and their tiles on the device; None where one launch cannot do it."""
        if not pairs.launchable:
            return None
        strides = tuple(theta.stride() for theta in pairs.thetas)
        key = strides, pairs.thetas[0].device
        if key not in self._cache:
            self._cache[key] = self._plan(strides, pairs.thetas[0].device)
        found: _Cut | None = self._cache[key]
        return found

    def _plan(self, strides: Sequence[tuple[int, ...]], device: torch.device) -> _Cut | None:
        total = sum(shape.numel() for shape in self.shapes)
        steps = 1 + total // (SIDE * SIDE * _TILES)
        matrices, members, groups, named, partials, labels = [], [], [], [], 0, 0
        for shape, stride, dim, names in zip(self.shapes, strides, self.dims, self.labels, strict=True):
            if (found := around(shape, stride, dim or 0)) is None:
                return None
            matrix = Matrix.of(*found, steps * SIDE, partials, labels if names is not None else -1)
            matrices.append(matrix)
            if names is not None and matrix.partials:
                named.append(names)
                labels += len(names)
                partials += matrix.partials
                members.append(matrix.members())
                groups.append(names.repeat_interleave(matrix.partials // len(names)))
        whole = [torch.zeros(0, dtype=torch.int64)]
        group, member = torch.cat(whole + groups), torch.cat(whole + members)
        order = group.argsort(stable=True)[int((group < 0).sum()) :]
        ends = _counts(group, self.number).cumsum(0)
        return _Cut(
            matrices=upload([x for matrix in matrices for x in matrix], torch.int64, device),
            labels=torch.cat(whole + named).to(device),
            lists=member[order].to(device),
            ends=torch.cat([ends.new_zeros(1), ends]).to(device),
            summed=tiles([m if m.labels >= 0 else None for m in matrices], steps, device),
            scaled=tiles(matrices, 1, device),
            partials=partials,
            steps=steps,
        )

    def _order(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """All indices of all tensors that are in a group, sorted by group, and how many each group has."""
        if ("order", device) not in self._cache:
            labels = torch.cat([torch.zeros(0, dtype=torch.int64), *(x for x in self.labels if x is not None)])
            order = labels.argsort(stable=True)[int((labels < 0).sum()) :]
            self._cache["order", device] = order.to(device), _counts(labels, self.number).to(device)
        found: tuple[Tensor, Tensor] = self._cache["order", device]
        return found

    def _labels(self, device: torch.device) -> list[Tensor | None]:
        if ("labels", device) not in self._cache:
            self._cache["labels", device] = [None if x is None else x.to(device) for x in self.labels]
        found: list[Tensor | None] = self._cache["labels", device]
        return found


def _counts(labels: Tensor, number: int) -> Tensor:
    return torch.bincount(labels[labels >= 0], minlength=number)


class _Cut(NamedTuple):
    """All that the kernels read but the tensors: the partial sums of each group, one group after the other, too."""

    matrices: Tensor
    labels: Tensor
    lists: Tensor
    ends: Tensor
    summed: Tiles
    scaled: Tiles
    partials: int
    steps: int


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _squares_kernel(  # type: ignore[no-untyped-def]
        table,
        owner,
        row,
        col,
        matrices,
        partial,
        steps,
        count,
        SIDE: tl.constexpr,
        ELEMENT: tl.constexpr,
        COMPUTE: tl.constexpr,
    ):
        tensor = tl.load(owner + tl.program_id(0))
        x = tl.load(table + count + tensor).to(tl.pointer_type(ELEMENT))
        matrices += tensor * 8
        rows = tl.load(matrices)
        cols = tl.load(matrices + 1)
        by_row = tl.load(matrices + 2)
        chunk = tl.load(matrices + 5)
        partial += tl.load(matrices + 6)
        i = tl.load(row + tl.program_id(0)) + tl.arange(0, SIDE)
        j = tl.load(col + tl.program_id(0)) + tl.arange(0, SIDE)
        down = tl.where(by_row != 0, 0, SIDE)
        total = tl.zeros((SIDE, SIDE), COMPUTE)
        for step in range(steps):
            a = i + step * down
            b = j + step * (SIDE - down)
            inside = (a < rows)[:, None] & (b < cols)[None, :]
            y = tl.load(x + a[:, None] * cols + b[None, :], mask=inside, other=0.0).to(COMPUTE)
            total += y * y
        if by_row != 0:
            pieces = (cols + chunk - 1) // chunk
            place = tl.load(col + tl.program_id(0)) // chunk
            tl.store(partial + i * pieces + place, tl.sum(total, axis=1), mask=i < rows)
        else:
            place = tl.load(row + tl.program_id(0)) // chunk
            tl.store(partial + place * cols + j, tl.sum(total, axis=0), mask=j < cols)

    @triton.jit  # type: ignore[untyped-decorator]
    def _gather_kernel(partial, lists, ends, sums, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        group = tl.program_id(0)
        start = tl.load(ends + group)
        end = tl.load(ends + group + 1)
        total = tl.zeros((BLOCK,), partial.dtype.element_ty)
        for first in range(start, end, BLOCK):
            i = first + tl.arange(0, BLOCK)
            place = tl.load(lists + i, mask=i < end, other=0)
            total += tl.load(partial + place, mask=i < end, other=0.0)
        tl.store(sums + group, tl.sum(total))

    @triton.jit
    def _label(labels, factors, index, there):  # type: ignore[no-untyped-def]
        """The factor of each index, 1 where it is in no group."""
        label = tl.load(labels + index, mask=there, other=-1)
        return tl.load(factors + label, mask=label >= 0, other=1.0)

    @triton.jit  # type: ignore[untyped-decorator]
    def _scale_kernel(  # type: ignore[no-untyped-def]
        table,
        owner,
        row,
        col,
        matrices,
        factors,
        labels,
        count,
        SIDE: tl.constexpr,
        ELEMENT: tl.constexpr,
        COMPUTE: tl.constexpr,
    ):
        tensor = tl.load(owner + tl.program_id(0))
        w = tl.load(table + tensor).to(tl.pointer_type(ELEMENT))
        theta = tl.load(table + count + tensor).to(tl.pointer_type(ELEMENT))
        matrices += tensor * 8
        rows = tl.load(matrices)
        cols = tl.load(matrices + 1)
        start = tl.load(matrices + 7)
        i = tl.load(row + tl.program_id(0)) + tl.arange(0, SIDE)
        j = tl.load(col + tl.program_id(0)) + tl.arange(0, SIDE)
        if tl.load(matrices + 2) != 0:
            index = i % tl.load(matrices + 3).to(tl.int32)
            f = tl.broadcast_to(
                _label(labels + start, factors, index, (i < rows) & (start >= 0))[:, None], (SIDE, SIDE)
            )
        else:
            index = j // tl.load(matrices + 4).to(tl.int32)
            f = tl.broadcast_to(
                _label(labels + start, factors, index, (j < cols) & (start >= 0))[None, :], (SIDE, SIDE)
            )
        inside = (i < rows)[:, None] & (j < cols)[None, :]
        at = i[:, None] * cols + j[None, :]
        x = tl.load(theta + at, mask=inside).to(COMPUTE)
        tl.store(w + at, (x * f).to(ELEMENT), mask=inside)
