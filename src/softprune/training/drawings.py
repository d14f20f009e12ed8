"""The paper's figures of thresholds: shapes, implied penalties, PGH, and the integral behind S-LATS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

import softprune as sp
from softprune.errors import ConfigError
from softprune.schedules.curves import Cosine
from softprune.training import plots
from softprune.training.entries import LrCurve
from softprune.training.names import LR_CURVES
from softprune.training.rate import Rate


def tabulate_and_draw(
    final: float, steps: int, epochs: int, names: Sequence[str], betas: Sequence[float], out: Path
) -> Iterator[str]:
    """Lines of a table for each learning-rate curve, and plots under ``out``."""
    if unknown := [name for name in names if name not in LR_CURVES]:
        raise ConfigError(f"`--lr` must name curves among {', '.join(LR_CURVES)}. Got {', '.join(unknown)}.")
    try:
        for name in names:
            yield from _curve(final, steps, epochs, LR_CURVES[name], betas, out)
        if "cosine" in names:
            yield _integral(final, epochs, out)
    except OSError as error:
        raise ConfigError(f"Cannot write to {out}: {error.strerror}. Choose another folder with `--out`.") from error


def _curve(final: float, steps: int, epochs: int, entry: LrCurve, betas: Sequence[float], out: Path) -> Iterator[str]:
    schedules = {
        "S-LATS": sp.SLATS(final, steps, lr=entry.curve),
        **{f"PGH {beta:g}": sp.PGH(final, steps, beta, lr=entry.curve) for beta in betas},
        "sine": sp.Sine(final, steps),
        "linear": sp.Linear(final, steps),
        "log2": sp.Log2(final, steps),
    }
    rate = Rate(entry.curve, steps, hold=max(1, steps // epochs) if entry.by_epoch else 1)
    lrs = [rate(t) for t in range(steps)]
    constant = final / sum(lrs)
    marks = sorted({round(steps * i / 4) for i in range(5)})
    yield f"learning rate: {entry.name}. Threshold d, then implied penalty divided by LATS's, after steps {marks}:"
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for label, schedule in schedules.items():
        penalties = [mu / constant if constant else 0.0 for mu in sp.implied_penalty(schedule, lrs)]
        left.plot(range(steps + 1), [schedule(t) for t in range(steps + 1)], label=label)
        right.plot(range(steps), penalties)
        d = "  ".join(f"{schedule(t):9.4g}" for t in marks)
        mu = "  ".join(f"{penalties[min(t, steps - 1)]:9.3g}" for t in marks)
        stop = f"   stops at {schedule.stop():.3f}" if isinstance(schedule, sp.PGH) else ""
        yield f"  {label:10}  {d}  |  {mu}{stop}"
    left.set(title="threshold d", xlabel="step")
    right.set(title="implied penalty μ, LATS = 1", xlabel="step", yscale="log", ylim=(1e-3, 1e3))
    left.legend(frameon=False, fontsize=8)
    yield _save(figure, out / f"{entry.name}.png")


def _integral(final: float, epochs: int, out: Path) -> str:
    """LATS by epochs is a sum of rectangles under the learning-rate curve; S-LATS is the area itself."""
    h = Cosine()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    left.bar(
        [n / epochs for n in range(epochs)], [h(n / epochs) for n in range(epochs)], 1 / epochs, align="edge", alpha=0.3
    )
    xs = [i / 500 for i in range(501)]
    left.plot(xs, [h(x) for x in xs])
    left.set(title="learning rate: rectangles (LATS) and area (S-LATS)", xlabel="training done")
    batches = 100
    exact, simple = sp.LATS.cosine(final, epochs, batches), sp.SLATS(final, epochs * batches)
    steps = range(epochs * batches + 1)
    right.plot([t / steps[-1] for t in steps], [exact(t) for t in steps], label="LATS")
    right.plot([t / steps[-1] for t in steps], [simple(t) for t in steps], label="S-LATS", ls="--")
    right.set(title="threshold d", xlabel="training done")
    right.legend(frameon=False)
    return _save(figure, out / "integral.png")


def _save(figure: Figure, path: Path) -> str:
    plots.save(figure, path)
    return f"  plot: {path}"
