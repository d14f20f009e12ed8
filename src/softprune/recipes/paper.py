"""The paper's tables of sparsities (App. I): network, final threshold D -> {layer: sparsity}."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from softprune.errors import ArgumentError, listing

TABLES: Mapping[str, tuple[str, ...]] = {
    "resnet50": ("slats-b256", "slats-b1024", "pgh-init"),
    "mobilenet_v1": ("slats",),
    "sew_resnet18": ("slats", "sine"),
}
"""The tables of each network; the first is the default."""


@dataclass(frozen=True, eq=False, repr=False)
class PaperBudget(Mapping[str, float]):
    """{layer: sparsity} of one column of one table, all as fractions.

    ``overall`` is the sparsity of all these layers together and ``accuracy`` top-1 on ImageNet, both as printed.
    """

    network: str
    table: str
    final: float
    overall: float
    accuracy: float
    layers: Mapping[str, float]

    def __getitem__(self, layer: str) -> float:
        return self.layers[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __repr__(self) -> str:
        return (
            f"PaperBudget({self.network}, {self.table}, D = {self.final:g}: {len(self)} layers, "
            f"{self.overall:.2%} sparse, {self.accuracy:.2%} top-1)"
        )


def budgets(network: str, final: float, *, table: str | None = None) -> PaperBudget:
    """The layer-wise sparsities that the paper reports for a network at a final threshold D.

    ==============  ================  ==========================================================
    network         table
    ==============  ================  ==========================================================
    "resnet50"      "slats-b256"      S-LATS, batch 256 (default)
    "resnet50"      "slats-b1024"     S-LATS, batch 1024
    "resnet50"      "pgh-init"        PGH, pruning at initialisation
    "mobilenet_v1"  "slats"           S-LATS (default)
    "sew_resnet18"  "slats"           S-LATS, a spiking network (default)
    "sew_resnet18"  "sine"            sine, a spiking network
    ==============  ================  ==========================================================

    Layers are named as in the networks of ``softprune.models`` and ``softprune.spiking.sew``; a weight is the layer's
    name and ".weight". The overall sparsity of "sew_resnet18", "slats", D = 7 is a misprint in the paper: 89.96%
    repeats the row of fc, while the layers make 90.58%.

    Args:
        network: "resnet50", "mobilenet_v1" or "sew_resnet18".
        final: D, one of those that the table has.
        table: which of the network's tables; the default when None.

    >>> budget = budgets("resnet50", 0.5)
    >>> budget
    PaperBudget(resnet50, slats-b256, D = 0.5: 54 layers, 95.53% sparse, 73.03% top-1)
    >>> budget["conv1"], budget.overall, budget.accuracy
    (0.679, 0.9553, 0.7303)
    """
    table = _table(network, table)
    columns = _columns(network, table)
    if final not in columns:
        raise ArgumentError(
            f"`budgets(final=...)` must be one of {listing(map(str, columns), most=20)} in table {table!r} of "
            f"{network}. Got {final!r}."
        )
    layers = dict(columns[final])
    accuracy, overall = layers.pop("Top-1 Acc. (%)"), layers.pop("Overall")
    return PaperBudget(network, table, float(final), overall, accuracy, layers)


def finals(network: str, *, table: str | None = None) -> tuple[float, ...]:
    """The final thresholds D that a table has.

    >>> finals("mobilenet_v1")
    (0.4, 0.6, 0.8, 0.9)
    """
    return tuple(_columns(network, _table(network, table)))


def _table(network: str, table: str | None) -> str:
    if network not in TABLES:
        raise ArgumentError(f"`budgets(network=...)` must be one of {listing(TABLES, most=20)}. Got {network!r}.")
    if table is None:
        return TABLES[network][0]
    if table not in TABLES[network]:
        raise ArgumentError(
            f"`budgets(table=...)` must be one of {listing(TABLES[network], most=20)} for {network}. Got {table!r}."
        )
    return table


@cache
def _columns(network: str, table: str) -> dict[float, dict[str, float]]:
    """D -> {row: fraction}."""
    text = files("softprune.recipes").joinpath("tables", f"{network}-{table}.csv").read_text(encoding="utf-8")
    (_, *heads), *rows = csv.reader(text.splitlines())
    return {
        float(head): {name: round(float(values[column]) / 100, 6) for name, *values in rows}
        for column, head in enumerate(heads)
    }
