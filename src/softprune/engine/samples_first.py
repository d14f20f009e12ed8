"""Layers read their tokens sample by sample: N × T × C.

A layer acts on every token alone, so it does not matter to it in which order they come; to the kernels, and to whoever
looks for attention, it does. ``nn.MultiheadAttention`` puts tokens before samples (T × N × C), others make a matrix of
all tokens (N·T × C, or T·N × C). In what torch.export recorded, tokens are turned around before such a layer and back
after it; the way back moves behind whatever else acts on tokens alone, until it meets the next one there. Turned twice
is not turned, and no call is left.
"""

from __future__ import annotations

from typing import Any

from torch.export import ExportedProgram
from torch.fx import Graph, Node

from softprune.engine.aten import RESHAPES, aten, shape_of

RESHAPE, TURN = aten.reshape.default, aten.transpose.int
VIEWS = {RESHAPE, *RESHAPES}
ALONE = {  # what acts on every token alone
    *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.clone.default, aten.dropout.default),
    *(aten.relu.default, aten.gelu.default, aten.silu.default, aten.tanh.default, aten.sigmoid.default),
    *(aten.hardswish.default, aten.hardtanh.default, aten.clamp.default, aten.layer_norm.default),
}
Move = tuple[Any, ...]  # a call, and its arguments behind the first
TURNED: Move = (TURN, 0, 1)


def samples_first(program: ExportedProgram) -> None:
    calls = program.graph
    for node in calls.find_nodes(op="call_function", target=aten.addmm.default):
        _as_layer(calls, node)
    for node in calls.find_nodes(op="call_function", target=aten.linear.default):
        _turn(calls, node)
    for node in calls.nodes:
        if node.target in VIEWS:
            _merge(node)
        elif node.target is TURN:
            _cancel(node)
        elif node.target in ALONE:
            _turn_later(calls, node)
    calls.eliminate_dead_code()


def _as_layer(calls: Graph, node: Node) -> None:
    """Another way to write a layer."""
    bias, x, matrix = node.args
    assert isinstance(bias, Node)
    assert isinstance(matrix, Node)
    if node.kwargs or bias.meta["val"].dim() != 1:
        return
    with calls.inserting_before(node):
        node.args = x, _moved(calls, matrix, [TURNED]), bias
    node.target = aten.linear.default


def _turn(calls: Graph, node: Node) -> None:
    x = _read(node)
    *rows, inputs = _shape(x)
    outputs = _shape(node)[-1]
    free = [i for i, size in enumerate(rows) if not isinstance(size, int)]
    end = _unfolded(node) if len(rows) == len(free) == 1 else None
    before: list[Move] = []
    after: list[Move] = []
    if end is not None:  # a matrix, of which tokens of samples, or samples of tokens, are made again
        first, second, _ = _shape(end)
        if isinstance(second, int):
            before = [(RESHAPE, [-1, second, inputs])]
        else:
            before, after = [(RESHAPE, [first, -1, inputs]), TURNED], [TURNED]
    elif free == [1] and len(rows) == 2:
        before, after = [TURNED], [TURNED]
    elif len(free) == 1 and free != [0]:  # some other order
        before = [(RESHAPE, [-1, inputs])]
        after = [(RESHAPE, [*(size if isinstance(size, int) else -1 for size in rows), outputs])]
    else:
        return
    last = end or node
    users = list(last.users)
    with calls.inserting_before(node):
        moved = _moved(calls, x, before)
    node.update_arg(0, moved)
    shape = (*moved.meta["val"].shape[:-1], outputs)
    node.meta["val"] = node.meta["val"].new_empty(shape)
    with calls.inserting_after(node):
        back = _moved(calls, node, after)
    for user in users:
        user.replace_input_with(last, back)
    if end is not None:
        calls.erase_node(end)


def _unfolded(node: Node) -> Node | None:
    """The only reader of a matrix, if it makes samples and tokens of the rows."""
    readers = list(node.users)
    if len(readers) != 1 or readers[0].target not in VIEWS:
        return None
    sizes = _shape(readers[0])
    numbers = sum(isinstance(size, int) for size in sizes[:2])
    return readers[0] if len(sizes) == 3 and numbers == 1 and sizes[2] == _shape(node)[1] else None


def _moved(calls: Graph, x: Node, moves: list[Move]) -> Node:
    """``x`` after some calls, which are put where the graph inserts; behind each other."""
    for target, *arguments in moves:
        made = calls.call_function(target, (x, *arguments))
        made.meta = {**x.meta, "val": target(x.meta["val"], *arguments)}
        x = made
    return x


def _merge(node: Node) -> None:
    """The last shape counts, unless it was there before."""
    x = _read(node)
    while x.target in VIEWS:
        x = _read(x)
    node.target = RESHAPE
    node.update_arg(0, x)
    if _shape(x) == _shape(node):
        node.replace_all_uses_with(x)


def _cancel(node: Node) -> None:
    """What is turned twice is what it was."""
    x = _read(node)
    if _turned(x) and _turned(node):
        node.replace_all_uses_with(_read(x))


def _turn_later(calls: Graph, node: Node) -> None:
    """Vectors are the same for all tokens."""
    read = [x for x in node.all_input_nodes if len(_shape(x)) > 1]
    over_more = node.target is aten.layer_norm.default and len(node.args[1]) > 1  # type: ignore[arg-type]
    if not read or over_more or not all(map(_turned, read)) or len(_shape(node)) < 2:
        return
    for x in read:
        node.replace_input_with(x, _read(x))
    node.meta["val"] = node.meta["val"].transpose(0, 1)
    users = list(node.users)
    with calls.inserting_after(node):
        back = _moved(calls, node, [TURNED])
    for user in users:
        user.replace_input_with(node, back)


def _read(node: Node) -> Node:
    """What a call reads first."""
    x = node.args[0]
    assert isinstance(x, Node)
    return x


def _turned(x: Node) -> bool:
    return x.target is TURN and {*x.args[1:]} == {0, 1}


def _shape(x: Node) -> tuple[Any, ...]:
    return shape_of(x.meta["val"])
