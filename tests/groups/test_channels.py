"""Channels, neurons and heads of real networks: what a target promises is what is zero, and what removal removes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import softprune as sp
from softprune import models
from softprune.removal import shrink
from structure.zoo import ZOO, build

IMAGE, TOKENS, DIGIT = torch.randn(4, 3, 16, 16), torch.randint(256, (2, 12)), torch.randn(8, 1, 8, 8)
STEPS = 8
CASES = [
    pytest.param("digits_resnet", sp.Channels, 0.6, False, id="digits-weights"),
    pytest.param("digits_resnet", sp.Channels, 0.5, True, id="digits-multiplications"),
    pytest.param("resnet20", sp.Channels, 0.6, True, id="resnet20"),
    pytest.param("vit_digits", sp.Channels, 0.7, True, id="vit"),
    pytest.param("vit_digits", sp.Neurons, 0.4, False, id="vit-neurons"),
    pytest.param("vit_digits", sp.Heads, 0.15, False, id="vit-heads"),
    pytest.param("gpt_small", sp.Channels, 0.5, False, id="gpt"),
    pytest.param("gpt_small", sp.Neurons, 0.5, True, id="gpt-neurons", marks=pytest.mark.slow),
    pytest.param("gpt_small", sp.Heads, 0.15, False, id="gpt-heads", marks=pytest.mark.slow),
    pytest.param("mobilenet_v1_cifar", sp.Channels, 0.8, True, id="mobilenet", marks=pytest.mark.slow),
]


def inputs(name: str) -> Tensor:
    return {"gpt_small": TOKENS, "vit_digits": DIGIT, "digits_resnet": DIGIT}.get(name, IMAGE)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        out = net(x)
        y = x if not x.is_floating_point() else torch.arange(len(out)) % out.shape[-1]
        nn.functional.cross_entropy(out.flatten(0, -2), y.flatten()).backward()
        optimizer.step()


@pytest.mark.parametrize(("name", "kind", "target", "by_flops"), CASES)
def test_the_promise_is_kept_by_zeros_and_by_removal(name, kind, target, by_flops):
    torch.manual_seed(0)
    net, x = getattr(models, name)(), inputs(name)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    flops = sp.flops_per_weight(net, x[:1]) if by_flops else None
    threshold = sp.TargetSparsity(target, steps=STEPS, flops=flops)
    pruner = sp.Pruner(sp.select(net), optimizer, threshold=threshold, groups=kind(net, x[:1]))
    train(net, optimizer, x, STEPS)
    census = pruner.rule.census
    promised, whole = census.left(pruner.rule.levels[0])[0], census.total
    assert abs(1 - promised / whole - target) <= census.grain / whole / 2
    before = pruner.sparsity()
    pruner.detach()

    zeros = {n: int((p == 0).sum()) for n, p in pruner.params.items()}
    assert before == pruner.sparsity() == sum(zeros.values()) / sum(p.numel() for p in pruner.params.values())
    count = {n: 1.0 if flops is None else flops.get(n, 0.0) for n in zeros}
    left = sum((p.numel() - zeros[n]) * count[n] for n, p in pruner.params.items())
    assert left == pytest.approx(promised, rel=1e-9)

    small = shrink(net.eval(), x[:1]).model
    sizes = {n: p.numel() for n, p in small.named_parameters()}
    assert sizes.keys() == {n for n, _ in net.named_parameters()}
    now = count if flops is None else sp.flops_per_weight(small, x[:1])
    assert sum(sizes[n] * now.get(n, 0.0) for n in zeros) == pytest.approx(promised, rel=1e-9)
    other = torch.randn_like(x) if x.is_floating_point() else (x + 5) % 256
    expected = net(other)
    assert (small.eval()(other) - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("name", ZOO)
def test_in_every_kind_of_network_what_dies_is_counted_and_removed(name):
    """One threshold that kills about half of the units, at once and without training."""
    net, x, _ = build(name)
    groups = sp.Channels(net, x)
    params = dict(net.named_parameters()) if name in ("einsum", "shared", "biased") else sp.select(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    try:
        pruner = sp.Pruner(
            params, optimizer, threshold=sp.GradualSparsity(0.3, steps=1, min_density=0.1), groups=groups
        )
    except sp.errors.ArgumentError as refusal:
        assert "can be removed when only these parameters are pruned" in str(refusal)  # noqa: PT017
        pytest.skip("an unpruned parameter makes the units")
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    promised = pruner.rule.census.left(pruner.rule.levels[0])[0]
    pruner.detach()
    assert sum(int((p != 0).sum()) for p in pruner.params.values()) == pytest.approx(promised)
    small = shrink(net, x).model
    sizes = {n: p.numel() for n, p in small.named_parameters()}
    assert sum(sizes[n] for n in pruner.params) <= promised + 1e-6
    expected = net(x)
    assert (small(x) - expected).abs().max() <= 1e-9 * expected.abs().max()


@pytest.mark.parametrize("how", ["optimizer", "pruner"])
def test_resuming_is_bit_for_bit_in_a_network_that_began_elsewhere(how, tmp_path):
    """Sizes are compared in units measured at the beginning, which the state carries."""

    def begin(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, sp.Pruner]:
        torch.manual_seed(seed)
        net = models.digits_resnet()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        threshold = sp.TargetSparsity(0.5, steps=12, refresh=2)
        return (
            net,
            optimizer,
            sp.Pruner(sp.select(net), optimizer, threshold=threshold, groups=sp.Channels(net, DIGIT[:1])),
        )

    net, optimizer, pruner = begin(0)
    train(net, optimizer, DIGIT, 5)
    torch.save((net.state_dict(), optimizer.state_dict(), pruner.state_dict()), tmp_path / "half.pt")
    train(net, optimizer, DIGIT, 7)
    other, others, resumed = begin(1)
    with torch.no_grad():
        other.get_parameter(next(iter(pruner.params))).mul_(3.0)
    assert resumed.prox.scales != pruner.prox.scales
    weights, states, entries = torch.load(tmp_path / "half.pt")
    other.load_state_dict(weights)
    others.load_state_dict(states)
    if how == "pruner":
        resumed.prox.take([1.0] * len(resumed.params))
        resumed.load_state_dict(entries)
    train(other, others, DIGIT, 7)
    assert resumed.prox.scales == pruner.prox.scales
    assert resumed.threshold == pruner.threshold
    pruner.detach()
    resumed.detach()
    for (n, a), b in zip(net.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), n


def test_an_average_swapped_in_and_out_changes_nothing():
    runs = []
    for swaps in (False, True):
        torch.manual_seed(0)
        net = models.digits_resnet()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        threshold = sp.Linear(1.2, steps=6)
        pruner = sp.Pruner(sp.select(net), optimizer, threshold=threshold, groups=sp.Channels(net, DIGIT[:1]))
        for _ in range(6):
            train(net, optimizer, DIGIT, 1)
            if swaps:
                own = copy.deepcopy(net.state_dict())
                with torch.no_grad():
                    for p in net.parameters():
                        p.mul_(0.9).add_(0.01)
                assert 0 <= pruner.sparsity() < 1
                pruner.state_dict()
                net.load_state_dict(own)
        runs.append((pruner.sparsity(), [x.clone() for x in pruner.theta.values()]))
    assert runs[0][0] == runs[1][0] > 0.1
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1], strict=True))


def test_zeros_of_removed_channels_stay_in_fine_tuning():
    torch.manual_seed(0)
    net = models.digits_resnet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    threshold = sp.TargetSparsity(0.5, steps=STEPS)
    pruner = sp.Pruner(sp.select(net), optimizer, threshold=threshold, groups=sp.Channels(net, DIGIT[:1]))
    train(net, optimizer, DIGIT, STEPS)
    pruner.detach()
    zeros, before = {n: p == 0 for n, p in pruner.params.items()}, shrink(net, DIGIT[:1]).parameters
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    keeper = sp.Pruner(sp.select(net), optimizer, threshold=sp.KeepZeros())
    train(net, optimizer, DIGIT, STEPS)
    keeper.detach()
    for name, p in pruner.params.items():
        assert torch.equal(p == 0, zeros[name]), name
    assert shrink(net, DIGIT[:1]).parameters == before
