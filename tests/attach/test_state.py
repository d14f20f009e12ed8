"""Our entries in `optimizer.state_dict()`: where they lie, and which states are refused."""

import copy

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import METHODS, STEPS, Run, assert_same, falling, groups, loss_of, network, refused, saved, stop

HALF = STEPS // 2


def test_nothing_of_ours_stays_in_the_optimizer():
    half, run = Run.of("adam"), Run.of("adam")
    half.train(range(HALF))
    run.optimizer.load_state_dict(saved(half.optimizer.state_dict()))
    assert len(run.optimizer.state) == len(list(run.model.parameters()))
    for state in run.optimizer.state.values():
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"}


def test_what_was_saved_does_not_follow_later_training():
    run = Run.of("adam", "str")
    run.train(range(2))
    file = saved(run.optimizer.state_dict())
    kept = copy.deepcopy(file)
    run.optimizer.load_state_dict(file)
    run.train(range(2, 5))
    ours = [(number, key) for number, entry in kept["state"].items() for key in entry if key.startswith("softprune")]
    assert ours
    for number, key in ours:
        then, now = kept["state"][number][key], file["state"][number][key]
        assert torch.equal(now, then) if isinstance(then, torch.Tensor) else now == then


def test_a_dense_state_is_refused():
    dense = network()
    optimizer = torch.optim.Adam(dense.parameters())
    loss_of(dense, 0).backward()
    optimizer.step()
    model = network()
    pruned = torch.optim.Adam(model.parameters())
    pruner = sp.Pruner(sp.select(model), pruned, threshold=sp.SLATS(0.2, STEPS))
    with pytest.raises(ValueError, match=r"saved without a pruner.*load it before building the Pruner"):
        pruned.load_state_dict(optimizer.state_dict())
    assert pruner.step == 0


def test_a_state_with_hidden_weights_is_not_loaded_first():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    sp.Pruner(sp.select(model), optimizer, threshold=sp.SLATS(0.2, STEPS))
    loss_of(model, 0).backward()
    optimizer.step()
    model = network(seed=1)
    fresh = torch.optim.Adam(model.parameters())
    fresh.load_state_dict(saved(optimizer.state_dict()))
    with pytest.raises(ValueError, match="Build the Pruner first, and load the optimizer's state then"):
        sp.Pruner(sp.select(model), fresh, threshold=sp.SLATS(0.2, STEPS))


def test_a_state_that_is_loaded_past_the_hooks_is_noticed():
    """As bitsandbytes' optimizers load theirs."""

    class Loading(torch.optim.SGD):
        def load_state_dict(self, state_dict):
            params = [p for group in self.param_groups for p in group["params"]]
            self.__setstate__({"state": {params[number]: entry for number, entry in state_dict["state"].items()}})

    def build() -> tuple[torch.nn.Module, Loading, sp.Pruner]:
        model = network()
        optimizer = Loading(model.parameters(), lr=0.1)
        return model, optimizer, sp.Pruner(sp.select(model), optimizer, threshold=sp.SLATS(0.2, STEPS))

    _, before, _ = build()
    model, optimizer, _ = build()
    optimizer.load_state_dict(before.state_dict())
    loss_of(model, 0).backward()
    with pytest.raises(RuntimeError, match=r"Loading.load_state_dict runs no hooks. Save `pruner.state_dict\(\)`"):
        optimizer.step()


@pytest.mark.parametrize(
    ("saved_with", "loaded_by"),
    [("slats", "str"), ("str", "slats"), ("str", "gpo"), ("str-shared", "str")],
)
@pytest.mark.parametrize("of", ["optimizer", "pruner"])
def test_another_kind_of_threshold_is_refused(saved_with, loaded_by, of):
    run, other = Run.of("sgd", saved_with), Run.of("sgd", loaded_by)
    with pytest.raises(ValueError, match="Build the Pruner with the threshold of that run"):
        getattr(other, of).load_state_dict(getattr(run, of).state_dict())


def test_a_threshold_with_more_parameters_is_refused():
    """By the pruner; an optimizer that holds fewer parameters refuses by itself."""
    run, other = Run.of("sgd", "gpo"), Run.of("sgd", "str")
    refused(lambda: other.pruner.load_state_dict(run.pruner.state_dict()), "it holds threshold.1 of another threshold.")


def test_a_refused_state_leaves_the_optimizer_alone():
    run = Run.of("momentum", "slats")
    other = torch.optim.SGD((model := network()).parameters(), lr=0.5, momentum=0.9)
    sp.Pruner(sp.select(model), other, threshold=sp.TargetSparsity(0.5, STEPS))
    before = saved(run.optimizer.state_dict())
    with pytest.raises(ValueError, match="it was saved with another threshold than SLATS"):
        run.optimizer.load_state_dict(other.state_dict())
    assert str(run.optimizer.state_dict()) == str(before)


@pytest.mark.parametrize("of", ["optimizer", "pruner"])
@pytest.mark.parametrize("kind", ["another shape", "another network"])
def test_the_state_of_another_model_is_refused(of, kind):
    run, other = Run.of("sgd"), Run.of("sgd", kind="conv" if kind == "another network" else "linear")
    text = "another model"
    if kind == "another shape":
        model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 2)).double()
        optimizer = torch.optim.SGD(groups(model, []), lr=0.1)
        pruner = sp.Pruner(sp.select(model), optimizer, threshold=METHODS["slats"]({}))
        other = Run(model, optimizer, pruner, falling(optimizer), torch.float64)
        text = "'2.weight' has the shape (2, 7), and the state holds (3, 7). It is the state of another model."
    before = {name: value.clone() for name, value in other.numbers()}
    refused(lambda: getattr(other, of).load_state_dict(getattr(run, of).state_dict()), text)
    assert all(torch.equal(value, before[name]) for name, value in other.numbers())


def test_parameters_may_join_the_optimizer_later():
    run, twin = Run.of("adam"), Run.of("adam")
    run.train(range(2))
    run.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3, 3))], "initial_lr": 0.1})
    run.scheduler = None
    state = run.optimizer.state_dict()
    run.optimizer.load_state_dict(state)
    run.train(range(2, 4))
    twin.train(range(2))
    twin.scheduler = None
    twin.train(range(2, 4))
    assert_same(run, twin)


def test_what_is_no_state():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1))
    refused(lambda: pruner.load_state_dict({}), "it holds no hidden weights for '0.weight'")
    refused(lambda: pruner.load_state_dict({"step": 3}), "`Pruner.state_dict()` did not give it")
    good = pruner.state_dict()
    without = {name: {key: value for key, value in values.items() if key != "step"} for name, values in good.items()}
    refused(lambda: pruner.load_state_dict(without), "it holds no hidden weights")
    odd = {name: {**values, "threshold": None} for name, values in good.items()}
    refused(lambda: pruner.load_state_dict(odd), "another threshold than Constant")


def test_a_detached_pruner_has_no_state():
    run = Run.of("sgd")
    saved = run.pruner.state_dict()
    stop(run.pruner)
    text = "A detached pruner has no state. Save or load it before `detach()`."
    refused(run.pruner.state_dict, text, RuntimeError)
    refused(lambda: run.pruner.load_state_dict(saved), text, RuntimeError)
