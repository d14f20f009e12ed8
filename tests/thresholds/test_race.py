"""A run in which weights cannot outrun the threshold says so half-way to its target."""

import warnings

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import softprune as sp

DATA = load_digits()
X, Y = torch.tensor(DATA.data / 16 - 0.3, dtype=torch.float32), torch.tensor(DATA.target)
RACE = "of the weights that survive have moved as far as the threshold"


def trained(steps: int, lr: float, until: int | None = None, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, steps, **options))
    for step in range(until or steps):
        batch = torch.randint(len(X), (64,), generator=torch.Generator().manual_seed(step))
        opt.zero_grad()
        nn.functional.cross_entropy(model(X[batch]), Y[batch]).backward()
        opt.step()
    return model, opt, pruner


@pytest.mark.filterwarnings("always")
def test_too_little_learning_is_said_while_it_can_be_stopped():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        trained(60, 1e-3, until=21, arrive=0.75)
    assert not seen
    with pytest.warns(UserWarning, match=f"After 22 steps only .*% {RACE}"):
        trained(60, 1e-3, until=22, arrive=0.75)


@pytest.mark.filterwarnings("error")
def test_enough_learning_is_not_warned_of():
    model, _, pruner = trained(400, 1e-2)
    pruner.detach()
    assert (model(X).argmax(1) == Y).float().mean() > 0.95


@pytest.mark.filterwarnings("error")
def test_a_resumed_run_is_not_watched():
    """What it has moved since is not what it has moved."""
    _, opt, _ = trained(60, 1e-3, until=10)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    again = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sp.Pruner(sp.select(model), again, threshold=sp.TargetSparsity(0.9, 60))
    again.load_state_dict(opt.state_dict())
    for _ in range(30):
        again.step()
