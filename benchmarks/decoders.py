"""What it matters who decodes: grey levels between the decoders, and the accuracy of networks trained with each.

    python benchmarks/decoders.py --data FOLDER    # JPEG files in train/ and val/ or test/; a GPU

Networks are trained with the decoder of the GPU and with that of the CPU, from the same seed, and each is measured with
both. Small images are read from their files as large ones are, cut to ``--size`` pixels.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from softprune import data, recipes
from softprune.data.files import STD
from softprune.training.run import Run
from softprune.training.trainer import quieten

SEEN = 2048


def grey_levels(folder: Path, size: int) -> tuple[float, float]:
    """The mean and the greatest absolute difference of the pixels that networks see."""
    device = torch.device("cuda", 0)
    splits = [data.folder(folder, size=size, on_gpu=on_gpu).train for on_gpu in (True, False)]
    loaders = [split.loader(batch=SEEN, train=True, workers=8, device=device) for split in splits]
    (x, _), (u, _) = (next(iter(loader)) for loader in loaders)
    difference = (x - u).abs() * STD.to(device)[:, None, None]
    return float(difference.mean()), float(difference.max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    quieten()
    mean, greatest = grey_levels(options.data, options.size)
    print(
        f"grey levels, of {SEEN} images of {options.size} pixels: mean {mean:.3f}, at most {greatest:.0f}", flush=True
    )
    config = recipes.get("cifar10/dense").config
    config = replace(config, data=str(options.data), image_size=options.size, epochs=options.epochs)
    config = replace(config, workers=os.cpu_count() or 1)
    for seed in range(options.seeds):
        for trained in ("gpu", "cpu"):
            with tempfile.TemporaryDirectory() as folder:
                run = Run.create(Path(folder) / "run", replace(config, decode=trained, seed=seed))
                run.train(say=lambda _: None)
                found = {by: run.evaluate([f"decode={by}"]).accuracy for by in ("gpu", "cpu")}
            words = ", ".join(f"{accuracy:.2%} by {by}" for by, accuracy in found.items())
            print(f"seed {seed}, trained by {trained}, measured {words}", flush=True)


if __name__ == "__main__":
    main()
