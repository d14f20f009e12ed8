"""A network for one batch size -> sections: what the kernels run at one go, and what torch runs between.

A section is in one precision: what a network's own has no kernels for (attention in int16, say) may have some in fp32.
A value that leaves a section, or enters one, is floats; turning whole numbers into floats and back loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from softprune.engine import grids
from softprune.engine.graph import Convolution, Flatten, GlobalMean, Graph, Linear, Operation, Pool
from softprune.engine.quantized import Precision, Quantized
from softprune.engine.steps import Dialect, Draft, Element, Value, size_of
from softprune.engine.steps8 import Bytes
from softprune.engine.steps16 import Shorts
from softprune.engine.steps32 import Floats

DIALECTS: dict[Precision, tuple[type[Dialect], ...]] = {  # the first that knows an operation runs it
    Precision.INT8: (Bytes, Floats),
    Precision.INT16: (Shorts, Floats),
    Precision.FP32: (Floats,),
}


@dataclass(frozen=True, eq=False)
class Native:
    """``inputs`` and ``outputs``: names of values of the graph; the steps name them with a prefix."""

    precision: Precision
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    drafts: tuple[Draft, ...]
    values: dict[str, Value]


@dataclass(frozen=True, eq=False)
class Torch:
    """One operation that torch runs."""

    operation: Operation


def user(name: str, side: str) -> str:
    """The name of the user's array in a draft."""
    return f"{side}:{name}"


def first(net: Graph, name: str, batch: int) -> int:
    """The first dimension of a value, which is the batch, or a multiple of it: windows of a picture, say."""
    shape = net.shapes[name]
    return shape[0] * batch // net.shapes[net.inputs[0]][0] if shape else 1


def sections(net: Quantized, batch: int, allowed: Iterable[str] | None = None) -> list[Native | Torch]:
    """``allowed``: names of operations that the kernels may run; None: all that they can."""
    names = None if allowed is None else set(allowed)
    dialects = [make(net) for make in DIALECTS[net.precision]]

    def kind(op: Operation) -> tuple[Dialect | None, int]:
        """What a section has in common: who runs it, and the size of the batch."""
        mine = names is None or op.name in names
        dialect = next((d for d in dialects if mine and d.supports(op)), None)
        return dialect, first(net.graph, op.name, batch)

    found: list[Native | Torch] = []
    for (dialect, size), operations in groupby(net.graph.operations, kind):
        if dialect is None:
            found += map(Torch, operations)
        else:
            found.append(Lowering(dialect, size, list(operations)).section())
    return found


class Lowering:
    """Operations that follow one another -> drafts."""

    def __init__(self, dialect: Dialect, batch: int, operations: list[Operation]) -> None:
        self.dialect, self.net, self.batch, self.operations = dialect, dialect.net.graph, batch, operations
        made = {op.name for op in operations}
        used = dict.fromkeys(name for op in operations for name in op.inputs)
        self.inputs = tuple(name for name in used if name not in made)
        own = {id(op) for op in operations}
        self.outputs = tuple(
            op.name
            for op in operations
            if op.name in self.net.outputs or any(id(r) not in own for r in self.net.readers(op.name))
        )
        self.values: dict[str, Value] = {}
        self.conversions: list[Draft] = []
        self.reader = ""  # the operation whose drafts are being made
        self.alias: dict[str, str] = {}  # a flattened value -> the one it is made of
        self.images = self._images()

    def shape(self, name: str) -> tuple[int, ...]:
        return (self.batch, *self.net.shapes[name][1:])

    def _images(self) -> dict[str, int]:
        """How many images of each value share a vector: as each would like it, but never fewer than before a step.

        Then a group of a step reads whole groups. What is added or multiplied has the same; so has a gate, which
        otherwise could not be read by steps for single images.
        """
        names = {*self.inputs, *(op.name for op in self.operations)}
        lanes = self.dialect.lanes
        images = {n: grids.images_for(self.batch, *size_of(self.shape(n))[1:], lanes) for n in names}
        changed = True
        while changed:
            changed = False
            for op in self.operations:
                joined = not isinstance(op, Convolution | Linear | Pool | GlobalMean)
                for name in op.inputs:
                    same = joined or name in op.inputs[1:]
                    least = min(images[name], images[op.name])
                    if images[name] != least or (same and images[op.name] != least):
                        images[name] = least
                        if same:
                            images[op.name] = least
                        changed = True
        return images

    def value(self, name: str, element: Element | None = None) -> Value:
        """Made of what it is made of by itself; or of another element, then it is converted once for all."""
        name = self.alias.get(name, name)
        own = self.dialect.element(name)
        key = name if element in (None, own) else f"{name}:{element}"
        if key not in self.values:
            channels, height, width = size_of(self.shape(name))
            grid = grids.choose(self.batch, height, width, self.images[name], self.dialect.lanes)
            self.values[key] = Value(key, grid, channels, element or own)
            if key != name:
                self.conversions.append(self.dialect.converted(self.value(name), self.values[key], name, self.reader))
        return self.values[key]

    def section(self) -> Native:
        drafts = []
        for name in self.inputs:
            reader = next(op.name for op in self.operations if name in op.inputs)
            drafts.append(self.dialect.enter(user(name, "in"), self.value(name), self.shape(name), reader))
        for op in self.operations:
            self.reader = op.name
            if isinstance(op, Flatten):
                self.alias[op.name] = self.alias.get(op.inputs[0], op.inputs[0])
            else:
                drafts += self.dialect.drafts(op, self.value)
            if op.name in self.outputs:
                shape = self.shape(self.alias.get(op.name, op.name))  # a flattened value has the same numbers in a row
                drafts.append(self.dialect.leave(self.value(op.name), user(op.name, "out"), shape, op.name))
        ordered = tuple(self._in_order([*drafts, *self.conversions]))
        return Native(self.dialect.precision, self.inputs, self.outputs, ordered, self.values)

    def _in_order(self, left: list[Draft]) -> list[Draft]:
        """Steps for single images first where they can, so that steps for the same number of images are together."""
        ordered: list[Draft] = []
        known = {user(name, "in") for name in self.inputs}
        writers = {y: sum(d.y == y for d in left) for y in {d.y for d in left}}
        current = 1
        while left:
            ready = [d for d in left if all(n in known for n in (d.x, d.r) if n)]
            best = next((d for d in ready if d.loop.images == current), None)
            if best is None:
                best = min(ready, key=lambda d: d.loop.images)
                current = best.loop.images
            left.remove(best)
            ordered.append(best)
            writers[best.y] -= 1
            if writers[best.y] == 0:
                known.add(best.y)
        return ordered
