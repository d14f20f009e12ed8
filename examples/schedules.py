"""Draw the threshold schedules, and beside each the L1 penalty that it implies under cosine annealing.

python examples/schedules.py [--out docs/images/schedules.png]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import softprune as sp

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "schedules.png"
T = 1000
LRS = [0.5 * (1 + math.cos(math.pi * t / T)) for t in range(T)]
SCHEDULES = {
    "S-LATS": sp.SLATS(final=1.0, steps=T),
    "PGH, β = 0.1": sp.PGH(final=1.0, steps=T, beta=0.1),
    "PGH, β = 1e-5": sp.PGH(final=1.0, steps=T, beta=1e-5),
    "sine": sp.Sine(final=1.0, steps=T),
    "linear": sp.Linear(final=1.0, steps=T),
    "log2": sp.Log2(final=1.0, steps=T),
}


def draw(path: Path) -> None:
    constant = 1 / sum(LRS)
    x = [t / T for t in range(T)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for name, schedule in SCHEDULES.items():
        width = 2.5 if name == "S-LATS" else 1.3
        left.plot(x, [schedule(t) for t in range(T)], lw=width, label=name)
        right.plot(x, [mu / constant for mu in sp.implied_penalty(schedule, LRS)], lw=width)
    left.set(title="threshold d(t) / D", xlabel="training done, t / T")
    right.set(
        title="implied L1 penalty μ(t), S-LATS = 1", xlabel="training done, t / T", yscale="log", ylim=(1e-3, 1e2)
    )
    left.legend(frameon=False, fontsize=9)
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlim(0, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=IMAGE)
    draw(parser.parse_args().out)


if __name__ == "__main__":
    main()
