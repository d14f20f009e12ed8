"""A module becomes a graph: torch.export records it, ``aten.TABLE`` names its parts, torch keeps the rest.

    parameters, buffers and what is made of them alone    constants
    what has an entry in the table                        an operation
    copies, dropout                                       nothing
    everything else                                       programs that torch runs, as large as they can be

>>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
>>> [type(operation).__name__ for operation in graph(network, torch.zeros(1, 3, 8, 8)).operations]
['Convolution', 'Affine', 'Apply']
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node
from torch.fx.node import map_arg

from softprune.engine.aten import TABLE, Aten, is_copy, shape_of, value_of
from softprune.engine.graph import (
    Add,
    Apply,
    Concat,
    Flatten,
    GlobalMean,
    Graph,
    Multiply,
    Norm,
    Opaque,
    Operation,
    Softmax,
)
from softprune.engine.opaque import Program, Slot
from softprune.engine.programs import programs
from softprune.engine.run_torch import run
from softprune.engine.samples_first import samples_first
from softprune.errors import ArgumentError, ArgumentTypeError

# What is worth an operation beside a layer only, not between calls that torch runs anyway.
LIGHT = (Add, Apply, Concat, Flatten, GlobalMean, Multiply, Norm, Softmax)


def graph(model: nn.Module, example: Tensor | tuple[Tensor, ...] | dict[str, Tensor]) -> Graph:
    """What ``model`` computes in evaluation, for any batch where that is possible.

    Args:
        model: in float32 or float64, on the CPU. It is left as it was.
        example: one input, all of them, or all by name. Every size but the batch is that of the example.
    """
    args, kwargs = arguments(example)
    _check(model, (*args, *kwargs.values()))
    with _evaluation(model):
        program = _export(model, args, kwargs)
        return Conversion(model, program).graph((*args, *kwargs.values()))


class Conversion:
    """From an exported program to a graph.

    Attributes:
        constants: the nodes whose values are known.
        sources: what a node stands for, where it is a copy.
        names: of every node that is computed, as the user knows it.
        operations: those of the nodes that have some; the last, in ``makers``, makes the node's value.
    """

    def __init__(self, model: nn.Module, program: ExportedProgram) -> None:
        self.model, self.program = model, program
        samples_first(program)
        self.nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        self.constants = dict(_known(program))
        self.inputs = [node for node in _user_inputs(program) if isinstance(node.meta["val"], Tensor)]
        self.sources: dict[Node, Node] = {}
        self.names: dict[Node, str] = {}
        self.operations: dict[Node, tuple[Operation, ...]] = {}
        self.makers: dict[Node, Operation] = {}

    def graph(self, example: tuple[Tensor, ...]) -> Graph:
        for node in self.inputs:
            self.names[node] = self._name(node)
        for node in self.nodes:
            self._read(node)
        self._keep_together()
        outputs = self._outputs()
        operations: list[Operation] = []
        parts = programs(self.nodes, outputs, self.operations, self.names, self.resolve)
        for node in self.nodes:
            operations += self.operations.get(node, ())
            operations += [parts[node]] if node in parts else []
        for node in outputs:
            if node in self.constants and node not in self.names:
                self.names[node] = self._name(node)
                constant = Program(0, (self.constants[node],), (), Slot(0))
                operations.append(Opaque(self.names[node], (), "constant", constant))
        names = tuple(self.names[node] for node in outputs)
        result = Graph(tuple(self.names[node] for node in self.inputs), _needed(operations, names), names, {})
        shapes: dict[str, tuple[int, ...]] = {}
        run(result, *example, see=lambda name, value: shapes.update({name: tuple(value.shape)}))
        values = (*result.inputs, *(operation.name for operation in result.operations))
        return replace(
            result,
            shapes={name: shapes[name] for name in values},
            batch=None if _takes_any_batch(self.program) else example[0].shape[0],
            whole=tuple(name for name, x in zip(result.inputs, example, strict=True) if not x.is_floating_point()),
            flags=tuple(name for name, x in zip(result.inputs, example, strict=True) if x.dtype is torch.bool),
        )

    def _outputs(self) -> list[Node]:
        """The nodes whose values the module returns; anything but tensors is left out."""
        last = next(node for node in self.program.graph.nodes if node.op == "output")
        specs = self.program.graph_signature.output_specs
        found = [node for spec, node in zip(specs, last.args[0], strict=True) if spec.kind is OutputKind.USER_OUTPUT]
        tensors = [node for node in found if isinstance(node, Node) and isinstance(value_of(node), Tensor)]
        return [self.sources.get(node, node) for node in tensors]

    def resolve(self, node: Node) -> Any:
        """Its value if that is known, else the node that it is a copy of."""
        return self.constants[node] if node in self.constants else self.sources.get(node, node)

    def _read(self, node: Node) -> None:
        """Decide what a call is: a constant, a copy, an operation, or torch's."""
        args, kwargs = map_arg((node.args, node.kwargs), self.resolve)
        if not _nodes((args, kwargs)) and _is_pure(node.target):
            with torch.no_grad():
                self.constants[node] = node.target(*args, **kwargs)  # type: ignore[operator]
            return
        value = value_of(node)
        if node.target is operator.getitem and args[0] in self.operations:
            self.sources[node] = args[0]  # type: ignore[assignment]
            return
        several = isinstance(node.meta.get("val"), list | tuple)
        if not isinstance(value, Tensor) or (several and {user.args[1] for user in node.users} != {0}):
            return
        first = args[0] if args else None
        if isinstance(first, Node) and is_copy(node.target, first, shape_of(value), value.dtype):
            self.sources[node] = first
            return
        name = self._name(node)
        floats = all(value_of(read).is_floating_point() for read in _nodes((args, kwargs)) if read in self.names)
        if node.target in TABLE and value.is_floating_point() and floats:
            bound = _bind(node.target, args, kwargs)
            built = TABLE[node.target](Aten(name, bound, shape_of(value), value.dtype, self.names, self.makers))
            if built is not None:
                self.operations[node] = built if isinstance(built, tuple) else (built,)
                self.makers[node] = self.operations[node][-1]
        if node in self.operations or not several:
            self.names[node] = name

    def _keep_together(self) -> None:
        """Light operations with no layer beside them, directly or over others of their kind, are torch's too."""
        makers = {operation.name: node for node, made in self.operations.items() for operation in made}
        light = {node for node, made in self.operations.items() if isinstance(made[-1], LIGHT)}
        beside: dict[Node, set[Node]] = {node: set() for node in self.operations}
        for node, made in self.operations.items():
            for name in (name for operation in made for name in operation.inputs if name in makers):
                if makers[name] is not node:
                    beside[node].add(makers[name])
                    beside[makers[name]].add(node)
        kept = [node for node in self.operations if node not in light]
        reached = set(kept)
        while kept:
            for other in beside[kept.pop()] - reached:
                reached.add(other)
                kept.append(other)
        for node in light - reached:
            del self.operations[node]

    def _name(self, node: Node) -> str:
        """The module that makes the value, as the user wrote it; with the call where the module makes several."""
        call = str(getattr(node.target, "_opname", node.name)).strip("_")
        stack = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
        path = stack[-1].partition("@")[0] if stack and not stack[-1].startswith("_empty") else ""
        try:
            leaf = path != "" and not any(self.model.get_submodule(path).children())
        except AttributeError:
            leaf = False
        base = path if leaf else ".".join(part for part in (path, call) if part)
        taken, name, number = set(self.names.values()), base, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        return name


