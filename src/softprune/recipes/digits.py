"""Every method on scikit-learn's digits: a small residual network, seconds on a CPU, nothing to download."""

from __future__ import annotations

from softprune.recipes.comparison import methods
from softprune.recipes.config import Config
from softprune.recipes.recipe import Recipe, family

BASE = Config(network="digits_resnet", data="digits", epochs=40, batch=64, lr=0.1, weight_decay=1e-4, workers=0)
MEASURED = {  # seed 0
    "dense": "99.56%",
    "slats": "99.78% at 94.01% sparsity",
    "lats": "100.00% at 94.11% sparsity",
    "pgh-0.1": "99.56% at 92.55% sparsity",
    "pgh-1e-5": "99.56% at 90.15% sparsity",
    "pgh-1e-10": "99.33% at 88.64% sparsity",
    "pgh-0": "98.67% at 74.12% sparsity",
    "sine": "99.11% at 96.45% sparsity",
    "linear": "25.56% at 97.84% sparsity: the threshold still grows when nothing is learned any more",
    "log2": "35.56% at 97.23% sparsity: the threshold still grows when nothing is learned any more",
    "str": "99.33% at 95.95% sparsity",
    "str-gs": "99.33% at 83.93% sparsity",
    "gpo": "99.33% at 96.04% sparsity",
}
RECIPES: list[Recipe] = family(
    "digits",
    BASE,
    methods(0.3, init=-8.0, decay=0.02, shared_decay=0.02, blend_decay=0.1, expect=MEASURED),
    reproduces="the paper's comparison, in miniature: a residual network on scikit-learn's digits",
    cost="under a minute on two CPU cores",
)
