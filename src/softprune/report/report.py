"""What came out: sparsity layer by layer and in total, with everything that was counted and left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from softprune.errors import ArgumentError, ArgumentTypeError
from softprune.kernels.sharding import local, sharding, total
from softprune.pruner.pruner import Pruner
from softprune.report import groups, markdown
from softprune.report.groups import Place
from softprune.report.masks import Mask
from softprune.selection import is_weight, kinds_left_alone, matches, unwrap

_FIELDS = ("name", "shape", "parameters", "zeros", "threshold", "dropped", "regrown", "groups", "dead")


@dataclass(frozen=True)
class Layer:
    """One pruned parameter. ``dropped`` and ``regrown`` count weights that became zero, and that stopped being zero,
    since an earlier report (``Report.since``); None where there is none to compare with. ``dead`` of its ``groups`` are
    zero; None where it has none of its own."""

    name: str
    shape: tuple[int, ...]
    parameters: int
    zeros: int
    threshold: float | None = None
    dropped: int | None = None
    regrown: int | None = None
    groups: int | None = None
    dead: int | None = None
    mask: Mask | None = field(default=None, repr=False, compare=False)

    @property
    def sparsity(self) -> float:
        return self.zeros / self.parameters if self.parameters else 0.0

    def since(self, earlier: Layer) -> Layer:
        if self.mask is None or earlier.mask is None:
            raise ArgumentError(
                "`Report.since` compares two reports that `summarize(pruner)` gave. Got one of a model, or one that "
                "was read from a file."
            )
        dropped, regrown = self.mask.changes(earlier.mask)
        return replace(self, dropped=dropped, regrown=regrown)

    def to_dict(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _FIELDS}, "shape": list(self.shape), "sparsity": self.sparsity}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        old = {"dropped": row.get("left"), "regrown": row.get("returned")}  # as they were called before November 2026
        values = {name: row.get(name, old.get(name)) for name in _FIELDS}
        return cls(**{**values, "shape": tuple(row["shape"])})


@dataclass(frozen=True)
class Report:
    """Sparsity of the pruned parameters; ``not_pruned`` gives the sizes of all the others: those of the model, or, in
    the report of a pruner alone, which knows no model, those of the optimizer.

    Prints as a table; ``to_dict()`` for machines, ``to_markdown()`` for documents. ``summarize`` makes one.

    Args:
        layers: the pruned parameters.
        not_pruned: {name: size} of all the others.
        step: completed optimizer steps; None where there is no pruner.
        penalty: the L1 penalty that the last step implied; None where parameters differ, the learning rate is zero, or
            there is no pruner.
        left_alone: {kind: parameters}, what ``not_pruned`` consists of: embeddings, norms, biases, the head of a
            language model; empty where no model is known.
        places: where groups with weights in several parameters lie, such as channels; empty where there are none.
    """

    layers: tuple[Layer, ...]
    not_pruned: Mapping[str, int]
    step: int | None = None
    penalty: float | None = None
    left_alone: Mapping[str, int] = field(default_factory=dict)
    places: tuple[Place, ...] = ()

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def zeros(self) -> int:
        return sum(layer.zeros for layer in self.layers)

    @property
    def sparsity(self) -> float:
        """Overall, of the pruned parameters."""
        return self.zeros / self.parameters if self.parameters else 0.0

    @property
    def zeroed(self) -> tuple[str, ...]:
        """The layers of which nothing is left."""
        return tuple(layer.name for layer in self.layers if layer.zeros == layer.parameters)

    @property
    def dropped(self) -> int | None:
        """How many weights became zero since the report that this one was compared with; None if it was not."""
        return _sum(layer.dropped for layer in self.layers)

    @property
    def regrown(self) -> int | None:
        """How many weights stopped being zero since then: hidden weights go on learning, and some outgrow d."""
        return _sum(layer.regrown for layer in self.layers)

    @property
    def groups(self) -> int | None:
        """How many groups there are; None where each weight has its own."""
        return _sum([*(layer.groups for layer in self.layers), *(place.groups for place in self.places)])

    @property
    def dead(self) -> int | None:
        """How many of them are dead: all of their weights are zero."""
        return _sum([*(layer.dead for layer in self.layers), *(place.dead for place in self.places)])

    def since(self, earlier: Report) -> Report:
        """This report with ``dropped`` and ``regrown``, counted since an earlier report of the same pruner.

        Args:
            earlier: what ``summarize`` gave then. It holds one bit for each weight.
        """
        if not isinstance(earlier, Report):
            raise ArgumentTypeError(f"`Report.since(earlier)` must be a report. Got {type(earlier).__name__}.")
        if [(layer.name, layer.shape) for layer in self.layers] != [(x.name, x.shape) for x in earlier.layers]:
            raise ArgumentError("`Report.since(earlier)` must be a report on the same parameters. Got others.")
        return replace(self, layers=tuple(map(Layer.since, self.layers, earlier.layers)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {
            "step": self.step,
            "penalty": self.penalty,
            "sparsity": self.sparsity,
            "parameters": self.parameters,
            "zeros": self.zeros,
            "dropped": self.dropped,
            "regrown": self.regrown,
            "groups": self.groups,
            "dead": self.dead,
            "zeroed": list(self.zeroed),
            "not_pruned": dict(self.not_pruned),
            "left_alone": dict(self.left_alone),
            "layers": [layer.to_dict() for layer in self.layers],
            "places": [place.to_dict() for place in self.places],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The report that ``to_dict`` wrote, also that of earlier versions."""
        layers = tuple(map(Layer.from_dict, values["layers"]))
        places = tuple(Place(**place) for place in values.get("places", ()))
        left_alone = values.get("left_alone", {})
        return cls(layers, values["not_pruned"], values["step"], values["penalty"], left_alone, places)

    def to_markdown(self) -> str:
        """A table of the layers, and the totals below it."""
        (head, *rows), (below, *places) = self._rows(), self._places()
        tables = [markdown.table(head, rows, words=2), *([markdown.table(below, places)] if self.places else [])]
        return "\n\n".join([*tables, "\n".join(f"- {line}" for line in self._footer())])

    def __str__(self) -> str:
        places = ["", *markdown.aligned(self._places()), ""] if self.places else []
        return "\n".join([*markdown.aligned(self._rows(), words=2), *places, *self._footer()])

    def _rows(self) -> list[list[str]]:
        """Head, layers, total; columns that no layer fills are left out."""
        blocks, dead = _sum(x.groups for x in self.layers), _sum(x.dead for x in self.layers)
        total_row = Layer("total", (), self.parameters, self.zeros, None, self.dropped, self.regrown, blocks, dead)
        columns: dict[str, Callable[[Layer], str]] = {
            "layer": lambda x: x.name,
            "shape": lambda x: "×".join(map(str, x.shape)),
            "parameters": lambda x: f"{x.parameters:,}",
            "zeros": lambda x: f"{x.zeros:,}",
            "sparsity": lambda x: f"{x.sparsity:.2%}",
            "threshold": lambda x: "" if x.threshold is None else f"{x.threshold:.4g}",
            "dropped": lambda x: "" if x.dropped is None else f"{x.dropped:,}",
            "regrown": lambda x: "" if x.regrown is None else f"{x.regrown:,}",
            "groups": lambda x: "" if x.groups is None else f"{x.groups:,}",
            "dead": lambda x: "" if x.dead is None else f"{x.dead:,}",
        }
        always = ("layer", "shape", "parameters", "zeros", "sparsity")
        used = {head: cell for head, cell in columns.items() if head in always or any(cell(x) for x in self.layers)}
        return [list(used), *([cell(x) for cell in used.values()] for x in (*self.layers, total_row))]

    def _places(self) -> list[list[str]]:
        """Head, places, total."""
        total_row = Place("total", sum(x.groups for x in self.places), sum(x.dead for x in self.places))
        return [
            ["place", "groups", "alive"],
            *([x.name, f"{x.groups:,}", f"{x.alive:,}"] for x in (*self.places, total_row)),
        ]

    def _footer(self) -> list[str]:
        others = sum(self.not_pruned.values())
        everything = self.parameters + others
        lines = [
            f"{self.sparsity:.2%} of {self.parameters:,} pruned parameters are zero; {others:,} parameters in "
            f"{_several(len(self.not_pruned), 'tensor')} are not pruned "
            f"({self.zeros / max(1, everything):.2%} of all {everything:,})."
        ]
        if self.groups is not None and self.dead is not None:
            lines.append(f"{self.dead:,} of {_several(self.groups, 'group')} are dead.")
        if self.left_alone:
            kinds = (f"{size:,} in {kind}" for kind, size in self.left_alone.items())
            lines.append(f"Left alone: {', '.join(kinds)}.")
        if self.zeroed:
            lines.append(f"Nothing is left of {_several(len(self.zeroed), 'layer')}: {', '.join(self.zeroed)}.")
        if self.step == 0:
            lines.append("No step of the optimizer was counted yet.")
        elif self.step is not None:
            penalty = "" if self.penalty is None else f"; the last step implied an L1 penalty of {self.penalty:.4g}"
            lines.append(f"After {_several(self.step, 'step')}{penalty}.")
        return lines