def _needed(operations: list[Operation], outputs: tuple[str, ...]) -> tuple[Operation, ...]:
    """Without those whose values nobody reads."""
    read, kept = set(outputs), []
    for operation in reversed(operations):
        if operation.name in read:
            kept.append(operation)
            read.update(operation.inputs)
    return tuple(reversed(kept))


def arguments(example: Any) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    if isinstance(example, Tensor):
        return (example,), {}
    tensors = list(example.values()) if isinstance(example, Mapping) else example
    if not isinstance(tensors, list | tuple) or not tensors or not all(isinstance(x, Tensor) for x in tensors):
        raise ArgumentTypeError(
            "`compile(model, example)` takes one tensor, a tuple of tensors, or a dict of tensors by the names of "
            f"forward's arguments. Got {type(example).__name__}."
        )
    return ((), dict(example)) if isinstance(example, Mapping) else (tuple(example), {})


def _check(model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in [*tensors.items(), *((f"input {n}", x) for n, x in enumerate(inputs))]:
        if tensor.device.type != "cpu":
            raise ArgumentError(f"The engine runs on the CPU. `{name}` is on {tensor.device}: write `.cpu()` first.")
        if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
            raise ArgumentError(f"The engine takes float32. `{name}` is {tensor.dtype}: write `.float()` first.")
        if 0 in tensor.shape[:1] and name.startswith("input "):
            raise ArgumentError(f"The example must hold at least one sample. Got a tensor of {tuple(tensor.shape)}.")
        if tensor.layout != torch.strided:
            raise ArgumentError(f"The engine takes ordinary tensors. `{name}` is {tensor.layout}: `.to_dense()` it.")


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    """Dropout is off and batch normalisation uses what it learned; afterwards every module is in its mode again."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _export(model: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> ExportedProgram:
    """For any batch; for that of the example alone where the module fixes it."""
    several = [torch.cat((x, x)) if x.dim() and len(x) == 1 else x for x in (*args, *kwargs.values())]
    batch = [{0: Dim.AUTO} if x.dim() else None for x in several]
    given = (args, kwargs)
    free = (tuple(several[: len(args)]), dict(zip(kwargs, several[len(args) :], strict=True)))
    sizes = _by_argument(model, batch[: len(args)], dict(zip(kwargs, batch[len(args) :], strict=True)))
    for (positional, named), shapes in ((free, sizes), (given, None)):
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's, about itself
                program = torch.export.export(model, positional, named, dynamic_shapes=shapes, strict=False)
                program = program.run_decompositions({})
        except Exception as error:
            if shapes is not None:
                continue
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ArgumentError(
                f"Cannot compile `{type(model).__name__}`. This is because torch.export cannot record it: {first} "
                "Make the part that depends on data or on Python objects a function of tensors, or compile a module "
                "inside it."
            ) from error
        if shapes is None or _takes_any_batch(program):
            break
    changed = {**program.graph_signature.buffers_to_mutate}
    if changed:
        raise ArgumentError(
            f"Cannot compile `{type(model).__name__}`. This is because it writes to its buffer "
            f"`{next(iter(changed.values()))}` in every call, and an engine keeps no state. Return it instead."
        )
    return program


def _by_argument(model: nn.Module, positional: list[Any], named: dict[str, Any]) -> dict[str, Any] | None:
    """Values by the names of forward's arguments, those of ``*args`` and ``**kwargs`` together; None if they do not
    fit, which the export will say."""
    try:
        return dict(inspect.signature(model.forward).bind(*positional, **named).arguments)
    except TypeError:
        return None


def _known(program: ExportedProgram) -> Iterator[tuple[Node, Any]]:
    """The values of parameters, buffers and constants, as they are now."""
    signature = program.graph_signature
    held = {**program.constants, **program.state_dict}
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    copies: dict[int, Tensor] = {}
    inputs = set(signature.user_inputs)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            tensor = held[names[node.name]]
            yield node, copies.setdefault(id(tensor), tensor.detach().clone())
        elif node.op == "placeholder" and node.name in inputs and not isinstance(node.meta["val"], Tensor):
            yield node, node.meta["val"]
        elif node.op == "get_attr":
            yield node, operator.attrgetter(str(node.target))(program.graph_module)


def _user_inputs(program: ExportedProgram) -> list[Node]:
    names = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in names]


def _takes_any_batch(program: ExportedProgram) -> bool:
    values = [node.meta["val"] for node in _user_inputs(program)]
    return any(not isinstance(size, int) for x in values if isinstance(x, Tensor) for size in shape_of(x)[:1])


def _bind(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, with the defaults of the schema."""
    schema = target._schema.arguments
    values = {argument.name: argument.default_value for argument in schema}
    return {**values, **{argument.name: value for argument, value in zip(schema, args, strict=False)}, **kwargs}


def _is_pure(target: Any) -> bool:
    """Whether equal arguments give equal results, so that the result is a constant."""
    return torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ())


def _nodes(tree: Any) -> list[Node]:
    found: list[Node] = []
    map_arg(tree, lambda node: found.append(node) or node)  # type: ignore[func-returns-value]
    return found
