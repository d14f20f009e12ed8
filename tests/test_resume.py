"""Whoever saves the optimizer saves the pruning: a resumed run is the uninterrupted run, bit for bit."""

import copy
import pickle

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import softprune as sp
from oracles import METHODS, OPTIMIZERS, STEPS, Run, assert_same, loss_of, network, saved

HALF = STEPS // 2


def interrupted(optimizer: str, method: str, **arguments) -> tuple[Run, Run]:
    """A run of all steps, and one that has half of them behind it."""
    whole, half = Run.of(optimizer, method, **arguments), Run.of(optimizer, method, **arguments)
    whole.train()
    half.train(range(HALF))
    return whole, half


def resumed(half: Run, optimizer: str, method: str, order: str = "model first", **arguments) -> Run:
    """A fresh model, optimizer and pruner, which get what was saved."""
    run = Run.of(optimizer, method, seed=1, **arguments)
    files = saved(half.model.state_dict()), saved(half.optimizer.state_dict())
    if order == "model first":
        run.model.load_state_dict(files[0])
    run.optimizer.load_state_dict(files[1])
    if order == "optimizer first":
        run.model.load_state_dict(files[0])
    run.scheduler.load_state_dict(half.scheduler.state_dict())
    return run


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", METHODS)
def test_resume_is_bit_exact(optimizer, method):
    whole, half = interrupted(optimizer, method)
    run = resumed(half, optimizer, method)
    assert_same(run, half)
    run.train(range(HALF, STEPS))
    assert_same(run, whole)


@pytest.mark.parametrize("method", METHODS)
def test_it_does_not_matter_what_is_loaded_first(method):
    whole, half = interrupted("adam", method)
    run = resumed(half, "adam", method, order="optimizer first")
    run.train(range(HALF, STEPS))
    assert_same(run, whole)


