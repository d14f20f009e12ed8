"""Groups under every threshold, gradient and optimizer; saved, copied, loaded."""

from __future__ import annotations

import copy
import math
import pickle
import warnings

import pytest
import torch
from torch import nn

import softprune as sp
from softprune.errors import ArgumentError

STEPS = 20


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(24, 10), nn.Tanh(), nn.Linear(10, 3),
    )  # fmt: skip


def grouping(kind: str, net: nn.Module) -> sp.Grouping:
    rows = {i: [("6.weight", 0, [i]), ("8.weight", 1, [i])] for i in range(10)}
    return {"blocks": sp.Blocks(2, 4), "groups": sp.Groups(rows)}.get(kind) or sp.Channels(net, torch.zeros(1, 1, 6, 6))


def loss(net: nn.Module) -> torch.Tensor:
    x = torch.randn(12, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    return nn.functional.cross_entropy(net(x), torch.arange(12) % 3)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net).backward()
        optimizer.step()


KINDS = ["blocks", "groups", "channels"]
FINALS = {"blocks": 0.15, "groups": 0.25, "channels": 1.0}  # channels are compared with a typical one
THRESHOLDS = {
    "gradual": lambda d: sp.GradualSparsity(0.3, STEPS),
    "target": lambda d: sp.TargetSparsity(0.3, STEPS),
    "lats": lambda d: sp.LATS(d / 2),  # twenty steps of 0.1
    "slats": lambda d: sp.SLATS(d, STEPS),
    "pgh": lambda d: sp.PGH(d, STEPS, beta=0.1),
    "subgradient": lambda d: sp.Linear(d, STEPS),
    "hard": lambda d: sp.GradualSparsity(0.3, STEPS),
}
HOW = {
    "subgradient": {"gradient": sp.subgradient, "prox": sp.SoftThreshold()},
    "hard": {"gradient": sp.subgradient, "prox": sp.PowerThreshold(math.inf)},
}


