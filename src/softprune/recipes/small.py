"""Each method on data that everybody has: CIFAR-10 folders (minutes on a GPU), digits (seconds on a CPU).

`data` of the CIFAR-10 recipes is a folder with train/ and test/ class folders: write `data=/path/to/cifar10`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from softprune.recipes.config import Config
from softprune.recipes.recipe import Methods, Recipe, family

CIFAR10 = Config(
    network="resnet18_cifar",
    data="cifar10",
    epochs=30,
    batch=512,
    lr=0.4,
    warmup=3,
    momentum=0.9,
    nesterov=True,
    weight_decay=5e-4,
    precision="bf16-mixed",
    compile=True,
    workers=0,
)
DIGITS = Config(network="digits_resnet", data="digits", epochs=40, batch=64, lr=0.1, weight_decay=1e-4, workers=0)

CIFAR10_MEASURED = {  # JPEG of quality 75, the mean of three seeds or six; docs/results.md
    "dense": "90.05%",
    "slats": "89.6% at 97.9% sparsity; final=0.03 gives 90.1% at 91.2%",
    "lats": "89.6% at 97.9% sparsity; final=0.03 gives 90.0% at 91.2%",
    "pgh-0.1": "89.6% at 97.8% sparsity",
    "pgh-1e-5": "89.5% at 97.7% sparsity",
    "pgh-1e-10": "89.4% at 97.7% sparsity",
    "pgh-0": "final=0.03 gives 90.2% at 90.4% sparsity, final=0.1 88.5% at 98.5%",
    "sine": "89.5% at 98.4% sparsity",
    "linear": "with weight_decay=0, 87.6% at 96.0% sparsity",
    "log2": "with weight_decay=0, 88.2% at 95.3% sparsity",
    "str": "88.5% at 97.9% sparsity",
    "str-gs": "88.4% at 97.7% sparsity",
    "gpo": "88.8% at 97.8% sparsity",
}
DIGITS_MEASURED = {  # seed 0
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


def methods(
    final: float, init: float, decay: float, shared_decay: float, blend_decay: float, expect: Mapping[str, str]
) -> Methods:
    """Every method of the paper, with a final threshold D and a starting s that suit the problem.

    One s for all layers has the gradients of all of them, and takes more decay. GPO's b needs a decay of its own in a
    short run: while k is small but not zero, batch normalisation amplifies what a dead layer still lets through, and
    the network would miss it when k is dropped.
    """
    trained = {"init": init, "threshold_decay": decay}
    settings: dict[str, dict[str, Any]] = {
        "dense": {"method": "dense"},
        "slats": {"method": "slats", "final": final},
        "lats": {"method": "lats", "final": final},
        "pgh-0.1": {"method": "pgh", "final": final, "beta": 0.1},
        "pgh-1e-5": {"method": "pgh", "final": final, "beta": 1e-5},
        "pgh-1e-10": {"method": "pgh", "final": final, "beta": 1e-10},
        "pgh-0": {"method": "init", "final": final / 2},
        "sine": {"method": "sine", "final": final},
        "linear": {"method": "linear", "final": final},
        "log2": {"method": "log2", "final": final},
        "str": {"method": "str", **trained},
        "str-gs": {"method": "str-gs", **trained, "threshold_decay": shared_decay},
        "gpo": {"method": "gpo", **trained, "blend_decay": blend_decay},
    }
    return {name: (values, expect.get(name, "not measured yet")) for name, values in settings.items()}


RECIPES: list[Recipe] = [
    *family(
        "cifar10",
        CIFAR10,
        methods(0.09, init=-20.0, decay=1.5e-3, shared_decay=1.4e-2, blend_decay=2e-2, expect=CIFAR10_MEASURED),
        reproduces="the paper's comparison, in small: ResNet-18 on CIFAR-10",
        cost="about a minute on one H200",
    ),
    *family(
        "digits",
        DIGITS,
        methods(0.3, init=-8.0, decay=0.02, shared_decay=0.02, blend_decay=0.1, expect=DIGITS_MEASURED),
        reproduces="the paper's comparison, in miniature: a residual network on scikit-learn's digits",
        cost="under a minute on two CPU cores",
    ),
]
