"""Zeros that stay while a sparse network is fine-tuned."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

import softprune as sp
from digit_classifier import OPTIMIZERS as COMMON
from digit_classifier import X, Y, classifier, run
from oracles import saved

OPTIMIZERS = {
    **COMMON,
    "rmsprop": partial(torch.optim.RMSprop, lr=1e-3, momentum=0.9),
    "adafactor": partial(torch.optim.Adafactor, lr=1e-2),
    "lbfgs": partial(torch.optim.LBFGS, lr=0.1, max_iter=3),
}


@pytest.fixture(scope="module")
def sparse() -> nn.Module:
    model, pruner = run(target=0.9)
    pruner.detach()
    return model


def tune(model: nn.Module, opt: torch.optim.Optimizer, steps: range = range(10)) -> None:
    for step in steps:
        batch = torch.randperm(len(X), generator=torch.Generator().manual_seed(step))[:64]

        def closure(batch=batch):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(X[batch]), Y[batch])
            loss.backward()
            return loss

        opt.step(closure)


def zeros(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p == 0 for name, p in sp.select(model).items()}


def test_optimizers_that_look_at_all_weights_together_see_the_others_alone():
    """LBFGS on a quadratic: as if the zeros were not there."""
    torch.manual_seed(0)
    x = torch.randn(64, 12, dtype=torch.float64)
    y = x @ torch.randn(12, dtype=torch.float64) + 0.1 * torch.randn(64, dtype=torch.float64)
    kept = torch.arange(12) % 3 > 0
    losses = []
    for columns in (kept, torch.ones(12, dtype=torch.bool)):
        layer = nn.Linear(int(columns.sum()), 1, bias=False).double()
        layer.weight.data = (torch.linspace(-1, 1, 12, dtype=torch.float64) * kept)[columns][None]
        opt = torch.optim.LBFGS(layer.parameters(), lr=0.5, max_iter=3)
        if columns.all():
            sp.Pruner(sp.select(layer), opt, threshold=sp.KeepZeros())

        def closure(layer=layer, opt=opt, columns=columns):
            opt.zero_grad()
            loss = (layer(x[:, columns]).squeeze(1) - y).square().mean()
            loss.backward()
            return loss

        losses.append([opt.step(closure).item() for _ in range(8)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_zeros_stay_and_the_others_learn(sparse, optimizer):
    model = copy.deepcopy(sparse)
    before, weights = zeros(model), {name: p.detach().clone() for name, p in sp.select(model).items()}
    opt = OPTIMIZERS[optimizer](model.parameters())
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.KeepZeros())
    tune(model, opt)
    pruner.detach()
    for name, p in sp.select(model).items():
        assert torch.equal(p == 0, before[name])
        assert (p != weights[name])[~before[name]].float().mean() > 0.9


def test_what_is_not_zero_learns_as_if_alone(sparse):
    """As with masks that are multiplied onto the weights, which is how it is done by hand."""
    model, other = copy.deepcopy(sparse), copy.deepcopy(sparse)
    opt, plain = (torch.optim.AdamW(m.parameters(), lr=1e-3, weight_decay=0.1) for m in (model, other))
    sp.Pruner(sp.select(model), opt, threshold=sp.KeepZeros())
    masks = zeros(other)
    tune(model, opt)
    for step in range(10):
        tune(other, plain, range(step, step + 1))
        with torch.no_grad():
            for name, p in sp.select(other).items():
                p[masks[name]] = 0.0
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-8)


def test_it_resumes_bit_for_bit_also_into_a_dense_network(sparse):
    """The zeros are in the state, not only in the weights."""
    whole, paused = copy.deepcopy(sparse), copy.deepcopy(sparse)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (whole, paused)]
    for m, opt in zip((whole, paused), optimizers, strict=True):
        sp.Pruner(sp.select(m), opt, threshold=sp.KeepZeros())
    tune(whole, optimizers[0])
    tune(paused, optimizers[1], range(4))
    fresh = classifier()
    opt = torch.optim.AdamW(fresh.parameters(), lr=1e-3)
    with pytest.warns(UserWarning, match="`KeepZeros` finds no zeros to keep. Load or prune the weights first"):
        sp.Pruner(sp.select(fresh), opt, threshold=sp.KeepZeros())
    fresh.load_state_dict(saved(paused.state_dict()))
    opt.load_state_dict(saved(optimizers[1].state_dict()))
    tune(fresh, opt, range(4, 10))
    for p, q in zip(fresh.parameters(), whole.parameters(), strict=True):
        assert torch.equal(p, q)


def test_weights_loaded_in_between_lose_what_stands_on_zeros(sparse):
    model = copy.deepcopy(sparse)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)
    before = zeros(model)
    sp.Pruner(sp.select(model), opt, threshold=sp.KeepZeros())
    model.load_state_dict(classifier().state_dict())
    tune(model, opt, range(2))
    for name, p in sp.select(model).items():
        assert (p[before[name]] == 0).all()
        assert p.isfinite().all()
