"""What a pruner refuses when it is built, with a sentence that says what to write instead."""

import math
from functools import partial

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import network, refused
from proxes import Rows
from softprune.errors import UserError


def test_parameters_that_the_optimizer_does_not_hold():
    model = network()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer, threshold=sp.Constant(0.1))
    before = model[0].weight.clone()
    refused(build, "The optimizer does not hold '2.weight'. Build it from the parameters that are to be pruned")
    assert torch.equal(model[0].weight, before)  # a refused pruner leaves no trace
    assert not optimizer._optimizer_step_pre_hooks
    many = {f"w{i}": nn.Parameter(torch.ones(2, 2)) for i in range(7)}
    refused(lambda: sp.Pruner(many, optimizer, threshold=sp.Constant(0.1)), "'w4' and 2 more.")


class Lookahead(torch.optim.Optimizer):
    def __init__(self, optimizer) -> None:
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups


class ScheduleFree(torch.optim.SGD):
    def train(self) -> None: ...

    def eval(self) -> None: ...


def test_optimizers_that_move_weights_outside_of_their_steps():
    model = network()
    params = sp.select(model)
    around = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
    text = "Cannot prune under Lookahead. This is because it may move weights outside of the steps"
    refused(lambda: sp.Pruner(params, around, threshold=sp.Constant(0.1)), text, TypeError)
    free = ScheduleFree(model.parameters(), lr=0.1)
    text = "Cannot prune under ScheduleFree. This is because a schedule-free optimizer trades the weights"
    refused(lambda: sp.Pruner(params, free, threshold=sp.Constant(0.1)), text, TypeError)


def test_one_parameter_under_two_names():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    twice = {"a": model[0].weight, "b": model[0].weight}
    text = "'a' and 'b' are one parameter, which cannot be pruned twice. Drop one."
    refused(lambda: sp.Pruner(twice, optimizer, threshold=sp.Constant(0.1)), text)


@pytest.mark.parametrize("make", [lambda params: sp.STR(params, init=-2.0), lambda params: sp.GPO(params, init=-2.0)])
def test_a_trained_threshold_that_the_optimizer_does_not_hold(make):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    params = sp.select(model)
    threshold = make(params)
    build = partial(sp.Pruner, params, optimizer, threshold=threshold)
    line = "optimizer.add_param_group({'params': threshold.parameters()})"
    refused(build, f"does not hold the parameters of `{type(threshold).__name__}`")
    refused(build, f"Write `{line}` before making an lr scheduler")
    exec(line)
    assert build().step == 0  # the line that the error prints is the line that helps


def test_a_threshold_built_for_other_parameters():
    model = network()
    params = sp.select(model)
    threshold = sp.STR({"0.weight": params["0.weight"]}, init=-2.0)
    optimizer = torch.optim.SGD([*model.parameters(), *threshold.parameters()], lr=0.1)
    text = "`STR` was built for other parameters than `Pruner` is given. Pass the same mapping to both."
    refused(lambda: sp.Pruner(params, optimizer, threshold=threshold), text)
    refused(lambda: sp.STR({}, init=0.0), "`STR(params=...)` must hold at least one parameter.")
    text = "`STR(transform=...)` must be one of ['sigmoid', 'exp']. Got 'tanh'."
    refused(lambda: sp.STR(params, init=0.0, transform="tanh"), text)


def pruner(**arguments):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    defaults = {"params": sp.select(model), "optimizer": optimizer, "threshold": sp.Constant(0.1)}
    return sp.Pruner(**{**defaults, **arguments})


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"params": [torch.ones(2, 2)]}, TypeError, "must be a mapping {name: Parameter}. Got list: write `softprune"),
        ({"params": network()}, TypeError, "Got Sequential: write `softprune.select(model)`."),
        ({"params": {}}, ValueError, "`Pruner(params=...)` is empty. Write `softprune.select(model)`."),
        ({"params": {"a": 1.0}}, TypeError, "Cannot prune 'a': it is not a floating-point parameter."),
        ({"params": {"a": torch.ones(2, dtype=torch.int8)}}, TypeError, "Cannot prune 'a'"),
        (
            {"optimizer": network()},
            TypeError,
            "`Pruner(optimizer=...)` must be a torch.optim.Optimizer. Got Sequential",
        ),
        (
            {"threshold": 0.5},
            TypeError,
            "write `softprune.TargetSparsity(0.5, steps)` for a sparsity, `softprune.Constant(0.5)`",
        ),
        ({"threshold": None}, TypeError, "`Pruner(threshold=...)` must be a schedule or a threshold. Got None."),
        ({"threshold": sp.SLATS}, TypeError, "`Pruner(threshold=...)` must be a schedule or a threshold. Got <class"),
        ({"prox": sp.SoftThreshold}, TypeError, "must be a prox, such as `softprune.SoftThreshold()`. Got <class"),
        ({"prox": sp.Blend()}, TypeError, "Blend() reads d and k, and Scheduled gives 1 of them. Leave `prox` out"),
        (
            {"gradient": "identity"},
            TypeError,
            "must be `softprune.identity`, `softprune.calm` or `softprune.subgradient`. Got 'identity'.",
        ),
    ],
)
def test_arguments_of_the_wrong_kind(arguments, error, text):
    refused(lambda: pruner(**arguments), text, error)


