"""Pruning in the step hooks is the re-parametrized training run of the textbook, under every optimizer."""

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import (
    METHODS,
    MODELS,
    OPTIMIZERS,
    STEPS,
    Oracle,
    Run,
    assert_follows,
    assert_same,
    loss_of,
    network,
    shrink,
)
from softprune.attach import hooks

SCHEDULED = ["slats", "delayed", "short", "constant", "lats"]
TRAINED = ["str", "str-exp", "str-shared", "gpo"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", SCHEDULED)
def test_bit_for_bit_the_straight_through_run(optimizer, method):
    run, oracle = Run.of(optimizer, method), Oracle(optimizer, method)
    assert run.train() == oracle.train()
    assert_follows(run, oracle)
    assert 0.05 < run.pruner.sparsity() < 1.0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", TRAINED)
def test_the_autograd_run_of_trained_thresholds(optimizer, method):
    run, oracle = Run.of(optimizer, method), Oracle(optimizer, method)
    start = run.pruner.trainable.s.clone()
    assert run.train() == pytest.approx(oracle.train(), rel=1e-9)
    assert_follows(run, oracle, rtol=1e-8, atol=1e-10)
    assert not torch.equal(run.pruner.trainable.s, start)


@pytest.mark.parametrize("method", SCHEDULED)
def test_a_schedule_with_the_true_gradient(method):
    run, oracle = Run.of("momentum", method, gradient=sp.subgradient), Oracle("momentum", method)
    oracle.gradient = shrink
    assert run.train() == pytest.approx(oracle.train(), rel=1e-12)
    assert_follows(run, oracle, rtol=1e-12, atol=1e-14)


def test_a_trained_threshold_with_the_straight_through_gradient():
    """θ gets dL/dw everywhere, s gets what the true mapping gives it."""
    run, oracle = Run.of("momentum", "str", gradient=sp.identity), Oracle("momentum", "str")

    class Mixed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, theta, d):
            ctx.save_for_backward(theta, d)
            return shrink(theta, d)

        @staticmethod
        def backward(ctx, grad):
            theta, d = ctx.saved_tensors
            return grad, -(grad * theta.sign() * (theta.abs() > d)).sum()

    oracle.weight = lambda i, name: Mixed.apply(oracle.theta[name], torch.sigmoid(oracle.s[i]))
    assert run.train() == pytest.approx(oracle.train(), rel=1e-12)
    assert_follows(run, oracle, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", ["slats", "str"])
def test_every_kind_of_weight(kind, method):
    run, oracle = Run.of("adam", method, kind), Oracle("adam", method, kind)
    assert run.train() == pytest.approx(oracle.train(), rel=1e-10)
    assert_follows(run, oracle, rtol=1e-8, atol=1e-10)
    assert all((p == 0).any() for p in run.pruner.params.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("optimizer", ["momentum", "adamw", "adamw-fused"])
def test_low_precision_parameters(dtype, optimizer):
    run, oracle = Run.of(optimizer, "slats", dtype=dtype), Oracle(optimizer, "slats", dtype=dtype)
    assert run.train() == oracle.train()
    assert_follows(run, oracle)
    assert {p.dtype for p in run.pruner.theta.values()} == {dtype}


def test_low_precision_parameters_keep_their_trained_threshold_in_single_precision():
    run = Run.of("momentum", "str", dtype=torch.bfloat16)
    before = run.pruner.threshold
    run.train(range(3))
    assert run.pruner.trainable.s.dtype == torch.float32
    assert all(run.pruner.threshold[name] != d for name, d in before.items())


@pytest.mark.parametrize("method", ["slats", "str"])
def test_accumulated_gradients_are_the_gradient_of_the_sum(method):
    """Two backward passes before each step; s has one gradient, made at the step."""

    def twice(forward, optimizer, after_step=lambda step: None):
        for step in range(STEPS):
            for half in (2 * step, 2 * step + 1):
                (loss_of(forward, half) / 2).backward()
            optimizer.step()
            after_step(step)
            optimizer.zero_grad()

    run, oracle = Run.of("momentum", method), Oracle("momentum", method)
    twice(run.model, run.optimizer)
    twice(oracle.forward, oracle.optimizer, oracle.advance)
    assert_follows(run, oracle, rtol=1e-12, atol=1e-14)


def test_clipping_sees_the_gradient_of_the_weights():
    def clipped(forward, model, optimizer, after_step=lambda step: None):
        for step in range(STEPS):
            loss_of(forward, step).backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            assert norm > 0.1
            optimizer.step()
            after_step(step)
            optimizer.zero_grad()

    run, oracle = Run.of("adam"), Oracle("adam", "slats")
    clipped(run.model, run.model, run.optimizer)
    clipped(oracle.forward, oracle.model, oracle.optimizer, oracle.advance)
    assert_follows(run, oracle)


@pytest.mark.parametrize("method", ["slats", "lats", "str", "gpo"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw-fused"])
def test_without_gradient_theta_stands_still_and_the_threshold_does_not(method, optimizer):
    run = Run.of(optimizer, method)
    frozen, *others = run.pruner.params.values()
    theta = run.pruner.theta["0.weight"].clone()
    for step in range(STEPS):
        loss_of(run.model, step).backward()
        frozen.grad = None
        run.optimizer.step()
        run.optimizer.zero_grad()
    d = run.pruner.threshold["0.weight"] if isinstance(run.pruner.threshold, dict) else run.pruner.threshold
    assert torch.equal(run.pruner.theta["0.weight"], theta)
    assert run.pruner.step == STEPS
    if method != "gpo":
        torch.testing.assert_close(frozen.data, shrink(theta, d), rtol=1e-12, atol=1e-12)
    if method in ("slats", "lats"):
        assert (frozen == 0).sum() > (theta == 0).sum()
    assert all(not torch.equal(p, frozen) for p in others)


@pytest.mark.parametrize("method", ["slats", "str"])
def test_a_step_with_no_gradients_at_all(method):
    run = Run.of("adam", method)
    before = {name: theta.clone() for name, theta in run.pruner.theta.items()}
    run.optimizer.step()
    assert run.pruner.step == 1
    assert all(torch.equal(theta, before[name]) for name, theta in run.pruner.theta.items())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_gradient_goes_to_the_optimizer_untouched(bad):
    """One entry is bad; every other number is the number of the run without it."""
    good, run = Run.of("momentum"), Run.of("momentum")
    for r, poison in ((good, None), (run, bad)):
        loss_of(r.model, 0).backward()
        if poison is not None:
            r.model[0].weight.grad[2, 3] = poison
        r.optimizer.step()
    w, expected = run.model[0].weight.detach(), good.model[0].weight.detach()
    assert not w[2, 3].isfinite()
    w[2, 3] = expected[2, 3]
    assert torch.equal(w, expected)


def test_zero_weights_under_a_zero_threshold_are_no_nan():
    model = nn.Linear(4, 4).double()
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.0), gradient=sp.subgradient)
    model(torch.ones(1, 4).double()).sum().backward()
    optimizer.step()
    assert torch.equal(model.weight, torch.zeros_like(model.weight))  # |θ| = d: the subgradient is 0


def test_a_hidden_zero_moves_under_the_identity_gradient():
    """Where the authors' layer stops: sign(0) = 0. The gradient of the paper is 1 everywhere."""
    model = nn.Linear(2, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.25))
    model(torch.ones(1, 2).double()).sum().backward()
    optimizer.step()
    assert pruner.theta["weight"].tolist() == [[-0.5, -0.5]]
    assert model.weight.tolist() == [[-0.25, -0.25]]


def test_before_its_start_nothing_is_pruned():
    run, dense = Run.of("adam", "delayed"), Run.of("adam", lambda params: sp.Constant(0.0))
    run.train(range(3))
    dense.train(range(3))
    assert run.pruner.threshold == 0.0
    for p, q in zip(run.model.parameters(), dense.model.parameters(), strict=True):
        assert torch.equal(p, q)
    run.train(range(3, 4))
    assert run.pruner.threshold > 0


@pytest.mark.parametrize("method", ["slats", "short"])
def test_past_its_steps_the_threshold_stays_and_the_weights_go_on(method):
    run = Run.of("momentum", method)
    run.train()
    assert run.pruner.threshold == 0.2
    before = run.model[0].weight.clone()
    run.train(range(STEPS, STEPS + 3))
    assert (run.pruner.step, run.pruner.threshold, run.pruner.penalty) == (STEPS + 3, 0.2, 0.0)
    assert not torch.equal(run.model[0].weight, before)


def test_lats_gives_every_param_group_its_own_threshold_and_one_penalty():
    run = Run.of("sgd", "lats")
    run.train()
    first, second = run.pruner.threshold.values()
    assert second == pytest.approx(5 * first)  # 0.1 against 0.02
    assert run.pruner.penalty == pytest.approx(0.5)


@pytest.mark.parametrize("swap", ["groups", "lists", "members"])
def test_lats_follows_a_parameter_into_another_param_group(swap):
    a, b = (nn.Parameter(torch.ones(3, 3)) for _ in range(2))
    optimizer = torch.optim.SGD([{"params": [a], "lr": 0.1}, {"params": [b], "lr": 0.001}])
    pruner = sp.Pruner({"a": a, "b": b}, optimizer, threshold=sp.LATS(0.1))
    optimizer.step()
    groups = optimizer.param_groups
    if swap == "groups":
        groups.reverse()
        expected = {"a": 0.02, "b": 0.0002}  # nothing has changed
    else:
        expected = 0.0101  # of both
        if swap == "lists":
            groups[0]["params"], groups[1]["params"] = groups[1]["params"], groups[0]["params"]
        else:
            groups[0]["params"][0], groups[1]["params"][0] = b, a
    optimizer.step()
    assert pruner.threshold == pytest.approx(expected)


def test_the_host_does_not_wait_for_a_learning_rate_on_a_device():
    """A schedule needs it for nobody but who asks for the penalty. Here no device: to read it would raise."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.param_groups[0]["lr"] = torch.empty((), device="meta")
    params = list(sp.select(model).values())
    assert not hooks._skipped(optimizer)
    assert [lr.device.type for lr in hooks.rates(optimizer, params, read=False)] == ["meta"] * len(params)
    with pytest.raises(RuntimeError, match="meta"):
        hooks.rates(optimizer, params, read=True)


@pytest.mark.parametrize("threshold", [sp.LATS(0.1), sp.TargetSparsity(0.5, STEPS)])
def test_a_threshold_that_follows_the_learning_rate_says_so_while_it_prunes(threshold):
    model = network()
    pruner = sp.Pruner(sp.select(model), torch.optim.SGD(model.parameters(), lr=0.1), threshold=threshold)
    assert threshold.reads_lr
    assert pruner.source.reads_lr


def test_the_penalty_of_a_step_is_its_growth_over_its_learning_rate():
    run = Run.of(lambda groups: torch.optim.SGD(groups, lr=0.02), lambda params: sp.Linear(0.8, STEPS))
    run.train(range(2))
    assert run.pruner.penalty == pytest.approx(0.1 / (0.02 / 1.1))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_threshold_of_zero_changes_nothing(optimizer):
    """Not even in the last bit, not even in the optimizer's state."""
    run = Run.of(optimizer, lambda params: sp.Constant(0.0))
    dense = Run.of(optimizer, lambda params: sp.Constant(0.0))
    dense.pruner.detach()
    assert run.train() == dense.train()
    for p, q in zip(run.model.parameters(), dense.model.parameters(), strict=True):
        assert torch.equal(p, q)
    for p, q in zip(run.optimizer.state.values(), dense.optimizer.state.values(), strict=True):
        assert p.keys() == q.keys()


def test_two_pruners_of_one_optimizer_are_one_pruner_of_both():
    """Each holds some of the parameters, so that methods may be mixed layer by layer."""
    whole, split = Run.of("adam"), Run.of("adam")
    split.pruner.detach()
    split.model.load_state_dict(network().state_dict())
    pruners = [
        sp.Pruner({n: p}, split.optimizer, threshold=METHODS["slats"]({})) for n, p in sp.select(split.model).items()
    ]
    assert split.train() == whole.train()
    for pruner in pruners:
        (name,) = pruner.params
        assert torch.equal(pruner.theta[name], whole.pruner.theta[name])


class Extended(torch.optim.Adam):
    """As libraries extend an optimizer: torch runs the step hooks for both classes."""

    @torch.no_grad()
    def step(self, closure=None):
        loss = super().step(closure)
        for p in self.param_groups[0]["params"]:
            p.mul_(0.5)  # acts on θ
        return loss


@pytest.mark.parametrize("method", ["slats", "lats", "gpo"])
@pytest.mark.parametrize("closure", [False, True], ids=["", "closure"])
def test_a_subclass_that_calls_the_step_of_its_base_makes_one_step(method, closure):
    torch.optim.Adam(network().parameters())  # from here on torch has wrapped the step of the base class
    run, by_hand = Run.of(lambda groups: Extended(groups, lr=0.03), METHODS[method]), Oracle("adam", method)
    for group, other in zip(by_hand.optimizer.param_groups, run.optimizer.param_groups, strict=True):
        group["weight_decay"] = other["weight_decay"]
    for step in range(STEPS):
        by_hand.optimizer.zero_grad()
        loss_of(by_hand.forward, step).backward()
        by_hand.optimizer.step()
        with torch.no_grad():
            by_hand.optimizer.param_groups[0]["params"][0].mul_(0.5)
        by_hand.advance(step)

        def backward(step=step):
            run.optimizer.zero_grad()
            loss = loss_of(run.model, step)
            loss.backward()
            return loss

        if closure:
            run.optimizer.step(backward)
        else:
            backward()
            run.optimizer.step()
    assert run.pruner.step == STEPS
    assert_follows(run, by_hand, rtol=1e-9, atol=1e-11)


def test_the_same_seed_gives_the_same_run():
    runs = [Run.of("adamw", method) for method in (METHODS["lats"], "lats")]
    for run in runs:
        run.train()
    assert_same(*runs)
