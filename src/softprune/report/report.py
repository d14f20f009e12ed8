"""What came out: sparsity layer by layer and in total, with everything that was counted and left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from softprune.kernels.sharding import local, totals
from softprune.pruner.pruner import Pruner
from softprune.report import markdown
from softprune.selection import is_weight, matches, multiplying, unwrap

_last_seen: WeakKeyDictionary[Pruner, dict[str, Tensor]] = WeakKeyDictionary()  # one bit for each weight


@dataclass(frozen=True)
class Layer:
    """One pruned parameter. ``left`` and ``returned`` count weights that became zero, and that stopped being
    zero, since the report before; None in a first report and where there is no pruner."""

    name: str
    shape: tuple[int, ...]
    parameters: int
    zeros: int
    threshold: float | None = None
    left: int | None = None
    returned: int | None = None

    @property
    def sparsity(self) -> float:
        return self.zeros / self.parameters if self.parameters else 0.0


@dataclass(frozen=True)
class Report:
    """Sparsity of the pruned parameters; ``not_pruned`` gives the sizes of all the others: those of the model, or, in
    the report of a pruner, which knows no model, those of the optimizer.

    Prints as a table; ``to_dict()`` for machines, ``to_markdown()`` for documents.
    """

    layers: tuple[Layer, ...]
    not_pruned: Mapping[str, int]
    step: int | None = None
    penalty: float | None = None

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
    def left(self) -> int | None:
        """How many weights became zero since the last report of this pruner; None if there was none."""
        return _sum(layer.left for layer in self.layers)

    @property
    def returned(self) -> int | None:
        """How many came back since then."""
        return _sum(layer.returned for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {
            "step": self.step,
            "penalty": self.penalty,
            "sparsity": self.sparsity,
            "parameters": self.parameters,
            "zeros": self.zeros,
            "left": self.left,
            "returned": self.returned,
            "zeroed": list(self.zeroed),
            "not_pruned": dict(self.not_pruned),
            "layers": [
                {**asdict(layer), "shape": list(layer.shape), "sparsity": layer.sparsity} for layer in self.layers
            ],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The report that ``to_dict`` wrote."""
        names = [field.name for field in fields(Layer)]
        layers = (Layer(**{**{n: row[n] for n in names}, "shape": tuple(row["shape"])}) for row in values["layers"])
        return cls(tuple(layers), values["not_pruned"], values["step"], values["penalty"])

    def to_markdown(self) -> str:
        """A table of the layers, and what is to be said below it."""
        head, *rows = self._rows()
        return f"{markdown.table(head, rows, words=2)}\n\n" + "\n".join(f"- {line}" for line in self._footer())

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
            for row in rows
        ]
        rule = "-" * len(lines[0])
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1], *self._footer()])

    def _rows(self) -> list[list[str]]:
        """Head, layers, total; columns that no layer fills are left out."""
        total_row = Layer("total", (), self.parameters, self.zeros, None, self.left, self.returned)
        columns: dict[str, Callable[[Layer], str]] = {
            "layer": lambda x: x.name,
            "shape": lambda x: "×".join(map(str, x.shape)),
            "parameters": lambda x: f"{x.parameters:,}",
            "zeros": lambda x: f"{x.zeros:,}",
            "sparsity": lambda x: f"{x.sparsity:.2%}",
            "threshold": lambda x: "" if x.threshold is None else f"{x.threshold:.4g}",
            "left": lambda x: "" if x.left is None else f"{x.left:,}",
            "came back": lambda x: "" if x.returned is None else f"{x.returned:,}",
        }
        used = {head: cell for head, cell in columns.items() if head == "shape" or any(cell(x) for x in self.layers)}
        return [list(used), *([cell(x) for cell in used.values()] for x in (*self.layers, total_row))]

    def _footer(self) -> list[str]:
        others = sum(self.not_pruned.values())
        everything = self.parameters + others
        lines = [
            f"{self.sparsity:.2%} of {self.parameters:,} pruned parameters are zero; {others:,} parameters in "
            f"{_several(len(self.not_pruned), 'tensor')} are not pruned "
            f"({self.zeros / max(1, everything):.2%} of all {everything:,})."
        ]
        if self.zeroed:
            lines.append(f"Nothing is left of {_several(len(self.zeroed), 'layer')}: {', '.join(self.zeroed)}.")
        if self.step is not None:
            penalty = "" if self.penalty is None else f"; the last step implied an L1 penalty of {self.penalty:.4g}"
            lines.append(f"After {_several(self.step, 'step')}{penalty}.")
        return lines


