"""STR and GPO against the paper's formulas: thresholds under weight decay alone, gradients, GPO's limit."""

import numpy as np
import pytest
import torch
from torch import nn

import softprune as sp
from formulas import cosine, parameter, shrink


def sigmoid(s):
    return 1 / (1 + np.exp(-s))


@pytest.mark.parametrize(("transform", "function"), [("sigmoid", sigmoid), ("exp", np.exp)])
def test_with_weight_decay_alone_strs_threshold_is_a_schedule(transform, function):
    """App. C: d(t) = σ(s_init · Π (1 − η(i)·λ))."""
    p, lam = parameter(np.linspace(-1, 1, 7)), 0.3
    source = sp.STR({"p": p}, init=-8.0, transform=transform)
    optimizer = torch.optim.SGD([{"params": [p]}, {"params": source.parameters(), "weight_decay": lam}], lr=1.0)
    pruner = sp.Pruner({"p": p}, optimizer, threshold=source)
    product = 1.0
    for t in range(30):
        for group in optimizer.param_groups:
            group["lr"] = lr = 0.4 * cosine(t / 30)
        p.grad = torch.zeros_like(p)
        optimizer.step()
        product *= 1 - lr * lam
        assert pruner.threshold["p"] == pytest.approx(function(-8.0 * product), rel=1e-12, abs=0)
    assert pruner.threshold["p"] > 10 * function(-8.0)


def gradients_during_step(optimizer: torch.optim.Optimizer, *tensors: nn.Parameter) -> list[np.ndarray]:
    """What the optimizer is given for these tensors in its next step; ask after the pruner has hooked itself in."""
    seen = []
    handle = optimizer.register_step_pre_hook(lambda *_: seen.extend(x.grad.numpy().copy() for x in tensors))
    optimizer.step()
    handle.remove()
    return seen


@pytest.mark.parametrize("mapping_gradient", [sp.identity, sp.subgradient])
@pytest.mark.parametrize("shared", [False, True])
def test_the_gradient_of_strs_s_is_the_papers_sum_over_nonzero_weights(shared, mapping_gradient):
    """Whichever gradient θ itself is given."""
    rng = np.random.default_rng(0)
    params = {"a": parameter(rng.normal(size=(4, 5))), "b": parameter(rng.normal(size=30))}
    theta = {name: p.detach().numpy().copy() for name, p in params.items()}
    source = sp.STR(params, init=-0.4, shared=shared)
    optimizer = torch.optim.SGD([*params.values(), *source.parameters()], lr=0.1)
    sp.Pruner(params, optimizer, threshold=source, gradient=mapping_gradient)
    for p in params.values():
        (torch.sin(3 * p).sum() + (p**2).sum()).backward()
    d = sigmoid(-0.4)
    sums, turned = [], []
    for name, p in params.items():
        w, g = shrink(theta[name], d), p.grad.numpy().copy()
        assert 0 < (w == 0).mean() < 1
        sums.append(-d * (1 - d) * (g * np.sign(theta[name]))[w != 0].sum())
        turned.append(g if mapping_gradient is sp.identity else np.where(w != 0, g, 0))
    ds, *dthetas = gradients_during_step(optimizer, source.s, *params.values())
    np.testing.assert_allclose(ds, [sum(sums)] if shared else sums, rtol=1e-12)
    np.testing.assert_allclose(source.s.detach(), -0.4 - 0.1 * ds, rtol=1e-12)
    for dtheta, expected in zip(dthetas, turned, strict=True):
        np.testing.assert_array_equal(dtheta, expected)


@pytest.mark.parametrize("b", [1e6, 3e5, -2e5])
def test_the_gradient_of_gpos_b_is_the_papers_sum(b):
    p = parameter(np.random.default_rng(0).normal(size=40))
    theta = p.detach().numpy().copy()
    source = sp.GPO({"p": p}, init=-0.4)
    with torch.no_grad():
        source.b.fill_(b)
    optimizer = torch.optim.SGD([p, *source.parameters()], lr=0.1)
    sp.Pruner({"p": p}, optimizer, threshold=source)
    k, d = 1e-6 * abs(b), sigmoid(-0.4)
    np.testing.assert_allclose(p.detach(), (1 - k) * shrink(theta, d) + k * theta, rtol=0, atol=1e-15)
    (torch.sin(3 * p).sum() + (p**2).sum()).backward()
    g = p.grad.numpy().copy()
    db, ds, dtheta = gradients_during_step(optimizer, source.b, source.s, p)
    assert db == pytest.approx(1e-6 * np.sign(b) * (g * (theta - shrink(theta, d))).sum(), rel=1e-12, abs=0)
    outside = np.abs(theta) > d
    assert ds == pytest.approx(-(1 - k) * d * (1 - d) * (g * np.sign(theta))[outside].sum(), rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(dtheta, np.where(outside, g, k * g), rtol=1e-12, atol=1e-15)


def train_with(make, b: float | None = None, steps: int = 60) -> tuple[sp.Pruner, sp.Trainable, list[np.ndarray]]:
    """A regression with STR or GPO; the weight decay on GPO's numbers is strong, as in GPO's own code."""
    rng = np.random.default_rng(1)
    A, y = torch.from_numpy(rng.normal(size=(30, 20))), torch.from_numpy(rng.normal(size=30))
    p = parameter(rng.normal(size=20))
    source = make({"p": p}, init=-3.0)
    if b is not None:
        with torch.no_grad():
            source.b.fill_(b)
    optimizer = torch.optim.SGD([{"params": [p]}, {"params": source.parameters(), "weight_decay": 5.0}], lr=0.1)
    pruner = sp.Pruner({"p": p}, optimizer, threshold=source)
    ws = []
    for _ in range(steps):
        optimizer.zero_grad()
        ((A @ p - y) ** 2).mean().backward()
        optimizer.step()
        ws.append(p.detach().numpy().copy())
    return pruner, source, ws


def test_gpos_blend_decays_to_strs_soft_threshold():
    for steps in (1, 5, 15):
        k = train_with(sp.GPO, steps=steps)[1]()[1].item()
        assert k == pytest.approx(0.5**steps, rel=1e-4, abs=0)  # Π (1 − ηλ): the loss has no say in it
    pruner, source, ws = train_with(sp.GPO, steps=60)
    d, k = (x.item() for x in source())
    assert k < 1e-12
    np.testing.assert_allclose(ws[-1], shrink(pruner.theta["p"].numpy(), d), rtol=0, atol=1e-12)
    assert 0 < pruner.sparsity() < 1


def test_gpo_without_its_blend_is_str():
    *_, str_weights = train_with(sp.STR)
    *_, gpo_weights = train_with(sp.GPO, b=0.0)
    np.testing.assert_allclose(gpo_weights, str_weights, rtol=0, atol=1e-12)
    *_, blended = train_with(sp.GPO, b=1e5)
    assert np.abs(np.array(blended) - str_weights).max() > 1e-3  # and with it, it is not
