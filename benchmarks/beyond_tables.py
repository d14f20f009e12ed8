"""Tables and pictures of what `benchmarks/beyond.py` ran: which prox, and when to arrive.

python benchmarks/beyond_tables.py            # reads docs/data/beyond, writes docs/results.md and README.md
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from beyond import CNN, DEFAULT, GPT, LONG, TABLES, VIT, Network
from drawing import ACCURACY, LOSS, Quantity, frontier, plots, save
from pages import IMAGES, README, RESULTS, fill
from results import Outcome, Results, Series
from softprune.report.markdown import table

POWERS, ARRIVALS = ("1", "1.5", "2", "3", "4", "inf"), ("0.25", "0.5", "0.75", "1")
NAMES = {p: f"p = {p}" for p in POWERS} | {"1": "p = 1, soft", "inf": "p = ∞, hard"}
MOMENTS = {"0.25": "at 25%", "0.5": "half-way", "0.75": "at 75%", "1": "at the end"}
BEFORE, NOW = ("1", "1", "identity"), DEFAULT
GRADIENTS = ("identity", "calm")
MARKS = {BEFORE: " (the default once)", NOW: " (**the default**)"}
FAR = 10.0  # from magnitude pruning: off the picture


@dataclass(frozen=True)
class Case:
    """A network: what is to be compared, and where."""

    network: Network
    title: str
    quantity: Quantity
    digits: int  # after the point
    short: tuple[float, ...]  # sparsities of the README
    hardest: float  # the sparsity at which every prox was tried

    def target(self, results: Results, power: str, arrive: str, gradient: str = "identity") -> Series:
        family, shared = self.network.family, self.network.shared
        return results.series("target", "target", family, power=power, arrive=arrive, gradient=gradient, **shared)

    def magnitude(self, results: Results) -> Series:
        return results.series("gmp", "target", self.network.family, **self.network.gmp, **self.network.shared)

    def dense(self, results: Results) -> list[Outcome]:
        return results.dense(self.network.family, **self.network.shared)

    def text(self, runs: Sequence[Outcome], count: bool = True) -> str:
        """Mean ± deviation, and of how many if there are several."""
        if not runs:
            return ""
        values = [self.quantity[1](run) for run in runs]
        mean = f"{statistics.fmean(values):.{self.digits}f}"
        if len(values) == 1 or not count:
            return mean
        return f"{mean} ± {statistics.stdev(values):.{self.digits}f} ({len(values)})"


CASES = {
    "gpt": Case(GPT, "GPT, source code", LOSS, 4, (0.9, 0.95, 0.98), 0.98),
    "vit": Case(VIT, "ViT, CIFAR-10", ACCURACY, 2, (0.9, 0.97), 0.97),
    "cifar10": Case(CNN, "ResNet-18, CIFAR-10", ACCURACY, 2, (0.95, 0.995), 0.995),
}
TWICE_AS_LONG = Case(LONG, "ResNet-18, 30 epochs", ACCURACY, 2, (), 0.995)


def every(case: Case, results: Results) -> str:
    """All that was run on a network."""
    series = {kind: case.target(results, *kind) for kind in sorted(product(POWERS, ARRIVALS, GRADIENTS), key=_order)}
    levels = sorted({level for one in series.values() for level in one.points})
    rows = [["dense", "", case.text(case.dense(results)), *[""] * (len(levels) - 1)]]
    rows += [["magnitude pruning", MOMENTS["0.75"], *_cells(case, case.magnitude(results), levels)]]
    rows += [[_name(*kind), MOMENTS[kind[1]], *_cells(case, one, levels)] for kind, one in series.items() if one.points]
    head = [case.quantity[0], "arrives", *(f"{100 * level:g}%" for level in levels)]
    return table(head, rows, words=2)


def _order(kind: tuple[str, str, str]) -> tuple[int, int, int]:
    """By arrival, p and gradient."""
    power, arrive, gradient = kind
    return ARRIVALS.index(arrive), POWERS.index(power), GRADIENTS.index(gradient)


def _name(power: str, arrive: str, gradient: str) -> str:
    calm = ", calm" if gradient == "calm" else ""
    return NAMES[power] + calm + MARKS.get((power, arrive, gradient), "")


def _cells(case: Case, series: Series, levels: Sequence[float]) -> list[str]:
    return [case.text(series.points.get(level, [])) for level in levels]


def chosen(case: Case, results: Results) -> dict[str, Series]:
    """The defaults, and what they are to be compared with."""
    return {
        "magnitude pruning": case.magnitude(results),
        "TargetSparsity once: soft, at the end": case.target(results, *BEFORE),
        "TargetSparsity: p = 4, at 75%, calm": case.target(results, *NOW),
    }


def overview(results: Results) -> str:
    """The README's table."""
    head, dense, rows = [""], ["dense"], {}
    for case in CASES.values():
        head += [f"{case.title.split(',')[0]} {100 * level:g}%" for level in case.short]
        dense += [case.text(case.dense(results), count=False)] * len(case.short)
        for name, series in chosen(case, results).items():
            row = rows.setdefault(name, [name])
            row += [case.text(series.points[level], count=False) for level in case.short]
    return table(head, [dense, *rows.values()])


def draw_frontiers(results: Results, images: Path) -> None:
    figure, panels = plots(len(CASES))
    for axes, case in zip(panels, CASES.values(), strict=True):
        frontier(axes, chosen(case, results), case.dense(results), case.quantity)
        axes.set_title(case.title)
    save(figure, "beyond", images)


def draw_powers(results: Results, images: Path) -> None:
    """At the sparsity at which every prox was tried; the legend tells what is off the picture."""
    figure, panels = plots(len(CASES))
    for axes, case in zip(panels, CASES.values(), strict=True):
        value = case.quantity[1]
        magnitude = statistics.fmean(map(value, case.magnitude(results).points[case.hardest]))
        for arrive in ARRIVALS:
            runs = {p: case.target(results, p, arrive).points.get(case.hardest) for p in POWERS}
            means = {p: statistics.fmean(map(value, found)) for p, found in runs.items() if found}
            near = {POWERS.index(p): mean for p, mean in means.items() if abs(mean - magnitude) < FAR}
            far = [f" ({NAMES[p]}: {mean:.0f})" for p, mean in means.items() if abs(mean - magnitude) >= FAR]
            axes.plot(list(near), list(near.values()), marker="o", ms=5, label=f"{MOMENTS[arrive]}{''.join(far)}")
        axes.axhline(magnitude, color="C7", lw=0.8, ls="--", label="magnitude pruning")
        axes.set_xticks(range(len(POWERS)), [p.replace("inf", "∞") for p in POWERS])
        axes.set(title=f"{case.title}, {100 * case.hardest:g}%", xlabel="p", ylabel=case.quantity[0])
        axes.legend(title="arrives", frameon=False, fontsize=8, alignment="left")
    save(figure, "powers", images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, default=TABLES)
    parser.add_argument("--images", type=Path, default=IMAGES)
    parser.add_argument("--pages", type=Path, nargs="+", default=[RESULTS, README])
    options = parser.parse_args()
    results = Results(options.tables)
    draw_frontiers(results, options.images)
    draw_powers(results, options.images)
    cases = {**CASES, "long": TWICE_AS_LONG}
    made = {f"beyond {name}": every(case, results) for name, case in cases.items()}
    fill(options.pages, {"beyond": overview(results), **made})


if __name__ == "__main__":
    main()
