"""Soft threshold pruning solves the Lasso, zeros included. Prints the comparison, draws docs/images/lasso.png."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Lasso
from torch import Tensor

import softprune as sp

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "lasso.png"
ALPHAS = {0.02: "#1f6f8b", 0.1: "#e08e0b", 0.3: "#b5305a"}


def problem() -> tuple[Tensor, ...]:
    """X and y of the diabetes data, both standardized: 442 patients, 10 features."""
    return tuple(torch.from_numpy((a - a.mean(0)) / a.std(0)) for a in load_diabetes(return_X_y=True))


def train(X: Tensor, y: Tensor, alpha: float, steps: int = 2000, momentum: float = 0.0) -> Tensor:
    """w after every step of pruned gradient descent on ‖y − Xw‖² / 2n from w = 0, with step size 1/L."""
    w = torch.nn.Parameter(torch.zeros(X.shape[1], dtype=X.dtype))
    lr = (1 - momentum) / torch.linalg.eigvalsh(X.T @ X / len(y))[-1].item()
    optimizer = torch.optim.SGD([w], lr, momentum)
    sp.Pruner({"w": w}, optimizer, threshold=sp.LATS(penalty=alpha / (1 - momentum)))
    ws = []
    for _ in range(steps):
        optimizer.zero_grad()
        (((y - X @ w) ** 2).mean() / 2).backward()
        optimizer.step()
        ws.append(w.detach().clone())
    return torch.stack(ws)


def lasso(X: Tensor, y: Tensor, alpha: float) -> Tensor:
    return torch.from_numpy(Lasso(alpha, fit_intercept=False, tol=1e-15, max_iter=10**5).fit(X, y).coef_)


def main(image: Path = IMAGE) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for i, (alpha, color) in enumerate(ALPHAS.items()):
        ws, exact = train(*problem(), alpha), lasso(*problem(), alpha)
        gap = (ws - exact).abs().amax(1)
        same = torch.equal(ws[-1] == 0, exact == 0)
        print(f"alpha {alpha:<4}  {(exact == 0).sum()} zeros of 10, all the same: {same}  max gap {gap[-1]:.0e}")
        left.scatter(torch.arange(10) + 0.27 * (i - 1), exact, s=60, facecolors="none", edgecolors=color)
        left.scatter(torch.arange(10) + 0.27 * (i - 1), ws[-1], s=10, color=color, label=f"α = {alpha}")
        right.semilogy(gap[:700], color=color)
    left.set(
        title="w: softprune (dots), sklearn (circles)", xticks=range(10), xticklabels=load_diabetes().feature_names
    )
    left.legend(frameon=False, loc="lower right")
    right.set(title="distance to the Lasso solution, max |w − w*|", xlabel="step")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
    figure.savefig(image, dpi=150)


if __name__ == "__main__":
    main()
