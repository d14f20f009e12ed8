"""Every method on CIFAR-10: ResNet-18, a minute on a GPU; and MobileNet-V1.

`data` is a folder with class folders in train/ and test/: write `data=/path/to/cifar10`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from softprune.recipes.comparison import methods, patterns
from softprune.recipes.config import Config
from softprune.recipes.recipe import Methods, Recipe, family

BASE = Config(
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
MEASURED = {  # JPEG of quality 75, the mean of three seeds or six; docs/results.md
    "dense": "90.05%",
    "target": "with epochs=15, 87.8% at 98% sparsity, 88.4% at 95%, 86.2% at 99.5%",
    "gmp": "with epochs=15 start=2 arrive=0.7222, 87.3% at 98% sparsity, 88.1% at 95%, 84.3% at 99.5%",
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
PATTERNS: dict[str, dict[str, Any]] = {
    "channels": {"target": 0.5, "count": "multiplications"},
    "block4": {"target": 0.9},
}
GROUPED = {  # three seeds; docs/guides/patterns.md
    "channels": "with epochs=15, 88.3% with half of the multiplications; target=0.7 gives 87.5%, target=0.9 86.3%",
    "block4": "with epochs=15, 88.3% at 90% sparsity; target=0.8 gives 88.2%, target=0.95 88.0%",
}
MOBILE = {  # one seed
    "dense": "with epochs=15, 87.98%",
    "target": "with epochs=15, 87.65% at 90% sparsity; target=0.8 gives 87.63%, target=0.95 87.14%",
    "channels": "with epochs=15, 87.54% with half of the multiplications; target=0.7 gives 87.06%",
    "block4": "with epochs=15, 86.98% at 90% sparsity; target=0.8 gives 87.74%, target=0.95 86.21%",
}
MOBILENET: Methods = {
    "dense": ({"method": "dense"}, MOBILE["dense"]),
    "target": ({"method": "target", "target": 0.9}, MOBILE["target"]),
}
RECIPES: list[Recipe] = [
    *family(
        "cifar10",
        BASE,
        methods(0.09, target=0.98, init=-20.0, decay=1.5e-3, shared_decay=1.4e-2, blend_decay=2e-2, expect=MEASURED),
        reproduces="the paper's comparison, in small: ResNet-18 on CIFAR-10",
        cost="about a minute on one H200",
    ),
    *family(
        "cifar10",
        BASE,
        patterns(PATTERNS, GROUPED),
        reproduces="what the paper does not try: groups of weights of ResNet-18 on CIFAR-10",
        cost="about two minutes on one H200",
    ),
    *family(
        "mobilenet_cifar10",
        replace(BASE, network="mobilenet_v1_cifar"),
        MOBILENET | patterns(PATTERNS, MOBILE),
        reproduces="what the paper does not try: MobileNet-V1 on CIFAR-10",
        cost="about two minutes on one H200",
    ),
]