@pytest.mark.parametrize("name", THRESHOLDS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_threshold_prunes_whole_groups_and_resumes_bit_for_bit(kind, name):
    runs = []
    for split in (False, True):
        pruners = []
        for seed in (0, 1):
            net, threshold, how = network(seed), THRESHOLDS[name](FINALS[kind]), HOW.get(name, {})
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
            pruner = sp.Pruner(sp.select(net), optimizer, threshold=threshold, groups=grouping(kind, net), **how)
            pruners.append((net, optimizer, pruner))
        net, optimizer, pruner = pruners[0]
        train(net, optimizer, 7)
        if split:
            saved = pickle.loads(pickle.dumps((net.state_dict(), optimizer.state_dict())))
            net, optimizer, pruner = pruners[1]
            net.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        train(net, optimizer, STEPS - 7)
        pruner.detach()
        runs.append(net.state_dict())
        radii = pruner.prox.sizes([p.detach() for p in pruner.params.values()])
        for r, w in zip(radii, pruner.params.values(), strict=True):
            assert not w[r == 0].any()
        assert 0 < pruner.sparsity() < 1
    assert all(torch.equal(a, b) for a, b in zip(runs[0].values(), runs[1].values(), strict=True))


def test_a_trained_threshold_learns_with_blocks():
    net = network()
    params = sp.select(net)
    threshold = sp.STR(params, init=-3.0)
    optimizer = torch.optim.SGD([*net.parameters(), *threshold.parameters()], lr=0.3)
    pruner = sp.Pruner(params, optimizer, threshold=threshold, groups=sp.Blocks(2, 4))
    before, first = dict(pruner.threshold), loss(net).item()
    train(net, optimizer, 60)
    assert all(pruner.threshold[name] != d for name, d in before.items())
    assert loss(net).item() < first


def test_the_gradient_of_a_threshold_of_blocks_is_that_of_finite_differences():
    net = network().double()
    prox = sp.Pruner(
        sp.select(net), torch.optim.SGD(net.parameters(), lr=0.1), threshold=sp.Constant(0.0), groups=sp.Blocks(2, 4)
    ).prox
    theta, grad = torch.randn(6, 8, 3, dtype=torch.float64), torch.randn(6, 8, 3, dtype=torch.float64)
    _, slope = prox.vjp(theta, grad, torch.tensor(0.7, dtype=torch.float64))
    up, down = (float((prox(theta, 0.7 + step) * grad).sum()) for step in (1e-6, -1e-6))
    assert float(slope) == pytest.approx((up - down) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_skipped_steps_do_not_count(kind):
    """A GradScaler skips a step with gradients that are infinite."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(net), optimizer, threshold=sp.Linear(FINALS[kind], 10), groups=grouping(kind, net))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(loss(net)).backward()
        if step % 2:
            net[0].weight.grad[0] = math.inf
        before = copy.deepcopy(net.state_dict()["3.weight"])
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, net[3].weight) == bool(step % 2)
    assert pruner.step == 3


@pytest.mark.parametrize("kind", KINDS)
def test_lbfgs_sees_the_loss_of_the_sparse_network(kind):
    net = network().eval()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4)
    pruner = sp.Pruner(
        sp.select(net), optimizer, threshold=sp.Constant(FINALS[kind]), prox=sp.SoftThreshold(),
        groups=grouping(kind, net),
    )  # fmt: skip
    seen = []

    def closure() -> torch.Tensor:
        seen.append(pruner.prox.sizes([p.detach() for p in pruner.params.values()]))
        optimizer.zero_grad()
        value = loss(net)
        value.backward()
        return value

    for _ in range(5):
        optimizer.step(closure)
    assert loss(net).isfinite()
    assert len(seen) > 5
    assert all(any(bool((r == 0).any()) for r in sizes) for sizes in seen)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_go_on_alike(kind):
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    threshold = sp.TargetSparsity(0.3, STEPS)
    pruner = sp.Pruner(sp.select(net), optimizer, threshold=threshold, groups=grouping(kind, net))
    train(net, optimizer, 8)
    copies = [copy.deepcopy((net, optimizer, pruner)), pickle.loads(pickle.dumps((net, optimizer, pruner)))]
    for one in [(net, optimizer, pruner), *copies]:
        train(*one[:2], STEPS - 8)
        one[2].detach()
        assert all(map(torch.equal, net.state_dict().values(), one[0].state_dict().values()))


@pytest.mark.parametrize("kind", KINDS)
def test_states_without_groups_are_refused_and_nothing_changes(kind):
    net = network()
    plain = sp.Pruner(sp.select(net), torch.optim.SGD(net.parameters(), lr=0.1), threshold=sp.Constant(0.1))
    saved = copy.deepcopy(plain.state_dict())
    older = {name: {k: v for k, v in entry.items() if k != "prox"} for name, entry in saved.items()}
    plain.detach()
    pruner = sp.Pruner(
        sp.select(net),
        torch.optim.SGD(net.parameters(), lr=0.1),
        threshold=sp.Constant(0.1),
        groups=grouping(kind, net),
    )
    before = copy.deepcopy(net.state_dict())
    for state in (saved, older):
        with pytest.raises(ArgumentError, match="Cannot load this state"):
            pruner.load_state_dict(state)
    assert all(map(torch.equal, before.values(), net.state_dict().values()))


def test_a_parameter_without_a_gradient_stays_though_its_group_has_one():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    pruner = sp.Pruner(
        sp.select(net), optimizer, threshold=sp.Constant(0.05), prox=sp.SoftThreshold(), groups=grouping("groups", net),
        gradient=sp.subgradient,
    )  # fmt: skip
    theta = {name: x.clone() for name, x in pruner.theta.items()}
    net[6].weight.grad = torch.ones_like(net[6].weight)
    optimizer.step()
    assert torch.equal(pruner.theta["8.weight"], theta["8.weight"])
    assert not torch.equal(pruner.theta["6.weight"], theta["6.weight"])
    assert net[8].weight.grad is None


def test_what_is_set_from_outside_stays_where_there_is_no_group():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    sp.Pruner(sp.select(net), optimizer, threshold=sp.Constant(0.1), groups=grouping("groups", net))
    with torch.no_grad():
        net[0].weight.fill_(5.0)
    train(net, optimizer, 1)
    assert (net[0].weight == 5.0).all()


@pytest.mark.parametrize("groups", [{0: [("6.weight", 0, [])]}, {0: [("6.weight", 0, [1])], 1: [("8.weight", 1, [])]}])
def test_groups_without_indices_are_refused(groups):
    with pytest.raises(ArgumentError, match="something in every group"):
        sp.Groups(groups)


def test_units_that_learned_to_survive_raise_no_alarm(recwarn):
    """What a weight has moved is compared with the threshold in the units of its group."""
    warnings.simplefilter("always")
    for scale in (1.0, 0.05):
        net = network()
        with torch.no_grad():
            net[3].weight.mul_(scale)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
        threshold = sp.TargetSparsity(0.3, 60)
        pruner = sp.Pruner(sp.select(net), optimizer, threshold=threshold, groups=grouping("channels", net))
        train(net, optimizer, 60)
        pruner.detach()
    assert not recwarn.list