def summarize(source: Pruner | nn.Module, model: nn.Module | None = None) -> Report:
    """Report on a pruner, or on a model alone: all prunable weights are counted then.

    ``report.since(earlier)`` also says how many weights were dropped and regrown between two reports of a pruner.

    Args:
        source: a ``Pruner`` or a model.
        model: the model of the pruner, which tells what else there is, by name and kind. Without it, a report on a
            pruner counts what else the optimizer trains.

    >>> layer = nn.Linear(4, 2)
    >>> with torch.no_grad(): _ = layer.weight.copy_(torch.eye(2, 4))
    >>> print(summarize(layer))
    layer   shape  parameters  zeros  sparsity
    ------------------------------------------
    weight  2×4             8      6    75.00%
    ------------------------------------------
    total                   8      6    75.00%
    75.00% of 8 pruned parameters are zero; 2 parameters in 1 tensor are not pruned (60.00% of all 10).
    Left alone: 2 in biases.
    """
    if isinstance(source, Pruner):
        report = _of_pruner(source)
        return report if model is None else _with_the_rest(report, unwrap(model), _of_its_own(source, unwrap(model)))
    if not isinstance(source, nn.Module) or model is not None:
        raise ArgumentTypeError(f"`summarize` takes a Pruner (and its model), or a model. Got {type(source).__name__}.")
    source = unwrap(source)
    kinds = kinds_left_alone(source)
    pruned = {name: p for name, p in source.named_parameters() if name not in kinds}
    layers = tuple(Layer(name, tuple(p.shape), p.numel(), _count(local(p) == 0, p)) for name, p in pruned.items())
    return _with_the_rest(Report(layers, {}), source, pruned)