@pytest.mark.parametrize("optimizer", ["momentum", "adamw-fused"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_resume_in_low_precision(optimizer, dtype):
    whole, half = interrupted(optimizer, "str", dtype=dtype)
    run = resumed(half, optimizer, "str", dtype=dtype)
    run.train(range(HALF, STEPS))
    assert_same(run, whole)


@pytest.mark.parametrize("method", METHODS)
def test_the_pruner_has_a_state_of_its_own(method):
    """For those who save no optimizer: with plain SGD there is nothing else to save."""
    whole, half = interrupted("sgd", method)
    run = Run.of("sgd", method, seed=1)
    run.model.load_state_dict(saved(half.model.state_dict()))
    run.pruner.load_state_dict(saved(half.pruner.state_dict()))
    run.scheduler.load_state_dict(half.scheduler.state_dict())
    for group, other in zip(run.optimizer.param_groups, half.optimizer.param_groups, strict=True):
        group["lr"] = other["lr"]
    run.train(range(HALF, STEPS))
    assert_same(run, whole)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_saving_before_the_first_step(optimizer):
    """Adam takes a parameter with any state for initialised: nothing of ours may be in ``optimizer.state``."""
    run, twin = Run.of(optimizer), Run.of(optimizer)
    assert "softprune.theta" in run.optimizer.state_dict()["state"][0]
    assert not run.optimizer.state
    fresh = resumed(run, optimizer, "slats")
    assert not fresh.optimizer.state
    for r in (run, fresh, twin):
        r.train()
    assert_same(run, twin)
    assert_same(fresh, twin)


def test_nothing_of_ours_stays_in_the_optimizer():
    _, half = interrupted("adam", "slats")
    run = resumed(half, "adam", "slats")
    for state in run.optimizer.state.values():
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"}


def test_what_was_saved_does_not_follow_later_training():
    run = Run.of("adam", "str")
    run.train(range(2))
    file = saved(run.optimizer.state_dict())
    kept = copy.deepcopy(file)
    run.optimizer.load_state_dict(file)
    run.train(range(2, 5))
    for number, entry in kept["state"].items():
        for key in set(entry) & {"softprune.theta", "softprune.value", "softprune.step"}:
            assert torch.equal(torch.as_tensor(file["state"][number][key]), torch.as_tensor(entry[key]))


def test_two_pruners_of_one_optimizer_resume():
    def build(seed):
        model = network(seed=seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
        first = sp.Pruner({"0.weight": model[0].weight}, optimizer, threshold=sp.Linear(0.2, STEPS))
        second = sp.Pruner({"2.weight": model[2].weight}, optimizer, threshold=sp.LATS(0.5))
        return model, optimizer, first, second

    def train(model, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()

    model, optimizer, first, second = build(0)
    train(model, optimizer, range(HALF))
    other, fresh, *pruners = build(1)
    other.load_state_dict(saved(model.state_dict()))
    fresh.load_state_dict(saved(optimizer.state_dict()))
    train(model, optimizer, range(HALF, STEPS))
    train(other, fresh, range(HALF, STEPS))
    for a, b in zip((first, second), pruners, strict=True):
        assert (a.step, a.threshold) == (b.step, b.threshold)
        assert all(torch.equal(theta, b.theta[name]) for name, theta in a.theta.items())


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
def test_a_resumed_report_counts_what_the_saved_one_counted(order):
    _, half = interrupted("momentum", "slats")
    run = resumed(half, "momentum", "slats", order)
    assert sp.summarize(run.pruner).zeros == sp.summarize(half.pruner).zeros > 0


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


def test_pruning_starts_from_a_dense_state_that_is_loaded_first():
    dense = network()
    optimizer = torch.optim.Adam(dense.parameters())
    loss_of(dense, 0).backward()
    optimizer.step()
    model = network(seed=1)
    fresh = torch.optim.Adam(model.parameters())
    model.load_state_dict(dense.state_dict())
    fresh.load_state_dict(saved(optimizer.state_dict()))
    pruner = sp.Pruner(sp.select(model), fresh, threshold=sp.SLATS(0.2, STEPS))
    assert all(torch.equal(theta, dict(dense.named_parameters())[name]) for name, theta in pruner.theta.items())


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
            self.state.update({params[number]: entry for number, entry in state_dict["state"].items()})

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
    ("saved_with", "loaded_by"), [("slats", "str"), ("str", "slats"), ("str", "gpo"), ("str-shared", "str")]
)
@pytest.mark.parametrize("of", ["optimizer", "pruner"])
def test_another_kind_of_threshold_is_refused(saved_with, loaded_by, of):
    run, other = Run.of("sgd", saved_with), Run.of("sgd", loaded_by)
    with pytest.raises(ValueError, match="Build the Pruner with the kind of threshold that the state was saved with"):
        getattr(other, of).load_state_dict(getattr(run, of).state_dict())


def test_a_refused_state_leaves_the_optimizer_alone():
    run = Run.of("momentum", "slats")
    other = torch.optim.SGD((model := network()).parameters(), lr=0.5, momentum=0.9)
    sp.Pruner(sp.select(model), other, threshold=sp.TargetSparsity(0.5, STEPS))
    before = saved(run.optimizer.state_dict())
    with pytest.raises(ValueError, match="its threshold adapts to the weights"):
        run.optimizer.load_state_dict(other.state_dict())
    assert str(run.optimizer.state_dict()) == str(before)


@pytest.mark.parametrize("of", ["optimizer", "pruner"])
def test_the_state_of_another_model_is_refused(of):
    run, other = Run.of("sgd", "slats", kind="linear"), Run.of("sgd", "slats", kind="conv")
    before = dict(other.numbers())
    with pytest.raises(ValueError, match=r"Cannot load this state: .* another model"):
        getattr(other, of).load_state_dict(getattr(run, of).state_dict())
    assert all(torch.equal(value, before[name]) for name, value in other.numbers())


@pytest.mark.parametrize("method", ["slats", "lats", "str", "gpo"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw-fused"])
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))], ids=["copy", "pickle"])
def test_a_copy_goes_on_alone(method, optimizer, clone):
    """Model, optimizer and pruner copied together train identically, and leave the original alone."""
    run = Run.of(optimizer, METHODS[method])
    run.train(range(HALF))
    run.scheduler = None  # a LambdaLR holds a lambda, which pickle refuses
    twin = clone(run)
    assert_same(twin, run)
    frozen = {name: value.clone() for name, value in run.numbers()}
    twin.train(range(HALF, STEPS))
    assert all(torch.equal(value, frozen[name]) for name, value in run.numbers())
    run.train(range(HALF, STEPS))
    assert_same(twin, run)
    twin.pruner.detach()
    run.train(range(STEPS, STEPS + 1))
    assert run.pruner.step == STEPS + 1


def test_a_copy_of_the_optimizer_first_or_last():
    run = Run.of("adam")
    run.train(range(2))
    pruner, optimizer, model = copy.deepcopy((run.pruner, run.optimizer, run.model))
    loss_of(model, 2).backward()
    optimizer.step()
    assert (pruner.step, run.pruner.step) == (3, 2)
    assert pruner.params["0.weight"] is model[0].weight


def test_a_detached_pruner_can_be_copied():
    run = Run.of("adam")
    run.train(range(2))
    run.pruner.detach()
    twin = copy.deepcopy(run.pruner)
    assert (twin.step, twin.theta, twin.sparsity()) == (2, {}, run.pruner.sparsity())


def test_a_copy_of_the_model_is_an_ordinary_model():
    run = Run.of("adam")
    run.train(range(HALF))
    twin = copy.deepcopy(run.model)
    sp.Pruner(sp.select(twin), torch.optim.SGD(twin.parameters(), lr=0.1), threshold=sp.Constant(0.0)).detach()
    run.train(range(HALF, STEPS))
    reference = Run.of("adam")
    reference.train()
    assert_same(run, reference)
    assert not torch.equal(twin[0].weight, run.model[0].weight)


def test_an_average_of_the_weights_is_an_average_of_the_sparse_ones():
    run, plain = Run.of("momentum"), Run.of("momentum")
    average = AveragedModel(run.model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    seen = []
    for step in range(STEPS):
        run.train(range(step, step + 1))
        average.update_parameters(run.model)
        seen.append(run.model[0].weight.detach().clone())
    by_hand = seen[0] * 0.5 ** (STEPS - 1) + sum(w * 0.5 ** (STEPS - t) for t, w in enumerate(seen) if t > 0)
    torch.testing.assert_close(average.module[0].weight.data, by_hand)
    plain.train()
    assert_same(run, plain)
