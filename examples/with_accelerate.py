"""Prune in a loop of your own under Accelerate: the two lines, after `prepare`; its checkpoints carry the pruning.

python examples/with_accelerate.py [--epochs 30] [--out out/accelerate] [--resume out/accelerate/epoch-10]

Every epoch is saved; a run resumed from one ends with the same weights, bit for bit. Expect 97.3% test
accuracy at 92% sparsity after 5 seconds on a CPU core (dense: 98.0%).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import softprune as sp


def load() -> tuple[torch.Tensor, ...]:
    """1,797 images of 8 × 8 pixels: three quarters to train, one quarter to test."""
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    train, test = train_test_split(range(len(labels)), test_size=0.25, random_state=0, stratify=labels)
    return images[train], labels[train], images[test], labels[test]


def train(epochs: int, out: Path, resume: Path | None = None) -> tuple[sp.Report, float]:
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    x, y, x_test, y_test = load()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    loader = DataLoader(TensorDataset(x, y), 64, shuffle=True, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

    params = sp.select(model)
    pruner = sp.Pruner(params, optimizer, threshold=sp.SLATS(final=0.15, steps=epochs * len(loader)))

    if resume:
        accelerator.load_state(resume)
    for epoch in range(pruner.step // len(loader), epochs):  # the pruner knows how far it was
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accelerator.save_state(out / f"epoch-{epoch + 1}")

    report = sp.summarize(pruner)
    pruner.detach()
    accelerator.save_model(model, out)
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    return report, accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("out/accelerate"))
    parser.add_argument("--resume", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the network is tiny: a second thread only waits
    report, accuracy = train(options.epochs, options.out, options.resume)
    print(f"{report}\nTest accuracy: {accuracy:.2%}.")


if __name__ == "__main__":
    main()
