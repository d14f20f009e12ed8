"""A spiking network on CIFAR-10, as the command trains it: SEW ResNet-18, T = 4.

    python benchmarks/spiking.py --data FOLDER --epochs 60 --method slats --final 0.5 --out spiking.json

Prints seconds an epoch, accuracy, sparsity, firing rate, and the synaptic operations and energy of an image, dense and
pruned; `--out` also writes them layer by layer. Without a GPU it trains the network for digits, to try the script.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from softprune import recipes
from softprune.training.trainer import quieten
from training import cifar10, publish


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder with train/ and test/ class folders")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--method", choices=["dense", "slats", "sine"], default="slats")
    parser.add_argument("--final", type=float, help="D, the threshold at the end")
    parser.add_argument("--out", type=Path, help="also write the result to this JSON file")
    options = parser.parse_args()
    changes = {"epochs": options.epochs, "final": options.final}
    config = recipes.get(f"sew_cifar10/{options.method}").config
    config = replace(config, **{name: value for name, value in changes.items() if value is not None})
    quieten()
    result, complete = cifar10(options.data, config, small="sew_digits")
    observed = complete["observed"]
    result["dense synaptic operations"] = observed["synaptic_operations"]["dense"]
    result["dense energy (nJ)"] = observed["nanojoules"]["dense"]
    publish({**result, "config": complete["config"], "observed": observed}, options.out)


if __name__ == "__main__":
    main()
