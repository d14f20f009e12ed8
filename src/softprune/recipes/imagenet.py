"""ResNet-50 and MobileNet-V1 on ImageNet, with the paper's hyperparameters (App. H).

Thresholds are those of the budget tables; `softprune frontier` walks along them. `data` is a folder with train/
and val/: write `data=/path/to/imagenet`.
"""

from __future__ import annotations

from dataclasses import replace

from softprune.recipes.config import Config
from softprune.recipes.recipe import Methods, Recipe, family

RESNET50 = Config(
    network="resnet50",
    data="imagenet",
    epochs=100,
    batch=256,
    lr=0.256,
    lr_curve="epoch-cosine",
    warmup=5,
    momentum=0.875,
    weight_decay=3.0517578125e-05,
    label_smoothing=0.1,
    precision="bf16-mixed",
    compile=True,
    workers=16,
)
MOBILENET = replace(RESNET50, network="mobilenet_v1")

_SLATS_256 = "76.57 ± 0.15% top-1 at 79.95% sparsity; final=0.5 gives 73.03% at 95.53% (Tab. 2, Tab. 3)"
_CURVE = "about S-LATS's accuracy at equal sparsity, sparse sooner: pruning ends at {} of training (Fig. 4)"

METHODS: Methods = {
    "dense": ({"method": "dense"}, "76.9% top-1"),
    "slats": ({"method": "slats", "final": 0.1}, _SLATS_256),
    "slats-b1024": (
        {"method": "slats", "final": 0.1, "batch": 1024, "lr": 0.512},
        "76.61 ± 0.25% top-1 at 79.00% sparsity; final=0.475 gives 74.29% at 95.01% (Tab. 3)",
    ),
    "lats": ({"method": "lats", "final": 0.1}, "76.53% top-1 at 79.97% sparsity (Tab. 2)"),
    "pgh-0.1": ({"method": "pgh", "final": 0.1, "beta": 0.1}, _CURVE.format("74%")),
    "pgh-1e-5": ({"method": "pgh", "final": 0.1, "beta": 1e-5}, _CURVE.format("38%")),
    "pgh-1e-10": ({"method": "pgh", "final": 0.1, "beta": 1e-10}, _CURVE.format("23%")),
    "pgh-0": (
        {"method": "init", "final": 0.1},
        "74.69% top-1 at 87.16% sparsity, no layer erased; final=0.15 erases 27 layers: 62.22% at 95.64% (Tab. 4)",
    ),
    "sine": ({"method": "sine", "final": 0.5}, "72.42% top-1 at 95.72% sparsity (App. C.3)"),
    "linear": ({"method": "linear", "final": 0.5}, "59.79% top-1 at 98.46% sparsity (App. C.3)"),
    "log2": ({"method": "log2", "final": 0.5}, "64.74% top-1 at 98.05% sparsity (App. C.3)"),
    "str": (
        {"method": "str", "init": -3200.0},
        "Tab. 3 has STR at 74.31% top-1 and 90.23% sparsity, without its s: init is to be tuned",
    ),
    "str-gs": (
        {"method": "str-gs", "init": -200.0},
        "Tab. 3 has STR-GS at 74.13% top-1 and 89.54% sparsity, without its s: init is to be tuned",
    ),
    "gpo": (
        {"method": "gpo", "init": -3200.0},
        "that of STR, which it becomes once k is 0 (App. C.2); the paper has no accuracy of its own",
    ),
    "str-sine": (
        {"method": "sine", "final": 1e-3, "gradient": "subgradient"},
        "71.51% top-1 at 94.14% sparsity: STR's gradient, a schedule's threshold (App. C.3)",
    ),
    "str-linear": (
        {"method": "linear", "final": 1e-3, "gradient": "subgradient"},
        "69.85% top-1 at 95.41% sparsity (App. C.3)",
    ),
    "str-log2": (
        {"method": "log2", "final": 1e-3, "gradient": "subgradient"},
        "68.55% top-1 at 95.95% sparsity (App. C.3)",
    ),
}
NO_DECAY: Methods = {
    f"{name}-nodecay": ({**settings, "weight_decay": 0.0}, f"the ablation without weight decay (App. F.2) of {name}")
    for name, (settings, _) in METHODS.items()
    if name in ("dense", "slats", "lats", "pgh-0.1", "pgh-1e-5", "pgh-1e-10", "pgh-0", "sine", "linear", "log2")
}
MOBILENET_METHODS: Methods = {
    "dense": ({"method": "dense"}, "71.95% top-1"),
    "slats": ({"method": "slats", "final": 0.4}, "68.25 ± 0.19% top-1 at 81.84% sparsity; final=0.9: 64.93% at 89.08%"),
    "str": (
        {"method": "str", "init": -100.0},
        "App. E has STR at 68.35% top-1 and 75.28% sparsity, without its s: init is to be tuned",
    ),
}

RECIPES: list[Recipe] = [
    *family(
        "resnet50",
        RESNET50,
        {**METHODS, **NO_DECAY},
        reproduces="ResNet-50 on ImageNet (App. H, first table)",
        cost="5.3 h on one H200 at a compiled bf16 step's 6,800 images/s (docs/benchmarks.md), if the data keep up",
    ),
    *family(
        "mobilenet_v1",
        MOBILENET,
        MOBILENET_METHODS,
        reproduces="MobileNet-V1 on ImageNet (App. E, App. H, second table)",
        cost="bound by the data pipeline on one GPU",
    ),
]