def test_gpo_brings_its_own_prox():
    model = network()
    params = sp.select(model)
    threshold = sp.GPO(params, init=-2.0)
    optimizer = torch.optim.SGD([*model.parameters(), *threshold.parameters()], lr=0.1)
    text = (
        "SoftThreshold() reads d, and GPO gives 2 of them. Leave `prox` out: each threshold brings the prox that fits"
    )
    refused(lambda: sp.Pruner(params, optimizer, threshold=threshold, prox=sp.SoftThreshold()), text, TypeError)
    assert sp.Pruner(params, optimizer, threshold=threshold).prox == sp.Blend()


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_a_derivative_without_a_bound_is_not_followed(p):
    arguments = {"prox": sp.PowerThreshold(p), "gradient": sp.subgradient}
    text = f"Cannot use PowerThreshold(p={p}) with subgradient. This is because the derivative of the mapping has no"
    refused(lambda: pruner(**arguments), text, TypeError)
    model = network()
    threshold = sp.STR(sp.select(model), init=-2.0)
    optimizer = torch.optim.SGD([*model.parameters(), *threshold.parameters()], lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer, threshold=threshold, gradient=sp.identity)
    refused(partial(build, prox=sp.PowerThreshold(p)), f"Cannot use PowerThreshold(p={p}) with STR.", TypeError)


def test_a_trained_threshold_needs_a_map_that_depends_on_it():
    model = network()
    threshold = sp.STR(sp.select(model), init=-2.0)
    optimizer = torch.optim.SGD([*model.parameters(), *threshold.parameters()], lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer, threshold=threshold, prox=sp.PowerThreshold(math.inf))
    refused(build, "Cannot use STR with PowerThreshold(p=inf). This is because the weights that survive", TypeError)


@pytest.mark.parametrize("p", [1.0, math.inf])
def test_a_derivative_with_a_bound_is(p):
    assert pruner(prox=sp.PowerThreshold(p), gradient=sp.subgradient).prox == sp.PowerThreshold(p)


def test_a_pruner_that_cannot_be_built_claims_nothing(monkeypatch):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer, threshold=sp.Constant(0.1))
    with monkeypatch.context() as patch:
        patch.setattr(sp.SoftThreshold, "write", lambda *_: 1 / 0)
        refused(build, "division by zero", ZeroDivisionError)
    assert not optimizer._optimizer_step_pre_hooks
    build()


@pytest.mark.parametrize("d", [-0.1, float("nan"), float("inf")])
def test_a_schedule_that_gives_no_threshold(d):
    refused(lambda: pruner(threshold=lambda step: d), "A threshold must be >= 0 and finite. <function")


@pytest.fixture
def one_process():
    """A process group of its own, so that parameters can be sharded."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_a_prox_that_does_not_map_weights_one_by_one_is_refused_on_shards():
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(network(), mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer, threshold=sp.Constant(0.1))
    refused(lambda: build(prox=Rows()), "Cannot use Rows() with sharded parameters.", TypeError)
    assert build().sparsity() > 0


def test_wrong_arguments_of_a_trained_threshold():
    params = sp.select(network())
    refused(
        lambda: sp.STR(list(params.values()), init=-2.0), "must be a mapping {name: Parameter}. Got list", TypeError
    )
    refused(lambda: sp.STR(params, init=float("nan")), "`STR(init=...)` must be finite. Got nan.")
    refused(lambda: sp.GPO(params, init="a"), "`GPO(init=...)` must be finite. Got 'a'.")


def test_a_schedule_that_gives_no_number():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer)
    refused(lambda: build(threshold=lambda step: None), "A threshold must be >= 0 and finite.")


@pytest.mark.parametrize("state", [None, 3, {"0.weight": {"theta": 1.0}}])
def test_what_is_no_state_of_a_pruner(state):
    model = network()
    pruner = sp.Pruner(sp.select(model), torch.optim.SGD(model.parameters(), lr=0.1), threshold=sp.Constant(0.1))
    with pytest.raises((ValueError, TypeError), match=r"takes a mapping|holds no hidden weights"):
        pruner.load_state_dict(state)


def test_every_sentence_for_users_is_a_user_error():
    """So that a trainer or a command can print it; everything else is a defect."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for arguments in ({"threshold": 0.5}, {"threshold": sp.Constant(0.1), "prox": 3}):
        with pytest.raises(UserError):
            sp.Pruner(sp.select(model), optimizer, **arguments)
    with pytest.raises(UserError):
        sp.Pruner(sp.select(model), object(), threshold=sp.Constant(0.1))