def summarize(source: Pruner | nn.Module) -> Report:
    """Report on a pruner, or on a model alone: every weight that multiplies is counted then.

    Called again on the same pruner, the report also says how many weights left (became zero) and came back
    since: while the threshold rises, hidden weights go on learning, and some grow faster than it.

    >>> layer = nn.Linear(4, 2, bias=False)
    >>> with torch.no_grad(): _ = layer.weight.copy_(torch.eye(2, 4))
    >>> print(summarize(layer))
    layer   shape  parameters  zeros  sparsity
    ------------------------------------------
    weight  2×4             8      6    75.00%
    ------------------------------------------
    total                   8      6    75.00%
    75.00% of 8 pruned parameters are zero; 0 parameters in 0 tensors are not pruned (75.00% of all 8).
    """
    if isinstance(source, Pruner):
        return _of_pruner(source)
    if not isinstance(source, nn.Module):
        raise TypeError(f"`summarize` takes a Pruner or a model. Got {type(source).__name__}.")
    model = unwrap(source)
    names, params = multiplying(model), dict(model.named_parameters())
    layers = tuple(
        Layer(name, tuple(p.shape), p.numel(), _count(local(p) == 0, p)) for name, p in params.items() if name in names
    )
    return Report(layers, {name: p.numel() for name, p in params.items() if name not in names})


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
    thresholds, penalty = pruner.threshold, pruner.penalty
    before = _last_seen.get(pruner, {})
    seen: dict[str, Tensor] = {}
    layers = []
    for name, w in pruner.weights():
        p = pruner.params[name]
        alive, left, returned = w != 0, None, None
        if name in before:
            was = _unpack(before[name], alive)
            left, returned = _count(was & ~alive, p), _count(alive & ~was, p)
        seen[name] = _pack(alive)
        d = thresholds[name] if isinstance(thresholds, dict) else thresholds
        layers.append(Layer(name, tuple(p.shape), p.numel(), _count(~alive, p), d, left, returned))
    _last_seen[pruner] = seen
    known = penalty if isinstance(penalty, float) and math.isfinite(penalty) else None
    return Report(tuple(layers), _not_pruned(pruner), pruner.step, known)


def _not_pruned(pruner: Pruner) -> dict[str, int]:
    """Sizes of what the optimizer trains and nobody prunes; numbered where the optimizer knows no names."""
    known = {id(p) for p in (*pruner.params.values(), *pruner.trained())}
    sizes: dict[str, int] = {}
    for i, group in enumerate(pruner.optimizer.param_groups):
        numbered = [f"group {i} parameter {n}" for n in range(len(group["params"]))]
        for name, p in zip(group.get("param_names", numbered), group["params"], strict=True):
            if id(p) not in known:
                sizes[name] = p.numel()
    return sizes


def _count(mask: Tensor, p: Tensor) -> int:
    return int(totals(mask.sum().reshape(1), [p]))


def _pack(mask: Tensor) -> Tensor:
    """Eight booleans in a byte."""
    bits = nn.functional.pad(mask.flatten().to(torch.uint8), (0, -mask.numel() % 8)).view(-1, 8)
    return (bits << torch.arange(8, dtype=torch.uint8, device=mask.device)).sum(1, dtype=torch.uint8)


def _unpack(packed: Tensor, like: Tensor) -> Tensor:
    bits = packed.to(like.device).unsqueeze(1) >> torch.arange(8, dtype=torch.uint8, device=like.device)
    return (bits & 1).bool().flatten()[: like.numel()].view_as(like)


def _several(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
