"""Every method on scikit-learn's digits: a small residual network, seconds on a CPU, nothing to download."""

from __future__ import annotations

from typing import Any

from softprune.recipes.comparison import methods, patterns
from softprune.recipes.config import Config
from softprune.recipes.recipe import Recipe, family

BASE = Config(network="digits_resnet", data="digits", epochs=40, batch=64, lr=0.1, weight_decay=1e-4, workers=0)
MEASURED = {  # seed 0, one thread, torch 2.13 on a CPU
    "dense": "99.78%",
    "target": "99.33% at 95.00% sparsity",
    "gmp": "99.78% at 95.00% sparsity",
    "slats": "99.56% at 94.01% sparsity",
    "lats": "99.78% at 94.20% sparsity",
    "pgh-0.1": "99.33% at 92.62% sparsity",
    "pgh-1e-5": "100.00% at 89.75% sparsity",
    "pgh-1e-10": "99.33% at 88.71% sparsity",
    "pgh-0": "99.11% at 74.31% sparsity",
    "sine": "98.89% at 96.33% sparsity",
    "linear": "21.78% at 97.92% sparsity: the threshold still grows when nothing is learned any more",
    "log2": "48.44% at 97.28% sparsity: the threshold still grows when nothing is learned any more",
    "str": "99.11% at 96.05% sparsity",
    "str-gs": "99.33% at 84.47% sparsity",
    "gpo": "99.33% at 96.20% sparsity",
    "channels": "99.78% with 29.9% of the multiplications; target=0.5 gives 99.56% with 49.8%, target=0.9 96.89%, 9.3%",
    "block4": "99.33% at 90.00% sparsity",
}
PATTERNS: dict[str, dict[str, Any]] = {
    "channels": {"target": 0.7, "count": "multiplications"},
    "block4": {"target": 0.9},
}
COST = "under a minute on two CPU cores"
RECIPES: list[Recipe] = [
    *family(
        "digits",
        BASE,
        methods(0.3, target=0.95, init=-8.0, decay=0.02, shared_decay=0.02, blend_decay=0.1, expect=MEASURED),
        reproduces="the paper's comparison, in miniature: a residual network on scikit-learn's digits",
        cost=COST,
    ),
    *family(
        "digits",
        BASE,
        patterns(PATTERNS, MEASURED),
        reproduces="what the paper does not try, in miniature: groups of weights on scikit-learn's digits",
        cost=COST,
    ),
]
