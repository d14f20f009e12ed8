"""The laws of a threshold, and of every threshold through the pruner. A new one is one more line in ``THRESHOLDS``."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import softprune as sp
from oracles import assert_same
from softprune.pruner.hidden import Hidden
from softprune.thresholds.scheduled import Scheduled

T = 12

THRESHOLDS = {
    "schedule": lambda params: Scheduled(sp.Sine(0.4, T)),
    "schedule from the second step on": lambda params: Scheduled(sp.SLATS(0.4, T, start=1)),
    "pruning at initialization": lambda params: Scheduled(sp.Constant(0.2)),
    "any function": lambda params: Scheduled(fifth_of_a_root),
    "LATS": lambda params: sp.LATS(penalty=0.3),
    "LATS with a start": lambda params: sp.LATS(penalty=0.5, start=4),
    "target sparsity": lambda params: sp.TargetSparsity(0.7, T, refresh=2),
    "target sparsity by ERK": lambda params: sp.TargetSparsity(0.7, T, budget=sp.erk, min_density=0.1),
    "target sparsity at the end": lambda params: sp.TargetSparsity(0.7, T, arrive=1.0),
    "gradual sparsity": lambda params: sp.GradualSparsity(0.7, T, refresh=3),
    "gradual sparsity at the end": lambda params: sp.GradualSparsity(0.7, T, arrive=1.0, curve=sp.curves.Cosine()),
    "zeros that are kept": lambda params: sp.KeepZeros(),
    "STR": lambda params: sp.STR(params, init=-2.0),
    "STR with exp": lambda params: sp.STR(params, init=-2.0, transform="exp"),
    "STR-GS": lambda params: sp.STR(params, init=-2.0, shared=True),
    "GPO": lambda params: sp.GPO(params, init=-1.0),
}

each_threshold = pytest.mark.parametrize("make", THRESHOLDS.values(), ids=THRESHOLDS.keys())
each_trainable = pytest.mark.parametrize("name", ["STR", "STR with exp", "STR-GS", "GPO"])


def fifth_of_a_root(step: int) -> float:
    return 0.2 * math.sqrt(step / T)


def model() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    net[0].weight.data[:, 0] = 0.0  # for those that keep zeros
    return net


def trained(threshold: object) -> list[nn.Parameter]:
    return list(threshold.parameters()) if isinstance(threshold, nn.Module) else []


def train(make, steps=T, seen=lambda pruner: None, **options) -> sp.Pruner:
    """A tiny real training run: momentum, weight decay, a changing learning rate; ``seen`` looks after every step."""
    net = model()
    params = sp.select(net)
    threshold = make(params)
    optimizer = torch.optim.SGD([*net.parameters(), *trained(threshold)], lr=0.2, momentum=0.5, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * T)
    pruner = sp.Pruner(params, optimizer, threshold=threshold, **options)
    generator = torch.Generator().manual_seed(1)
    seen(pruner)
    for _ in range(steps):
        x, y = (torch.randn(16, n, generator=generator, dtype=torch.float64) for n in (6, 2))
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        seen(pruner)
    return pruner


# -- by itself -----------------------------------------------------------------------------------------------


def bound(make):
    """A threshold at work on three parameters, and the parameters."""
    params = sp.select(model())
    threshold = make(params)
    optimizer = torch.optim.SGD([*params.values(), *trained(threshold)], lr=0.2)
    return threshold.bind(Hidden(params), optimizer), params


def numbers(rule) -> list[list[float]]:
    """Levels of parameters, or of weights."""
    return [
        torch.cat([torch.as_tensor(level, dtype=torch.float64).flatten() for level in column]).tolist()
        for column in rule.levels
    ]


@each_threshold
def test_there_is_one_level_for_each_parameter_at_first_and_after_every_step(make):
    rule, _ = bound(make)
    kinds = [type(column) for column in rule.levels]
    for step in range(1, T + 3):
        assert [type(column) for column in rule.levels] == kinds
        assert all(len(column) == 3 for column in rule.levels)
        kept = isinstance(rule.threshold, sp.KeepZeros)
        assert all(0 <= d < math.inf or (kept and d == math.inf) for column in numbers(rule) for d in column)
        rule.advance(step, [0.1, 0.2, 0.3])


@each_threshold
def test_a_rule_that_loads_a_state_goes_on_as_the_one_that_saved_it(make):
    (rule, params), (other, others) = bound(make), bound(make)
    for step in range(1, T // 2):
        rule.advance(step, [0.1, 0.2, 0.3])
    owners = {
        id(p): q for p, q in zip([*params.values(), *rule.trained], [*others.values(), *other.trained], strict=True)
    }
    entries = {owners[id(p)]: dict(values) for p, values in rule.state().items()}
    other.check(entries)
    other.load(entries)
    for step in range(T // 2, T + 2):
        assert numbers(other) == numbers(rule)
        rule.advance(step, [0.1, 0.2, 0.3])
        other.advance(step, [0.1, 0.2, 0.3])


@each_threshold
def test_a_rule_binds_a_threshold_and_leaves_it_as_it_was(make):
    params = sp.select(model())
    threshold = make(params)
    before = repr(threshold)
    first, second = (
        threshold.bind(Hidden(params), torch.optim.SGD([*params.values(), *trained(threshold)], lr=0.2))
        for _ in range(2)
    )
    first.advance(1, [0.1, 0.2, 0.3])
    second.advance(1, [0.1, 0.2, 0.3])
    assert numbers(first) == numbers(second)
    assert repr(threshold) == before


@each_threshold
def test_a_threshold_can_be_printed_copied_and_pickled(make):
    params = sp.select(model())
    threshold = make(params)
    for other in (copy.deepcopy(threshold), pickle.loads(pickle.dumps(threshold))):
        assert repr(other) == repr(threshold)
        if not trained(threshold):
            assert other == threshold
        assert numbers(bound(lambda _, other=other: other)[0]) == numbers(bound(lambda _: threshold)[0])


def test_lats_adds_up_penalty_times_lr_for_each_parameter_by_itself():
    lrs = np.random.default_rng(0).uniform(0, 1, (30, 3))
    threshold = sp.LATS(penalty=0.25, start=4)
    d = threshold.first(3)
    for step, lr in enumerate(lrs, start=1):
        d = threshold.next(d, list(lr), step)
        np.testing.assert_allclose(d, 0.25 * lrs[4:step].sum(0), rtol=1e-14, atol=0)


@each_trainable
def test_gradients_reach_every_number_of_a_trainable_threshold(name):
    threshold = THRESHOLDS[name](sp.select(model()))
    sum(column.sum() for column in threshold()).backward()
    for p in threshold.parameters():
        assert p.shape == ((1,) if threshold.shared else (3,))
        assert (p.grad > 0).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("STR", 1 / (1 + math.e**2)), ("STR with exp", math.e**-2), ("STR-GS", 1 / (1 + math.e**2))],
)
def test_a_trainable_threshold_starts_at_its_transform_of_init(name, expected):
    (d,) = THRESHOLDS[name](sp.select(model()))()
    assert d.tolist() == pytest.approx([expected] * 3, rel=1e-14, abs=0)


def test_gpo_starts_at_the_identity():
    d, k = THRESHOLDS["GPO"](sp.select(model()))()
    assert d.tolist() == pytest.approx([1 / (1 + math.e)] * 3, rel=1e-14, abs=0)
    assert k.tolist() == [1.0] * 3


@each_trainable
def test_a_trainable_threshold_keeps_single_precision_for_bf16_weights(name):
    params = {key: nn.Parameter(p.bfloat16()) for key, p in sp.select(model()).items()}
    assert {p.dtype for p in THRESHOLDS[name](params).parameters()} == {torch.float32}


# -- through the pruner --------------------------------------------------------------------------------------


@each_threshold
@pytest.mark.parametrize("gradient", [None, sp.identity, sp.subgradient], ids=["default", "identity", "subgradient"])
def test_w_is_the_prox_of_theta_after_every_step_exactly(make, gradient):
    steps = []

    def seen(pruner: sp.Pruner) -> None:
        levels = pruner.rule.levels
        ks = levels[1].tolist() if len(levels) == 2 else [0.0] * 3
        for (name, p), d, k in zip(pruner.params.items(), levels[0], ks, strict=True):
            theta, w, d = (
                pruner.theta[name].numpy(),
                p.detach().numpy(),
                np.asarray(torch.as_tensor(d, dtype=torch.float64).detach()),
            )
            alive = np.abs(theta) > d
            if isinstance(pruner.prox, sp.PowerThreshold) and pruner.prox.p < math.inf:
                np.testing.assert_array_equal(w != 0, alive)
                roots = np.abs(theta[alive]) ** 4 - d**4
                np.testing.assert_allclose(np.abs(w[alive]) ** 4, roots, rtol=1e-9, atol=1e-15)
            elif isinstance(pruner.prox, sp.PowerThreshold):
                np.testing.assert_array_equal(w, np.where(alive, theta, 0))
            else:
                shrunk = np.sign(theta) * np.maximum(np.abs(theta) - d, 0)
                np.testing.assert_allclose(w, (1 - k) * shrunk + k * theta, rtol=0, atol=1e-15 if k else 0)
        steps.append(pruner.step)

    unbounded = gradient is sp.subgradient and not make(sp.select(model())).prox.bounded
    train(make, T + 2, seen, gradient=gradient, prox=sp.SoftThreshold() if unbounded else None)
    assert steps == list(range(T + 3))


@each_threshold
def test_detaching_leaves_exact_zeros_where_theta_is_within_the_threshold(make):
    pruner = train(make)
    theta = {name: x.clone() for name, x in pruner.theta.items()}
    d = dict(
        zip(
            theta,
            (torch.as_tensor(level, dtype=torch.float64).detach().clone() for level in pruner.rule.levels[0]),
            strict=True,
        )
    )
    sparsity = pruner.sparsity()
    pruner.detach()
    zeros = [p == 0 for p in pruner.params.values()]
    for zero, name in zip(zeros, theta, strict=True):
        assert torch.equal(zero, theta[name].abs() <= d[name])
    assert sparsity == sum(int(x.sum()) for x in zeros) / sum(x.numel() for x in zeros) > 0


@each_threshold
def test_the_penalty_adds_up_to_the_threshold(make):
    """Σ μ(t)·η(t) = d(T) − d(0), whatever the threshold does: the bridge, from what the pruner itself reports."""
    record = []

    def seen(pruner: sp.Pruner) -> None:
        mu, d = pruner.penalty, pruner.threshold
        record.append((np.array(list(mu.values())), np.array(list(d.values()))))

    train(make, T, seen)
    assert (record[0][0] == 0).all()
    lrs = [0.1 * (1 + math.cos(math.pi * t / (2 * T))) for t in range(T)]
    growth = sum(mu * lr for (mu, _), lr in zip(record[1:], lrs, strict=True))
    np.testing.assert_allclose(growth, record[-1][1] - record[0][1], rtol=0, atol=1e-12)


@each_threshold
def test_two_equal_runs_are_equal(make):
    assert_same(train(make), train(make))
