"""A step that fails does no harm: it does not count, and the weights become sparse again."""

import pytest
import torch

import softprune as sp
from oracles import METHODS, STEPS, Run, assert_same, loss_of, shrink, stop


class Failing(torch.optim.SGD):
    """Updates its parameters, and then breaks once."""

    broken = False

    def step(self, closure=None):
        loss = super().step(closure)
        if self.broken:
            raise RuntimeError("device lost")
        return loss


def failed(method: str = "slats") -> Run:
    run = Run.of(lambda groups: Failing(groups, lr=0.1, momentum=0.9), METHODS[method])
    run.train(range(4))
    run.optimizer.broken = True
    loss_of(run.model, 4).backward()
    with pytest.raises(RuntimeError, match="device lost"):
        run.optimizer.step()
    run.optimizer.broken = False
    run.optimizer.zero_grad()
    return run


def test_the_sparsity_after_a_step_that_failed_midway_is_that_of_the_sparse_weights():
    run = failed()
    assert not any((p == 0).any() for p in run.pruner.params.values())  # the model holds θ
    shown = run.pruner.sparsity()
    stop(run.pruner)
    assert shown == run.pruner.sparsity() > 0


def test_a_step_that_failed_is_tried_again_with_the_gradient_of_one():
    run, other = (Run.of(lambda groups: Failing(groups, lr=0.1), METHODS["str"]) for _ in range(2))
    for one in (run, other):
        loss_of(one.model, 0).backward()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", lambda self, closure=None: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.optimizer.step()
    run.optimizer.step()
    other.optimizer.step()
    assert_same(run, other)


@pytest.mark.parametrize("method", ["slats", "lats", "str"])
def test_after_a_step_that_failed_midway_the_next_one_goes_on(method):
    """What the failed step wrote is kept; it did not count, so d did not grow."""
    run = failed(method)
    assert run.pruner.step == 4
    run.train(range(5, STEPS))
    assert run.pruner.step == STEPS - 1
    for name, theta in run.pruner.theta.items():
        d = run.pruner.threshold[name]
        torch.testing.assert_close(run.pruner.params[name].data, shrink(theta, d), rtol=1e-12, atol=1e-14)
        assert (run.pruner.params[name] == 0).any()


@pytest.mark.parametrize("end", ["detach", "exit", "state_dict"])
def test_after_a_step_that_failed_midway_the_weights_are_put_back(end):
    run = failed()
    theta = {name: theta.clone() for name, theta in run.pruner.theta.items()}
    d = run.pruner.threshold
    match end:
        case "detach":
            stop(run.pruner)
        case "exit":
            with pytest.warns(UserWarning, match="ends after 4 steps"), run.pruner:
                pass
        case "state_dict":
            run.optimizer.state_dict()
    for name, p in run.pruner.params.items():
        torch.testing.assert_close(p.data, shrink(theta[name], d[name]), rtol=1e-12, atol=1e-14)
        assert (p == 0).any()


def test_an_error_inside_the_context_still_leaves_sparse_weights():
    run = Run.of("adam", lambda params: sp.Constant(0.1))
    run.train(range(2))
    with pytest.raises(IndexError), run.pruner:
        run.model[7]
    assert all((p == 0).any() for p in run.pruner.params.values())
    assert not run.pruner.theta
