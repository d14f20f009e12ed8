"""A closure computes the loss on the sparse weights w, never on θ: however it is passed, however often it is called."""

import pytest
import torch

import softprune as sp
from oracles import OPTIMIZERS, Run, assert_same, loss_of

WITH_CLOSURE = [name for name in OPTIMIZERS if not name.startswith("lbfgs")]


def closure_of(run: Run, step: int, seen: list | None = None):
    def closure():
        run.optimizer.zero_grad()
        loss = loss_of(run.model, step)
        loss.backward()
        if seen is not None:
            seen.append([p.detach().clone() for p in run.pruner.params.values()])
        return loss

    return closure


@pytest.mark.parametrize("keyword", [False, True], ids=["positional", "keyword"])
@pytest.mark.parametrize("optimizer", WITH_CLOSURE)
@pytest.mark.parametrize("method", ["slats", "str", "gpo"])
def test_a_step_with_a_closure_is_the_plain_step(optimizer, method, keyword):
    plain, run = Run.of(optimizer, method), Run.of(optimizer, method)
    losses = plain.train()
    for step, expected in enumerate(losses):
        closure = closure_of(run, step)
        loss = run.optimizer.step(closure=closure) if keyword else run.optimizer.step(closure)
        run.scheduler.step()
        assert loss.item() == expected
    assert_same(run, plain)


@pytest.mark.parametrize("optimizer", ["lbfgs", "lbfgs-wolfe"])
@pytest.mark.parametrize("method", ["slats", "str", "gpo"])
def test_every_call_of_many_sees_weights_that_are_thresholded(optimizer, method):
    """GPO's weights are only nearly sparse: there, w differs from θ wherever θ is small."""
    run, seen = Run.of(optimizer, method), []
    run.train(range(3))
    run.optimizer.step(closure_of(run, 3, seen))
    assert len(seen) > 1
    thetas = list(run.pruner.theta.values())
    for first, *_ in seen:
        assert (first == 0).any() or method == "gpo"
        assert not torch.equal(first, thetas[0])
    assert not torch.equal(seen[0][0], seen[-1][0])


@pytest.mark.parametrize("method", ["slats", "str"])
def test_a_closure_that_fails_leaves_the_weights_as_they_were(method):
    run, twin = Run.of("momentum", method), Run.of("momentum", method)
    run.train(range(3))
    twin.train(range(3))

    def closure():
        raise RuntimeError("no batch")

    with pytest.raises(RuntimeError, match="no batch"):
        run.optimizer.step(closure)
    assert_same(run, twin)
    run.train(range(3, 6))
    twin.train(range(3, 6))
    assert_same(run, twin)


def test_the_gradient_of_a_trained_threshold_is_made_anew_at_every_call():
    """Also when the closure clears the model's gradients and not the optimizer's."""
    runs = Run.of("lbfgs", "str"), Run.of("lbfgs", "str")
    for run, clear in zip(runs, (runs[0].optimizer.zero_grad, runs[1].model.zero_grad), strict=True):

        def closure(run=run, clear=clear):
            clear()
            loss = loss_of(run.model, 0)
            loss.backward()
            return loss

        for _ in range(3):
            run.optimizer.step(closure)
    assert_same(*runs)


def test_the_closure_of_the_user_is_called_with_gradients_enabled():
    run, modes = Run.of("sgd"), []

    def closure():
        modes.append(torch.is_grad_enabled())
        return loss_of(run.model, 0)

    with torch.no_grad():
        run.optimizer.step(closure)
    assert modes == [True]


def test_without_a_pruner_the_closure_is_the_users_again():
    run, seen = Run.of("sgd", lambda params: sp.Constant(10.0)), []
    run.pruner.detach()
    run.optimizer.step(closure_of(run, 0, seen))
    run.optimizer.step(closure_of(run, 0, seen))
    assert not (seen[1][1] == 0).any()  # the last layer learns again


class Counting(sp.SoftThreshold):
    """Counts how often w is written."""

    writes = 0

    def write(self, weights, *columns):
        type(self).writes += 1
        super().write(weights, *columns)


class Perturbing(torch.optim.SGD):
    """Moves the weights before it asks for the loss, as SAM does."""

    @torch.no_grad()
    def step(self, closure):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(0.5)
        return super().step(closure)


class PerturbingData(torch.optim.SGD):
    """The same, past autograd's version counters."""

    @torch.no_grad()
    def step(self, closure):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(0.5)
        return super().step(closure)


@pytest.mark.parametrize(("optimizer", "each"), [(torch.optim.SGD, 1), (torch.optim.AdamW, 1), (Perturbing, 2)])
def test_w_is_written_once_a_step_unless_something_has_moved(optimizer, each):
    """Trainers such as Lightning pass a closure to every step, which finds w as the last step wrote it."""
    run = Run.of(lambda groups: optimizer(groups, lr=0.1), prox=Counting())
    Counting.writes = 0
    for step in range(4):
        run.optimizer.step(closure_of(run, step))
    assert Counting.writes == 4 * each


@pytest.mark.parametrize("optimizer", [Perturbing, PerturbingData])
def test_a_closure_sees_what_an_optimizer_moved_before_it_asked(optimizer):
    run = Run.of(lambda groups: optimizer(groups, lr=0.0))
    before = {name: theta.clone() for name, theta in run.pruner.theta.items()}
    seen: list = []
    run.optimizer.step(closure_of(run, 0, seen))
    for theta, w in zip(before.values(), seen[0], strict=True):
        torch.testing.assert_close(w, theta + 0.5)  # d = 0 in the first step
