"""A section's drafts -> steps in C, with places for their values: one call runs them all.

A region is steps that loop over the same groups of images; what only they see is kept for one group. A chain is steps
that hand on panel by panel; what only they see is kept for one panel, in the first cache. How panels are walked and
whether rows are paired is measured here, in CPU time, one candidate after the other in several rounds.
"""

from __future__ import annotations

import ctypes as ct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softprune.engine import native
from softprune.engine.choices import Choice, Choices, candidates, walk
from softprune.engine.formats import ROWS, VECTOR, Entries
from softprune.engine.grids import MOST
from softprune.engine.lower import Native, user
from softprune.engine.memory import Need, arrange
from softprune.engine.steps import Draft, packed_bytes
from softprune.engine.windows import Program

SCRATCH = "scratch:"
ROUNDS = 5  # of measurements; what is far behind after the first drops out


@dataclass(frozen=True)
class Note:
    """``blocks``: kept blocks (weights in int16 and fp32); ``limit``: seconds that their instructions need at least."""

    operation: str
    kernel: str
    images: int  # that share a vector
    blocks: int
    limit: float
    choice: Choice | None


class Compiled:
    """A section for one batch size and a number of threads. ``run`` may be called by several threads at once."""

    def __init__(
        self,
        section: Native,
        library: native.Library,
        threads: int = 1,
        choices: Choices | None = None,
        chains: bool = True,
    ) -> None:
        self.section, self.library, self.threads = section, library, threads
        self.drafts = section.drafts
        self.choices = choices or Choices(library)
        self._keep: list[Any] = []
        self._chosen: dict[int, tuple[Any, Entries]] = {}
        self._programs: dict[tuple[int, int], tuple[Any, Any, Tensor]] = {}
        self._free: list[Tensor] = []
        self._lock = threading.Lock()
        self.users = [*(user(n, "in") for n in section.inputs), *(user(n, "out") for n in section.outputs)]
        self.parts = [self._parts(d) for d in self.drafts]
        self.chain = self._chains() if chains else [0] * len(self.drafts)
        self.regions = self._regions()
        self._region_array = native.array(native.Region, [(a, b, n, int(by)) for a, b, n, by in self.regions])
        self.size = 0
        places = self._places()
        self.steps = (native.Step * len(self.drafts))()
        for i, draft in enumerate(self.drafts):
            self._fill(i, draft, places)
        self._measure()
        for i, length in enumerate(self.chain):
            self.steps[i].chain = length

    # --- what runs with what ---

    def _panels(self, draft: Draft) -> int:
        return draft.panels or draft.loop.panels

    def _parts(self, draft: Draft) -> int:
        """Rows are cut for threads where panels are fewer than twice the threads and groups do not suffice."""
        if self.threads == 1 or draft.entries is None or draft.loop.groups >= self.threads:
            return 1
        return 1 if self._panels(draft) >= 2 * self.threads else self.threads

    def _chains(self) -> list[int]:
        """At the first step of each chain: how many follow."""
        chain = [0] * len(self.drafts)
        first = 0
        inside: set[str] = set()
        for i, draft in enumerate(self.drafts):
            head = self.drafts[first]
            reads = {draft.x, draft.r} & inside
            packs = draft.window is not None and draft.x in inside
            joins = (
                i > 0
                and draft.loop == head.loop
                and self._panels(draft) == self._panels(head)
                and self.parts[i] == self.parts[first] == 1
                and not (draft.alone or head.alone or packs)
                and bool(reads or self._shares(i, first))
            )
            if joins:
                chain[first] += 1
            else:
                first, inside = i, set()
            inside.add(draft.y)
        return chain

    def _shares(self, i: int, first: int) -> bool:
        """Whether a later step of the same chain could read what this one makes: a shortcut beside a block."""
        made = {d.y for d in self.drafts[first:i]} | {self.drafts[i].y}
        later = self.drafts[i + 1 : i + 2]
        return any(d.window is None and {d.x, d.r} <= made for d in later)

    def _heads(self) -> list[int]:
        heads, i = [], 0
        while i < len(self.drafts):
            heads.append(i)
            i += 1 + self.chain[i]
        return heads

    def _regions(self) -> list[tuple[int, int, int, bool]]:
        """First step, last step, groups, whether threads share groups."""
        regions: list[tuple[int, int, int, bool]] = []
        for i in range(len(self.drafts)):
            grid = self.drafts[i].loop
            if i == 0 or grid.images != self.drafts[i - 1].loop.images:
                regions.append((i, i + 1, grid.groups, 1 < self.threads <= grid.groups))
            else:
                regions[-1] = (regions[-1][0], i + 1, *regions[-1][2:])
        return regions

    # --- where values lie ---

    def _places(self) -> dict[tuple[int, str], tuple[int, int, int, int]]:
        """For every step and value: offset, group, panel and thread strides."""
        chain_of, region_of = [0] * len(self.drafts), [0] * len(self.drafts)
        for k, head in enumerate(self._heads()):
            for i in range(head, head + 1 + self.chain[head]):
                chain_of[i] = k
        for k, (first, last, *_) in enumerate(self.regions):
            region_of[first:last] = [k] * (last - first)
        seen: dict[str, list[int]] = {}
        for i, draft in enumerate(self.drafts):
            for name in {draft.x, draft.y, draft.r} - {None, *self.users}:
                seen.setdefault(str(name), []).append(i)
        shared: dict[str, Need] = {}
        private: dict[str, Need] = {}  # of each thread, which may be anywhere in a region that threads share by groups
        strides: dict[str, tuple[int, int]] = {}
        for name, where in seen.items():
            value = self.section.values[name]
            regions = {region_of[i] for i in where}
            by_group = self.regions[region_of[where[0]]][3]
            first, last = chain_of[where[0]], chain_of[where[-1]]
            if first == last and not any(self.drafts[i].alone for i in where):
                strides[name] = (0, 0)
                private[name] = Need(value.panel_bytes, first, last)
            elif len(regions) == 1:
                strides[name] = (0, value.panel_bytes)
                (private if by_group else shared)[name] = Need(value.group_bytes, first, last)
            else:
                images = max(self.drafts[i].loop.images * self.drafts[i].loop.groups for i in where)
                strides[name] = (value.group_bytes, value.panel_bytes)
                first = min(chain_of[self.regions[k][0]] for k in regions)
                last = max(chain_of[self.regions[k][1] - 1] for k in regions)
                shared[name] = Need(value.group_bytes * -(-images // value.grid.images), first, last)
        scratch = max((packed_bytes(d) + d.room for d in self.drafts), default=0)
        strides[SCRATCH] = (0, 0)
        private[SCRATCH] = Need(scratch, 0, len(self.drafts))
        offsets, size = arrange(shared)
        own, each = arrange(private)
        offsets |= {name: size + offset for name, offset in own.items()}
        self.size = size + each * self.threads
        found: dict[tuple[int, str], tuple[int, int, int, int]] = {}
        for i, draft in enumerate(self.drafts):
            for name in {draft.x, draft.y, draft.r, SCRATCH} - {None, *self.users}:
                group, panel = strides[str(name)]
                thread = each if name in private else 0
                if name != SCRATCH and not draft.alone:
                    # A step for many images reads many groups of a value whose groups have fewer.
                    group *= draft.loop.images // self.section.values[str(name)].grid.images
                found[i, str(name)] = (offsets[str(name)], group, panel, thread)
        return found

    def _place(
        self, i: int, name: str | None, places: dict[tuple[int, str], tuple[int, int, int, int]]
    ) -> native.Place:
        if name is None:
            return native.Place()
        if name in self.users:
            return native.Place(0, 0, 0, 0, 1 + self.users.index(name), 0)
        vectors = 0 if name == SCRATCH else self.section.values[name].grid.stride
        return native.Place(*places[i, name], 0, vectors)

    # --- structures ---

    def _address(self, data: Any) -> int:
        self._keep.append(data)
        if isinstance(data, Tensor):
            return data.data_ptr()
        return ct.addressof(data)

    def _fill(self, i: int, draft: Draft, places: dict[tuple[int, str], tuple[int, int, int, int]]) -> None:
        step = self.steps[i]
        step.kind, step.image = native.KINDS.index(draft.kind), packed_bytes(draft)
        step.panels, step.parts, step.chain = self._panels(draft), 1, 0
        step.high = 255
        for name, number in draft.numbers.items():
            setattr(step, name, number)
        for name, data in draft.arrays.items():
            setattr(step, name, self._address(data.contiguous()))
        step.x, step.y, step.r = (self._place(i, name, places) for name in (draft.x, draft.y, draft.r))
        step.scratch = self._place(i, SCRATCH, places)
        step.counts = self._address(torch.tensor(draft.loop.counts, dtype=torch.uint8))
        if draft.window:
            step.packed = draft.window.packed
            windows, moves, indices = self._program(
                draft.window, self.section.values[draft.x].panel_bytes, self.section.values[draft.x].grid.panel
            )
            step.windows, step.moves, step.indices = map(self._address, (windows, moves, indices))

    def _program(self, window: Program, panel: int, vectors: int) -> tuple[Any, Any, Tensor]:
        """In bytes, for a source whose panels have so many."""
        key = (id(window), panel)
        if key not in self._programs:

            def bytes_of(v: int) -> int:
                return v // vectors * panel + v % vectors * VECTOR

            moves = [(to, mode, bytes_of(v), mask, index) for to, mode, v, mask, index in window.moves]
            windows = [(bytes_of(base), first, last) for base, first, last in window.panels]
            lanes = window.indices or ((0,) * 16,)
            indices = torch.tensor(lanes, dtype=torch.int32 if len(lanes[0]) == 16 else torch.int16)
            self._programs[key] = native.array(native.Window, windows), native.array(native.Move, moves), indices
        return self._programs[key]

    # --- choices ---

    def _measure(self) -> None:
        workspace = native.aligned(self.library, self.size)
        workspace.zero_()
        buffers = self._buffers(workspace, [workspace] * len(self.users))
        for i, draft in enumerate(self.drafts):
            if draft.entries is None:
                continue
            key = self.choices.key(draft, self.threads)
            if key not in self.choices.best:
                self.choices.best[key] = self._best(i, draft, buffers)
            best = self.choices.best[key]
            self._choose(i, best, self.choices.keep(draft, best.form))

    def _best(self, i: int, draft: Draft, buffers: Any) -> Choice:
        tried = candidates(draft, self.library.widest)
        times = dict.fromkeys(tried, float("inf"))
        region = (native.Region * 1)(native.Region(i, i + 1, 1, 0))
        for turn in range(ROUNDS):
            least = min(times.values())
            for choice in tried:
                if turn and times[choice] > 1.2 * least:
                    continue
                self._choose(i, choice, self.choices.entries(draft, choice.form))
                times[choice] = min(times[choice], self.library.time(region, self.steps, buffers, 3)[i])
        return min(tried, key=lambda choice: times[choice])

    def _choose(self, i: int, choice: Choice, entries: Entries) -> None:
        step = self.steps[i]
        parts = entries.parts(self.parts[i])
        form = choice.form
        step.kind = native.KINDS.index("few8" if form.few else self.drafts[i].kind)
        step.paired, step.slices, step.parts = int(form.paired), form.slices, len(parts) // form.slices
        step.steps = entries.steps
        rows = native.array(native.Part, parts)
        step.rows = ct.addressof(rows)
        step.entries, step.lengths = entries.words.data_ptr(), entries.lengths.data_ptr()
        self._chosen[i] = rows, entries
        for count in range(1, MOST + 1):
            pieces = walk(count, choice.piece)
            step.walk[count][:] = (pieces + [0] * MOST)[: MOST + 1]

    # --- runs ---

    def _buffers(self, workspace: Tensor, arrays: Sequence[Tensor]) -> Any:
        pointers = [workspace.data_ptr(), *(a.data_ptr() for a in arrays)]
        return (ct.c_void_p * len(pointers))(*pointers)

    def run(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], pool: int | None = None) -> None:
        """Contiguous float32 tensors of the section's inputs and outputs; the pool has as many threads as the plan."""
        with self._workspace() as workspace:
            buffers = self._buffers(workspace, [*inputs, *outputs])
            self.library.run(self._region_array, self.steps, buffers, pool)

    def times(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], runs: int) -> dict[str, float]:
        """The least CPU time by operation, on one thread. Names of chains that share one are together."""
        with self._workspace() as workspace:
            buffers = self._buffers(workspace, [*inputs, *outputs])
            least = self.library.time(self._region_array, self.steps, buffers, runs)
        found: list[tuple[list[str], float]] = []
        for head in self._heads():
            names, seconds = [d.name for d in self.drafts[head : head + 1 + self.chain[head]]], least[head]
            shared = [other for other in found if not set(names).isdisjoint(other[0])]
            for other in shared:
                found.remove(other)
                names, seconds = other[0] + names, other[1] + seconds
            found.append((names, seconds))
        return {" + ".join(dict.fromkeys(names)): seconds for names, seconds in found}

    def notes(self) -> list[Note]:
        """What was decided for every step, in the order in which they run."""
        found = []
        for i, draft in enumerate(self.drafts):
            choice = self.choices.best.get(self.choices.key(draft, self.threads)) if draft.entries else None
            blocks = self._chosen[i][1].blocks if choice else 0
            work = blocks * draft.loop.vectors * draft.loop.groups
            if choice and choice.form.few:
                work = blocks * draft.loop.batch * draft.loop.width // ROWS
            limit = work / self.library.peaks[int(draft.kind.removeprefix("sparse"))] if choice else 0.0
            found.append(Note(draft.name, draft.kind, draft.loop.images, blocks, limit, choice))
        return found

    @contextmanager
    def _workspace(self) -> Iterator[Tensor]:
        with self._lock:
            workspace = self._free.pop() if self._free else None
        if workspace is None:
            workspace = native.aligned(self.library, self.size)
        try:
            yield workspace
        finally:
            with self._lock:
                self._free.append(workspace)
