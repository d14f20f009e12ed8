"""Prune a small convolutional network on scikit-learn's digits: plain torch, the two lines, a report, a plot.

python examples/digits.py [--out out] [--epochs 30]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import softprune as sp


def load() -> tuple[torch.Tensor, ...]:
    """1,797 images of 8 × 8 pixels: three quarters to train, one quarter to test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train, test = train_test_split(range(len(labels)), test_size=0.25, random_state=0, stratify=digits.target)
    return images[train], labels[train], images[test], labels[test]


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 128, 3, padding=1, stride=2, bias=False),
        nn.BatchNorm2d(128),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def train(epochs: int, batch: int = 64, final: float = 0.25) -> tuple[sp.Pruner, float, list[dict]]:
    torch.manual_seed(0)
    x, y, x_test, y_test = load()
    model = network()
    steps = epochs * (len(x) // batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    params = sp.select(model)
    pruner = sp.Pruner(params, optimizer, threshold=sp.SLATS(final=final, steps=steps))

    log = []
    for _ in range(epochs):
        for indices in torch.randperm(len(x)).split(batch)[: len(x) // batch]:
            loss = nn.functional.cross_entropy(model(x[indices]), y[indices])
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        report = sp.summarize(pruner)
        log.append({"step": pruner.step, "report": report})
    model.eval()
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    return pruner, accuracy, log


def plot(log: list[dict], path: Path) -> None:
    steps = [row["step"] for row in log]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    axes[0].plot(steps, [row["report"].layers[0].threshold for row in log])  # that of every layer
    axes[0].set(title="threshold d", xlabel="step")
    axes[1].plot(steps, [100 * row["report"].sparsity for row in log], color="black", label="overall")
    for i, layer in enumerate(log[-1]["report"].layers):
        axes[1].plot(steps, [100 * row["report"].layers[i].sparsity for row in log], lw=1, label=layer.name)
    axes[1].set(title="sparsity (%)", xlabel="step", ylim=(0, 100))
    axes[1].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    pruner, accuracy, log = train(options.epochs)
    pruner.detach()
    print(log[-1]["report"])
    print(f"Test accuracy: {accuracy:.2%}.")
    plot(log, options.out / "digits.png")
    print(f"Plot: {options.out / 'digits.png'}")


if __name__ == "__main__":
    main()
