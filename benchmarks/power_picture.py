"""Draws docs/images/power.png: the maps of ``PowerThreshold``, from soft to hard, and their penalties.

python benchmarks/power_picture.py
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

import softprune as sp

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "power.png"
POWERS = {1: "p = 1, soft", 1.5: "p = 1.5", 2: "p = 2", 3: "p = 3", math.inf: "p = ∞, hard"}
COLORS = ["#1f6f8b", "#4aa564", "#e08e0b", "#b5305a", "#444444"]


def main(image: Path = IMAGE) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    theta = torch.linspace(0, 3.5, 7001, dtype=torch.float64)
    left.plot(theta, theta, color="0.75", linewidth=1, linestyle="--", label="w = θ, no threshold")
    for (p, label), color in zip(POWERS.items(), COLORS, strict=True):
        w = sp.PowerThreshold(p)(theta, 1.0)
        if p == math.inf:
            w[(w == 0) & (theta >= 1)] = torch.nan  # it jumps
        left.plot(theta, w, color=color, label=label)
        right.plot(theta, sp.PowerThreshold(p).regularizer(theta, 1.0), color=color, label=label)
    left.set(title="the map", xlabel="hidden weight θ / d", ylabel="weight w / d", xlim=(0, 3.5), ylim=(-0.05, 3.5))
    right.set(
        title="the penalty it is the prox of", xlabel="weight |w| / d", ylabel="ρ(w) / d²", xlim=(0, 3.5), ylim=(0, 3.5)
    )
    left.legend(frameon=False, loc="upper left")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.savefig(image, dpi=150)


if __name__ == "__main__":
    main()
