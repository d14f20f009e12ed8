"""A convex problem with a known answer: pruning groups with the identity gradient and LATS solves the group lasso.

Two weights, W (outputs, features) and V (outputs, other features), predict Y from X and Z. With groups G, some of which
have columns of both weights, what is minimised is

    f(W, V) + α·Σ √|G|·‖w_G‖   with   f(W, V) = ‖Y − XWᵀ − ZVᵀ‖² / 2n.

The answer comes from a long run of accelerated proximal gradient, written with numpy and with none of the library.

Weights one by one approach the answer as 0.9ᵗ. Groups do so in length alone: across, where θ_G turns and its length is
d + r, a step is r / (d + r) of its size, so that the distance falls as t^(−λr/α) with λ the curvature of f. So groups
that live here are well above α (r/α is 4 or more); one with r = α would need a million steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import softprune as sp

OUT, HALF, SAMPLES = 3, 12, 1000
# columns of W and of V in each group: sizes 1, 3, 4, 2, 7 and 5, times 3 outputs
COLUMNS = {
    "one": ([0], []),
    "w alone": ([1, 2, 3], []),
    "both": ([4, 5], [0, 1]),
    "v alone": ([], [2, 3]),
    "most": ([6, 7, 8], [4, 5, 6, 7]),
    "scattered": ([9, 11], [8, 10, 11]),
}  # column 10 of W and column 9 of V are in no group
SIZES = {"both": 10.0, "scattered": 1.0, "one": 0.12}  # of the weights that made Y
ALPHAS = {0.02: 3, 0.2: 2, 2.0: 1}  # and how many groups are left


@dataclass(frozen=True)
class Problem:
    """Features, W's and V's side by side, and Y, which the weights ``truth`` made, with noise."""

    features: np.ndarray
    targets: np.ndarray

    @classmethod
    def of(cls, truth: np.ndarray) -> Problem:
        rng = np.random.default_rng(3)
        features = rng.normal(size=(SAMPLES, 2 * HALF)) @ (np.eye(2 * HALF) + 0.05 * rng.normal(size=(2 * HALF,) * 2))
        features = (features - features.mean(0)) / features.std(0)
        return cls(features, features @ truth.T + 0.3 * rng.normal(size=(SAMPLES, OUT)))

    def slope(self, both: np.ndarray) -> np.ndarray:
        """∇f."""
        return (both @ self.features.T - self.targets.T) @ self.features / SAMPLES

    @property
    def lr(self) -> float:
        return float(1 / np.linalg.eigvalsh(self.features.T @ self.features / SAMPLES)[-1])

    def solve(self, groups: list[np.ndarray], alpha: float, steps: int = 600) -> np.ndarray:
        """Proximal gradient with momentum, which begins anew whenever it has gone too far."""
        x = y = np.zeros((OUT, 2 * HALF))
        t, lr = 1.0, self.lr
        for _ in range(steps):
            new = y - lr * self.slope(y)
            for group in groups:
                norm, penalty = np.sqrt((new[group] ** 2).sum()), lr * alpha * np.sqrt(group.sum())
                new[group] *= 0.0 if norm <= penalty else 1 - penalty / norm
            if ((y - new) * (new - x)).sum() > 0:
                t = 1.0
            later = (1 + np.sqrt(1 + 4 * t * t)) / 2
            y, x, t = new + (t - 1) / later * (new - x), new, later
        return x

    def train(self, grouping: sp.Grouping, alpha: float, steps: int = 1500) -> np.ndarray:
        """Pruned gradient descent from zero, with steps of 1/L."""
        features, targets = torch.from_numpy(self.features), torch.from_numpy(self.targets)
        W, V = (nn.Parameter(torch.zeros(OUT, HALF, dtype=torch.float64)) for _ in range(2))
        optimizer = torch.optim.SGD([W, V], lr=self.lr)
        params = {"W": W, "V": V}
        sp.Pruner(params, optimizer, threshold=sp.LATS(penalty=alpha), prox=sp.SoftThreshold(), groups=grouping)
        for _ in range(steps):
            optimizer.zero_grad()
            residuals = targets - features[:, :HALF] @ W.T - features[:, HALF:] @ V.T
            (residuals.square().sum() / (2 * SAMPLES)).backward()
            optimizer.step()
        return torch.cat([W, V], 1).detach().numpy()


def by_hand() -> sp.Groups:
    parts = {name: [("W", 1, w), ("V", 1, v)] for name, (w, v) in COLUMNS.items()}
    return sp.Groups({name: [part for part in both if part[2]] for name, both in parts.items()})


def masks() -> dict[str, np.ndarray]:
    """Where the groups lie in the two weights side by side."""
    found = {name: np.zeros((OUT, 2 * HALF), dtype=bool) for name in COLUMNS}
    for name, (w, v) in COLUMNS.items():
        found[name][:, [*w, *(HALF + i for i in v)]] = True
    return found


@cache
def problem() -> Problem:
    truth = np.random.default_rng(0).normal(size=(OUT, 2 * HALF))
    return Problem.of(truth * sum(SIZES.get(name, 0.0) * mask for name, mask in masks().items()))


@cache
def trained(alpha: float) -> np.ndarray:
    return problem().train(by_hand(), alpha)


@pytest.mark.parametrize(("alpha", "alive"), ALPHAS.items())
def test_pruned_gradient_descent_reaches_the_solution(alpha, alive):
    w, exact = trained(alpha), problem().solve([*masks().values()], alpha)
    assert np.array_equal(w != 0, exact != 0)
    assert sum(exact[mask].any() for mask in masks().values()) == alive
    assert np.abs(w - exact).max() < 1e-8


@pytest.mark.parametrize("alpha", ALPHAS)
def test_it_satisfies_the_optimality_conditions(alpha):
    """−∇f = α·√|G|·w_G/‖w_G‖ in a group that lives, at most that long in one that is dead, and 0 in no group."""
    w = trained(alpha)
    slope = -problem().slope(w)
    for mask in masks().values():
        penalty, norm = alpha * np.sqrt(mask.sum()), np.linalg.norm(w[mask])
        if norm > 0:
            np.testing.assert_allclose(slope[mask], penalty * w[mask] / norm, rtol=0, atol=1e-8)
        else:
            assert np.linalg.norm(slope[mask]) < penalty
    alone = ~np.any([*masks().values()], axis=0)
    assert np.abs(slope[alone]).max() < 1e-8
    assert (w[alone] != 0).all()


@pytest.mark.parametrize("size", [(1, 4), (2, 5), (3, 1)])
def test_so_it_does_with_blocks(size):
    """Blocks at the edges are smaller: 12 columns are 5 + 5 + 2, three rows are 2 + 1."""
    rows, cols = size
    groups = []
    for i in range(0, OUT, rows):
        for j in [*range(0, HALF, cols), *range(HALF, 2 * HALF, cols)]:
            groups.append(np.zeros((OUT, 2 * HALF), dtype=bool))
            groups[-1][i : i + rows, j : min(j + cols, HALF if j < HALF else 2 * HALF)] = True
    truth = np.random.default_rng(1).normal(size=(OUT, 2 * HALF)) * sum(groups[::3])
    problem = Problem.of(truth + np.sign(truth))
    w, exact = problem.train(sp.Blocks(rows, cols), 0.1), problem.solve(groups, 0.1)
    assert np.array_equal(w != 0, exact != 0)
    assert sum(exact[group].any() for group in groups) == len(groups[::3])
    assert np.abs(w - exact).max() < 1e-8


def test_lats_is_regularized_dual_averaging_of_groups_at_every_step():
    """w(t) minimises ⟨Σ η·g, w⟩ + μ·Ση·Σ √|G|·‖w_G‖ + ½‖w‖²: each group of −Σ η·g, shortened by μ·Ση·√|G|."""
    rng = np.random.default_rng(0)
    W, V = (nn.Parameter(torch.zeros(OUT, HALF, dtype=torch.float64)) for _ in range(2))
    optimizer = torch.optim.SGD([W, V], lr=1.0)
    sp.Pruner({"W": W, "V": V}, optimizer, threshold=sp.LATS(0.5), prox=sp.SoftThreshold(), groups=by_hand())
    total, learned, deaths = np.zeros((OUT, 2 * HALF)), 0.0, 0
    for _ in range(100):
        optimizer.param_groups[0]["lr"] = lr = float(rng.uniform(0, 0.4))
        slope = problem().slope(torch.cat([W, V], 1).detach().numpy())
        W.grad, V.grad = torch.from_numpy(slope[:, :HALF].copy()), torch.from_numpy(slope[:, HALF:].copy())
        optimizer.step()
        total, learned = total - lr * slope, learned + lr
        expected = total.copy()
        for mask in masks().values():
            norm, penalty = np.linalg.norm(total[mask]), 0.5 * learned * np.sqrt(mask.sum())
            expected[mask] *= max(0.0, 1 - penalty / norm)
            deaths += norm <= penalty
        np.testing.assert_allclose(torch.cat([W, V], 1).detach().numpy(), expected, rtol=1e-10, atol=1e-12)
    assert deaths > 100


def test_without_groups_the_answer_is_another():
    """The lasso's zeros are scattered: that groups live and die as one is no accident."""
    single = [one.reshape(OUT, 2 * HALF) for one in np.eye(OUT * 2 * HALF, dtype=bool)]
    lasso = problem().solve(single, 0.2, steps=100)
    assert any(0 < (lasso[mask] != 0).sum() < mask.sum() for mask in masks().values())
