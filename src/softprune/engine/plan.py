"""A quantized network that runs: sections by the kernels, the rest by torch, for any batch size.

What a batch size needs is made at its first use. Calls may come from several threads at once: each has its own
workspace, one of them has the plan's threads, the others run on their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from softprune.engine import native
from softprune.engine.choices import Choices
from softprune.engine.compiled import Compiled
from softprune.engine.graph import Graph
from softprune.engine.lower import Torch, first, sections
from softprune.engine.quantized import Quantized
from softprune.errors import ArgumentError

Fallback = Callable[..., Tensor]  # of an operation and its inputs, in floats


class Plan:
    """``plan(x)`` gives the outputs of the graph.

    Args:
        net: what is run.
        fallback: runs an operation that no kernel has: ``fallback(operation, *inputs)``.
        threads: of one call.
        library: a variant of the kernels; None: the fastest.
        operations: names of those that kernels may run; None: all that they can.
        chains: whether steps hand on panel by panel; without, every operation has a time of its own.
    """

    def __init__(
        self,
        net: Quantized,
        fallback: Fallback,
        threads: int = 1,
        library: native.Library | None = None,
        operations: Iterable[str] | None = None,
        chains: bool = True,
    ) -> None:
        self.net, self.fallback = net, fallback
        self.library = library or native.load()
        self.operations = None if operations is None else frozenset(operations)
        self.threads = native.Threads(self.library, threads)
        self.choices, self.chains = Choices(self.library), chains
        self._made: dict[int, list[Compiled | Torch]] = {}
        self._lock = threading.Lock()

    def prepare(self, batch: int) -> list[Compiled | Torch]:
        """The sections for a batch size."""
        with self._lock:
            if batch not in self._made:
                found = sections(self.net, batch, self.operations)
                self._made[batch] = [
                    s
                    if isinstance(s, Torch)
                    else Compiled(s, self.library, self.threads.count, self.choices, self.chains)
                    for s in found
                ]
            return self._made[batch]

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self._run(inputs, None)

    def times(self, *inputs: Tensor, runs: int = 10) -> dict[str, float]:
        """The least CPU time of every operation in seconds, on one thread. What runs in a chain is put together."""
        found: dict[str, float] = {}
        self._run(inputs, lambda section, given, outputs: found.update(section.times(given, outputs, runs)))
        return found

    def precisions(self, batch: int) -> dict[str, str]:
        """Of the operations that kernels run."""
        compiled = [made.section for made in self.prepare(batch) if isinstance(made, Compiled)]
        return {draft.name: section.precision.value for section in compiled for draft in section.drafts}

    def limits(self, batch: int) -> dict[str, float]:
        """By operation, the seconds that its instructions need at least."""
        found: dict[str, float] = {}
        for section in self.prepare(batch):
            for note in section.notes() if isinstance(section, Compiled) else ():
                found[note.operation] = found.get(note.operation, 0.0) + note.limit
        return found

    def _run(self, inputs: tuple[Tensor, ...], measure: Callable[..., None] | None) -> tuple[Tensor, ...]:
        values = checked(self.net.graph, inputs)
        batch = values[self.net.graph.inputs[0]].shape[0]
        for section in self.prepare(batch):
            if isinstance(section, Torch):
                op = section.operation
                with torch.no_grad():
                    values[op.name] = self.fallback(op, *(values[name] for name in op.inputs))
                continue
            given = [self._given(name, values[name], batch) for name in section.section.inputs]
            made = [torch.empty(self._shape(name, batch)) for name in section.section.outputs]
            with self.threads.borrow() as pool:
                section.run(given, made, pool)
            if measure:
                measure(section, given, made)
            values.update(zip(section.section.outputs, made, strict=True))
        return tuple(values[name] for name in self.net.graph.outputs)

    def _given(self, name: str, x: Tensor, batch: int) -> Tensor:
        """What kernels read: they would read beyond a smaller tensor."""
        if tuple(x.shape) != (wanted := self._shape(name, batch)):
            raise ArgumentError(
                f"`{name}` has the shape {tuple(x.shape)} at a batch of {batch}, where the example's would make it "
                f"{wanted}. Compile the network with an example of {batch}."
            )
        return x.float().contiguous()

    def _shape(self, name: str, batch: int) -> tuple[int, ...]:
        return first(self.net.graph, name, batch), *self.net.graph.shapes[name][1:]


def checked(graph: Graph, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """The inputs by name, floats in float32, if the network takes them."""
    names = graph.inputs
    if len(inputs) != len(names):
        raise ArgumentError(f"This network takes {len(names)} tensors. Got {len(inputs)}.")
    for name, x in zip(names, inputs, strict=True):
        wanted = graph.shapes[name][1:]
        if not isinstance(x, Tensor) or x.dim() != 1 + len(wanted) or x.shape[1:] != wanted or not x.shape[0]:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            shape = ", ".join(map(str, ("N", *wanted)))
            raise ArgumentError(f"The input must be a tensor of shape ({shape}) with N >= 1. Got {got}.")
    if len({x.shape[0] for x in inputs}) > 1:
        raise ArgumentError("All inputs must have the same batch size.")
    if graph.batch is not None and len(inputs[0]) != graph.batch:
        raise ArgumentError(
            f"This network was compiled for batches of {graph.batch} alone, since its forward pass fixes the number. "
            f"Got {len(inputs[0])}. Compile it with an example of so many, or give it {graph.batch} at a time."
        )
    return dict(zip(names, graph.typed([x.detach().cpu() for x in inputs]), strict=True))