def _of_its_own(pruner: Pruner, model: nn.Module) -> set[str]:
    """The names in the model of what a pruner prunes or trains. By name too, since FSDP2 shows other tensors between a
    forward pass and the next step."""
    own = {id(p) for p in (*pruner.params.values(), *pruner.rule.trained)}
    shapes = {name: p.shape for name, p in pruner.params.items()}
    found = {name for name, p in model.named_parameters() if id(p) in own or shapes.get(name) == p.shape}
    if len(found) < len(shapes):
        raise ArgumentError("`summarize(pruner, model)` needs the model that is pruned. Got one without its weights.")
    return found


def _with_the_rest(report: Report, model: nn.Module, counted: Container[str]) -> Report:
    """The report with all other parameters of the model; their kinds in the order of size."""
    sizes = {name: p.numel() for name, p in model.named_parameters() if name not in counted}
    kinds, left_alone = kinds_left_alone(model), Counter[str]()
    for name, size in sizes.items():
        left_alone[kinds.get(name, "weights not selected")] += size
    return replace(report, not_pruned=sizes, left_alone=dict(left_alone.most_common()))


_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def summarize_tensors(tensors: Mapping[str, Tensor], exclude: Iterable[str] = ()) -> Report:
    """Report on weights by name, without a model, so that embeddings count as weights; batch statistics count as
    nothing, since nobody trains them."""
    exclude = list(exclude)
    tensors = {name: t for name, t in tensors.items() if name.rpartition(".")[2] not in _STATISTICS}
    pruned = {name: t for name, t in tensors.items() if is_weight(name, t) and not matches(name, exclude)}
    layers = tuple(Layer(name, tuple(t.shape), t.numel(), int((t == 0).sum())) for name, t in pruned.items())
    return Report(layers, {name: t.numel() for name, t in tensors.items() if name not in pruned})


@torch.no_grad()
def _of_pruner(pruner: Pruner) -> Report:
    thresholds, penalties = pruner.threshold, list(pruner.penalty.values())
    partition, layers = groups.partition_of(pruner.prox), []
    for name, w in pruner.weights():
        p, alive = pruner.params[name], w != 0
        number, dead = groups.in_layer(partition, alive, p)
        layer = Layer(name, tuple(p.shape), p.numel(), _count(~alive, p), thresholds[name], mask=Mask(alive, p))
        layers.append(replace(layer, groups=number, dead=dead))
    shared = math.isfinite(penalties[0]) and all(math.isclose(penalty, penalties[0]) for penalty in penalties)
    penalty = penalties[0] if shared else None
    places = groups.in_places(partition, (w for _, w in pruner.weights()))
    return Report(tuple(layers), _not_pruned(pruner), pruner.step, penalty, places=places)


def _not_pruned(pruner: Pruner) -> dict[str, int]:
    """Sizes of what the optimizer trains and nobody prunes; by index where the optimizer knows no names."""
    known = {id(p) for p in (*pruner.params.values(), *pruner.rule.trained)}
    sizes: dict[str, int] = {}
    for i, group in enumerate(pruner.optimizer.param_groups):
        numbered = [f"group {i} parameter {n}" for n in range(len(group["params"]))]
        for name, p in zip(group.get("param_names", numbered), group["params"], strict=True):
            if id(p) not in known:
                sizes[name] = p.numel()
    return sizes


def _count(mask: Tensor, p: Tensor) -> int:
    return int(total(mask.sum(), sharding(p)))


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
