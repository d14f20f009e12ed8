"""The quantile on a sparsity curve."""

import math

import pytest
import torch
from torch import nn

import softprune as sp
from digit_classifier import STEPS, classifier, loss, train
from oracles import refused


def begun(target=0.9, prox=None, gradient=None, **options):
    model = classifier()
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    aim = sp.GradualSparsity(target, STEPS, **options)
    return model, opt, scheduler, sp.Pruner(sp.select(model), opt, threshold=aim, prox=prox, gradient=gradient)


@pytest.mark.parametrize("curve", [sp.curves.Polynomial(3.0), sp.curves.Cosine()])
def test_the_sparsity_follows_the_curve(curve):
    run = begun(curve=curve, arrive=0.8, start=20)
    for step in range(20, 160):
        train(*run, step + 1)
        wanted = 0.9 * (1 - curve((step + 1 - 20) / 144))
        assert run[3].sparsity() == pytest.approx(wanted, abs=0.02)


def test_d_grows_in_equal_steps_between_two_looks():
    run = begun(refresh=10, arrive=1.0)
    d = train(*run, 31)
    steps = [b - a for a, b in zip([0.0, *d], d, strict=False)]
    for stretch in (steps[:10], steps[10:20], steps[20:30]):
        assert max(stretch) == pytest.approx(min(stretch), rel=1e-9)
    assert len({round(x, 9) for x in steps[:30]}) == 3


def test_with_the_hard_threshold_and_the_subgradient_it_is_magnitude_pruning():
    """Written out: masks from the global quantile of |w|, every step, and weights that are masked do not learn."""
    steps, shares = 40, []
    torch.manual_seed(0)
    layer = nn.Linear(20, 10, bias=False).double()
    other = nn.Linear(20, 10, bias=False).double()
    other.load_state_dict(layer.state_dict())
    opt, plain = (torch.optim.SGD(m.parameters(), lr=0.05) for m in (layer, other))
    aim = sp.GradualSparsity(0.8, steps, arrive=0.5, refresh=1, min_density=0.0)
    pruner = sp.Pruner(sp.select(layer), opt, threshold=aim, prox=sp.PowerThreshold(math.inf), gradient=sp.subgradient)
    hidden = other.weight.detach().clone()
    for step in range(1, steps + 1):
        x = torch.randn(16, 20, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        for m, o in ((layer, opt), (other, plain)):
            o.zero_grad()
            (m(x) - x[:, :10]).square().mean().backward()
        opt.step()
        share = 0.8 * (1 - (1 - min(1.0, step / 20)) ** 3)
        hidden -= 0.05 * other.weight.grad * (other.weight != 0)
        sizes = hidden.abs().float()  # the quantile is that of the weights after the step, in single precision
        mask = sizes > sizes.flatten().kthvalue(max(1, round(share * hidden.numel()))).values
        with torch.no_grad():
            other.weight.copy_(hidden * mask)
        shares.append(pruner.sparsity())
        torch.testing.assert_close(layer.weight, other.weight, rtol=0, atol=1e-12)
    assert shares[-1] == 0.8


def test_it_needs_no_learning_rate():
    class Sign(torch.optim.Optimizer):
        """Without a learning rate: its groups have no `lr`."""

        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.sub_(1e-3 * p.grad.sign())

    model = nn.Linear(10, 10)
    opt = Sign(model.parameters())
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.GradualSparsity(0.5, 8))
    for _ in range(12):
        model(torch.randn(4, 10)).square().mean().backward()
        opt.step()
    assert pruner.sparsity() == 0.5


def test_a_budget_and_a_minimum_work_as_with_target_sparsity():
    run = begun(budget=sp.erk, min_density=0.01)
    train(*run, STEPS)
    shares = sp.erk(run[3].params, 0.9)
    for name, p in run[3].params.items():
        assert float((p == 0).float().mean()) == pytest.approx(shares[name], abs=1e-2)
    assert loss(run[0]) < 0.3


def test_what_is_no_curve_is_refused():
    text = "`GradualSparsity(curve=...)` must be a function that falls from 1 to 0"
    for curve in ("cubic", lambda x: x, lambda x: 1.0, lambda x: "low"):
        refused(lambda curve=curve: sp.GradualSparsity(0.9, 10, curve=curve), text, TypeError)
    refused(lambda: sp.GradualSparsity(1.0, 10), "`GradualSparsity(target=...)` must be > 0 and < 1. Got 1.0.")
    refused(lambda: begun(min_density=0.2), "`GradualSparsity` cannot reach 90.0000%")
