"""What has no operation becomes programs for torch, as large as they can be with one result each.

A call belongs to the program that its readers belong to, if that is one; so nothing but the last call of a program is
read from outside, and no program waits for another that waits for it. Numbers (the batch) and tuples are no values of
a graph: each program that needs one computes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import SymInt, Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from softprune.engine.aten import RESHAPES, aten, value_of
from softprune.engine.graph import Opaque, Operation
from softprune.engine.opaque import Call, Program, Slot

QUIET = {"view", "reshape", "transpose", "permute", "expand", "unsqueeze", "squeeze", "slice", "select", "getitem"}


def programs(
    nodes: Sequence[Node],
    outputs: Sequence[Node],
    operations: Mapping[Node, Sequence[Operation]],
    names: Mapping[Node, str],
    resolve: Callable[[Node], Any],
) -> dict[Node, Opaque]:
    """The programs by the node whose value they make.

    Args:
        nodes: all calls in order.
        outputs: of the graph.
        operations: the nodes that need no program.
        names: of the nodes that are values.
        resolve: the value of a constant, else the node that a node stands for.
    """
    readers: dict[Node, set[Node | None]] = {node: set() for node in nodes}
    makers = {name: node for node, name in names.items() if resolve(node) is node}
    for node in reversed(nodes):
        if resolve(node) is not node:
            continue
        kept = names.get(node) is not None
        reads = inner(node, resolve)
        if node in operations:  # which may read what lies before a padding
            reads = [makers[name] for op in operations[node] for name in op.inputs if name in makers]
        for read in reads:
            if read in readers:
                readers[read] |= {node} if kept else readers[node]
    for node in outputs:
        if isinstance(node, Node) and node in readers:
            readers[node].add(None)
    lasts: dict[Node, Node] = {}  # the last call of the program that a call belongs to
    for node in reversed(nodes):
        if node in names and node not in operations and readers[node]:
            ends = {lasts.get(reader) if reader is not None else None for reader in readers[node]}
            end = ends.pop()
            lasts[node] = end if not ends and end is not None else node
    return {node: build(node, lasts, names, resolve) for node, last in lasts.items() if node is last}


def build(last: Node, lasts: Mapping[Node, Node], names: Mapping[Node, str], resolve: Callable[[Node], Any]) -> Opaque:
    """The program that ends with a call."""
    inputs: list[Node] = []
    calls: list[Node] = []

    def visit(node: Node) -> None:
        if node in calls or node in inputs:
            return
        if node in names and lasts.get(node) is not last:
            inputs.append(node)
            return
        for read in inner(node, resolve):
            visit(read)
        calls.append(node)

    visit(last)
    sized = {node: size_of(node, inputs) for node in calls}
    calls = needed(last, calls, sized, resolve)
    inputs = [node for node in inputs if any(node in read_by(call, sized, resolve) for call in calls)]

    held = [value for call in calls if sized[call] is None for value in map(resolve, call.all_input_nodes)]
    constants = list({id(value): value for value in held if isinstance(value, Tensor)}.values())
    slots: dict[Any, Slot] = {node: Slot(index) for index, node in enumerate(inputs)}
    slots |= {id(constant): Slot(len(inputs) + index) for index, constant in enumerate(constants)}

    def argument(node: Node) -> Any:
        value = resolve(node)
        if isinstance(value, Node):
            return slots[value]
        return slots[id(value)] if isinstance(value, Tensor) else value

    made = []
    for call in calls:
        size = sized[call]
        if size is not None:
            made.append(Call(aten.sym_size.int, (slots[size[0]], size[1]), {}))
        else:
            args, kwargs = map_arg((call.args, call.kwargs), argument)
            target: Any = call.target
            made.append(Call(RESHAPES.get(target, target), args, kwargs))
        slots[call] = Slot(len(inputs) + len(constants) + len(made) - 1)
    program = Program(len(inputs), tuple(constants), tuple(made), slots[last])
    return Opaque(names[last], tuple(names[node] for node in inputs), words(calls), program)


def inner(node: Node, resolve: Callable[[Node], Any]) -> list[Node]:
    """The computed nodes that a call reads."""
    return [value for value in map(resolve, node.all_input_nodes) if isinstance(value, Node)]


def size_of(node: Node, inputs: Sequence[Node]) -> tuple[Node, int] | None:
    """The input and the dimension whose size a number is; None if it is none or another."""
    number = node.meta.get("val")
    if not isinstance(number, SymInt):
        return None
    for read in inputs:
        for dim, size in enumerate(value_of(read).shape):
            if not isinstance(size, int) and size.node.expr == number.node.expr:
                return read, dim
    return None


def read_by(call: Node, sized: Mapping[Node, tuple[Node, int] | None], resolve: Callable[[Node], Any]) -> list[Node]:
    size = sized[call]
    return [size[0]] if size is not None else inner(call, resolve)


def needed(
    last: Node,
    calls: Sequence[Node],
    sized: Mapping[Node, tuple[Node, int] | None],
    resolve: Callable[[Node], Any],
) -> list[Node]:
    """The calls that the last one needs, once the sizes are read from the inputs."""
    read, kept = {last}, []
    for call in reversed(calls):
        if call in read:
            kept.append(call)
            read.update(read_by(call, sized, resolve))
    return kept[::-1]


def words(calls: Sequence[Node]) -> str:
    """What the calls are, in the user's words: without those that only move numbers, if there are others."""
    called = [
        str(getattr(call.target, "_opname", getattr(call.target, "__name__", call.target))).strip("_") for call in calls
    ]
    called = [name for name in called if name != "sym_size"]
    loud = [name for name in called if name not in QUIET]
    return ", ".join(dict.fromkeys(loud or called))
