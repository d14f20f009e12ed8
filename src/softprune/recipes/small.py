"""Each method on data that everybody has: CIFAR-10 folders (minutes on a GPU), digits (seconds on a CPU).

`data` of the CIFAR-10 recipes is a folder with train/ and test/ class folders: write `data=/path/to/cifar10`.
"""

from __future__ import annotations

from softprune.recipes.recipe import Methods, Recipe, family
from softprune.training.config import Config

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

_SAME = "near S-LATS at equal sparsity"


def methods(final: float, init: float, decay: float, blend_decay: float) -> Methods:
    """Every method of the paper, with a final threshold D and a starting s that suit the problem.

    GPO's b needs a decay of its own in a short run: while k is small but not zero, batch normalisation amplifies what
    a dead layer still lets through, and the network would miss it when k is dropped.
    """
    trained = {"init": init, "threshold_decay": decay}
    return {
        "dense": ({"method": "dense"}, "the accuracy to compare with"),
        "slats": ({"method": "slats", "final": final}, "close to dense"),
        "lats": ({"method": "lats", "final": final}, "S-LATS, following the warm-up too"),
        "pgh-0.1": ({"method": "pgh", "final": final, "beta": 0.1}, _SAME),
        "pgh-1e-5": ({"method": "pgh", "final": final, "beta": 1e-5}, _SAME),
        "pgh-1e-10": ({"method": "pgh", "final": final, "beta": 1e-10}, _SAME),
        "pgh-0": ({"method": "init", "final": final / 2}, "pruning at initialization: sparse, less accurate"),
        "sine": ({"method": "sine", "final": final}, "below S-LATS at equal sparsity"),
        "linear": ({"method": "linear", "final": final}, "below sine at equal sparsity"),
        "log2": ({"method": "log2", "final": final}, "below sine at equal sparsity"),
        "str": ({"method": "str", **trained}, "sparsity follows the weight decay on s"),
        "str-gs": ({"method": "str-gs", **trained}, "sparsity follows the weight decay on s"),
        "gpo": ({"method": "gpo", **trained, "blend_decay": blend_decay}, "STR, as soon as k has decayed"),
    }


RECIPES: list[Recipe] = [
    *family(
        "cifar10",
        CIFAR10,
        methods(final=0.1, init=-120.0, decay=5e-4, blend_decay=2e-2),
        reproduces="the paper's comparison, in small: ResNet-18 on CIFAR-10",
        cost="about a minute on one H200",
    ),
    *family(
        "digits",
        DIGITS,
        methods(final=0.3, init=-8.0, decay=0.02, blend_decay=0.1),
        reproduces="the paper's comparison, in miniature: a residual network on scikit-learn's digits",
        cost="under a minute on two CPU cores",
    ),
]
