"""Step hooks: once for each step, before those of others, and without waiting for a device."""

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import (
    METHODS,
    STEPS,
    Oracle,
    Run,
    assert_follows,
    loss_of,
    network,
    saved,
)


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


class Still(torch.optim.Optimizer):
    """Does nothing with its learning rate."""

    def __init__(self, params, lr) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure=None) -> None: ...


class Distant(torch.Tensor):
    """Says that it lies on another device."""

    device = torch.device("cuda")


def test_the_host_does_not_wait_for_a_learning_rate_on_a_device():
    """A schedule needs it for nobody but who asks for the penalty. Here no device is one: to read it raises."""
    model = network()
    optimizer = Still(model.parameters(), lr=torch.empty((), device="meta"))
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Linear(0.2, STEPS))
    for _ in range(STEPS):
        optimizer.step()
    assert set(pruner.threshold.values()) == {0.2}
    with pytest.raises(RuntimeError, match="meta"):
        _ = pruner.penalty


@pytest.mark.parametrize("threshold", [sp.LATS(0.1), sp.TargetSparsity(0.5, STEPS)])
def test_a_threshold_that_follows_the_learning_rate_counts_with_numbers(threshold):
    """Also where the learning rate is a tensor on a device; what it remembers can be saved as ever."""
    states = []
    for lr in (0.125, torch.tensor(0.125).as_subclass(Distant)):
        model = network()
        optimizer = Still(model.parameters(), lr)
        pruner = sp.Pruner(sp.select(model), optimizer, threshold=threshold)
        for _ in range(STEPS // 2):
            optimizer.step()
        states.append(str(saved(pruner.state_dict())))
    assert states[0] == states[1]


def test_hooks_of_others_see_the_sparse_weights_whenever_they_were_registered():
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(int((model.weight == 0).sum())))
    sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(10.0))
    optimizer.register_step_post_hook(lambda *_: seen.append(int((model.weight == 0).sum())))
    optimizer.step()
    assert seen == [4, 4]
