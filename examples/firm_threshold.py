"""Add a prox of your own: the firm threshold, which prunes small weights and leaves large ones alone.

python examples/firm_threshold.py

A prox is a frozen value with three methods: the map w(θ, d), the regularizer that it is the prox of, and an inverse.
Four class attributes say what it claims, and tests/laws/test_prox.py checks every prox for what it claims.

The example recovers 10 nonzero weights among 100 from 150 noisy measurements. Both thresholds find them; the soft one
shrinks each by about 0.26, the firm one by 0.02. (In a longer run d grows past the weights, and the difference fades.)
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import softprune as sp
from softprune.errors import ArgumentError
from softprune.prox.base import Level


@dataclass(frozen=True)
class Firm(sp.Prox):
    """The firm threshold (Gao and Bruce 1997), between the soft threshold (c → ∞) and the hard one (c → 1).

        w = 0                                    |θ| <= d
            sign(θ) · (|θ| − d) · c / (c − 1)    d < |θ| <= c·d
            θ                                    |θ| > c·d

    It is the prox of the minimax concave penalty (Zhang 2010) with λ = d and γ = c.

    Args:
        c: > 1; weights above c·d are not shrunk.

    >>> Firm(c=2.0)(torch.tensor([0.5, 1.5, -1.5, 3.0]), 1.0)
    tensor([ 0.,  1., -1.,  3.])
    """

    c: float = 2.0

    separable = True  # acts weight by weight
    convex = False  # the regularizer is concave in |w|, so the map is steeper than the identity
    thresholds = True  # w = 0 exactly where |θ| <= d
    bounded = True  # no step of θ moves w more than c / (c − 1) times as far

    def __post_init__(self) -> None:
        if not self.c > 1:
            raise ArgumentError(f"`Firm(c=...)` must be > 1. Got {self.c}.")

    def __call__(self, theta: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        soft = theta - theta.clamp(min=-d).clamp(max=d)
        return torch.where(theta.abs() <= self.c * d, soft * self.c / (self.c - 1), theta)

    def regularizer(self, w: Tensor, *levels: Level) -> Tensor:
        """d·|w| − w² / 2c up to |w| = c·d, where it has become flat: c·d² / 2."""
        (d,) = levels
        w = w.abs().clamp(max=self.c * d)
        return d * w - w * w / (2 * self.c)

    def inverse(self, w: Tensor, *levels: Level) -> Tensor:
        (d,) = levels
        return torch.where(w.abs() <= self.c * d, w * (self.c - 1) / self.c + d * w.sign(), w)


def train(prox: sp.Prox, steps: int = 100) -> tuple[sp.Report, float]:
    """A linear model pruned to 90%: its report, and by how much the true weights came out too small, on average."""
    torch.manual_seed(0)
    true = torch.zeros(100)
    true[:10] = torch.tensor([1.0, 1.5, 2.0, -1.0, -1.5, -2.0, 1.0, 1.5, -1.0, -1.5])
    x = torch.randn(150, 100)
    y = x @ true + 0.5 * torch.randn(150)
    model = nn.Linear(100, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.TargetSparsity(0.9, steps=steps), prox=prox)

    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x).squeeze(1), y).backward()
        optimizer.step()
        scheduler.step()
    report = sp.summarize(pruner)
    pruner.detach()
    missing = (true - model.weight.detach()[0]) * true.sign()
    return report, missing[:10].mean().item()


def main() -> None:
    torch.set_num_threads(1)  # the model is tiny: a second thread only waits
    for prox in (sp.SoftThreshold(), Firm(c=1.5)):
        report, missing = train(prox)
        print(report)
        print(f"{prox}: the true weights came out {missing:.3f} too small.\n")


if __name__ == "__main__":
    main()
