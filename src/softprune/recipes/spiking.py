"""Spiking networks: SEW ResNet-18 with the paper's hyperparameters (App. H, last table), and smaller ones.

T = 4 time steps, integrate-and-fire neurons, blocks joined by ADD; the first and the last layer are pruned too. They
need `pip install 'softprune[snn]'`.
"""

from __future__ import annotations

from softprune.recipes.config import Config
from softprune.recipes.recipe import Methods, Recipe, family

IMAGENET = Config(
    network="sew_resnet18",
    data="imagenet",
    epochs=320,
    batch=256,
    lr=0.1,
    lr_curve="epoch-cosine",
    momentum=0.9,
    weight_decay=0.0,
    precision="bf16-mixed",
    compile=True,
    workers=16,
)
CIFAR10 = Config(
    network="sew_resnet18_cifar",
    data="cifar10",
    epochs=60,
    batch=256,
    lr=0.1,
    warmup=1,
    momentum=0.9,
    weight_decay=0.0,
    precision="bf16-mixed",
    compile=True,
    workers=0,
)
DIGITS = Config(network="sew_digits", data="digits", epochs=20, batch=32, lr=0.1, weight_decay=0.0, workers=0)

IMAGENET_METHODS: Methods = {
    "dense": ({"method": "dense"}, "63.18% top-1, as published for the network (Fang et al. 2021)"),
    "slats": (
        {"method": "slats", "final": 1.0},
        "62.30% top-1 at 71.18% sparsity; final=10 gives 53.74% at 92.57% (App. I)",
    ),
    "sine": (
        {"method": "sine", "final": 0.6},
        "61.11% top-1 at 76.06% sparsity; final=3 gives 52.97% at 90.62% (App. I)",
    ),
}

SHORT = "not measured with 60 epochs; with epochs=10"  # docs/results.md, the mean of three seeds


def methods(slats: tuple[float, str], sine: tuple[float, str]) -> Methods:
    """Dense, S-LATS and sine, with final thresholds D that suit the problem, and what they end at."""
    return {
        "dense": ({"method": "dense"}, "the accuracy to compare with"),
        "slats": ({"method": "slats", "final": slats[0]}, slats[1]),
        "sine": ({"method": "sine", "final": sine[0]}, sine[1]),
    }


RECIPES: list[Recipe] = [
    *family(
        "sew_resnet18",
        IMAGENET,
        IMAGENET_METHODS,
        reproduces="SEW ResNet-18 on ImageNet (App. H, third table)",
        cost="not measured; about T = 4 times a ResNet-18's epochs, 320 of them",
    ),
    *family(
        "sew_cifar10",
        CIFAR10,
        methods(
            slats=(0.05, f"{SHORT} 80.3% at 90.8% sparsity; dense 79.1%"),
            sine=(0.05, f"{SHORT} 79.6% at 92.5% sparsity"),
        ),
        reproduces="the paper's spiking network, in small: SEW ResNet-18 on CIFAR-10",
        cost="3.6 s an epoch on one H200, about 4 minutes in all",
    ),
    *family(
        "sew_digits",
        DIGITS,
        methods(slats=(0.6, "98.6% at 94.3% sparsity; dense 98.8%"), sine=(0.3, "97.6% at 93.5% sparsity")),
        reproduces="the paper's spiking network, in miniature, on scikit-learn's digits",
        cost="under a minute on two CPU cores",
    ),
]
