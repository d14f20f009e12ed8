"""GPTs that read source code: one for a GPU, and a small one for two CPU cores.

The text is embedded: Python's standard library. `data=text:FOLDER` reads any other. The blocks are pruned; embeddings,
which are the output layer too, and normalisation are left alone. What is to be compared is the validation loss, in nats
for each byte.
"""

from __future__ import annotations

from softprune.recipes.comparison import patterns, targets
from softprune.recipes.config import Config
from softprune.recipes.recipe import Methods, Recipe, family

GPT = Config(
    network="gpt",
    data="pystdlib",
    epochs=20,
    batch=64,
    optimizer="adamw",
    lr=1e-3,
    warmup=1,
    beta2=0.99,
    clip=1.0,
    weight_decay=0.1,
    decay_vectors=False,
    precision="bf16-mixed",
    compile=True,
    workers=0,
)
SMALL = Config(
    network="gpt_small",
    data="pystdlib",
    epochs=5,
    batch=32,
    optimizer="adamw",
    lr=4e-3,
    warmup=1,
    beta2=0.99,
    clip=1.0,
    weight_decay=0.1,
    decay_vectors=False,
    workers=0,
)

ON_A_GPU = {  # docs/results.md, with 60 MB of Python source as data=text:FOLDER; three seeds, dense one
    "dense": "with 60 MB of source code, a validation loss of 1.219",
    "target": "with 60 MB of source code, a validation loss of 1.260 at 90% sparsity; target=0.98 gives 1.427",
    "gradual": "not measured",
    "neurons": "a validation loss of 1.244 at 40% sparsity, one seed",
    "heads": "a validation loss of 1.271 at 15% sparsity, one seed",
    "gmp": "with 60 MB of source code and start=2 arrive=0.7222, 1.327 at 90% sparsity; target=0.98 gives 1.684",
}
MEASURED = {  # seed 0, one thread, torch 2.13 on a CPU
    "dense": "a validation loss of 1.464",
    "target": "a validation loss of 1.553 at 90.00% sparsity",
    "gradual": "a validation loss of 1.551 at 90.00% sparsity",
    "gmp": "a validation loss of 1.631 at 90.00% sparsity",
    "neurons": "a validation loss of 1.510 with 61.7% of the multiplications",
    "heads": "a validation loss of 1.488 with 86.0% of the multiplications",
}
PATTERNS = {"neurons": {"target": 0.4}, "heads": {"target": 0.15}}  # of 67% that neurons can free, and 33% of heads
LATS: Methods = {"lats": ({"method": "lats", "final": 0.2}, "a validation loss of 1.671 at 91.93% sparsity")}

RECIPES: list[Recipe] = [
    *family(
        "gpt",
        GPT,
        targets(0.9, ON_A_GPU) | patterns(PATTERNS, ON_A_GPU),
        reproduces="what the paper does not try: a GPT on source code",
        cost="about a minute and a half on one H200, beside seven other runs",
    ),
    *family(
        "gpt_small",
        SMALL,
        targets(0.9, MEASURED) | LATS | patterns(PATTERNS, MEASURED),
        reproduces="what the paper does not try, in miniature: a small GPT on source code",
        cost="about two minutes on two CPU cores",
    ),
]
