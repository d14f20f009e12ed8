"""Every wrong argument is refused at construction, with a sentence that says what to write instead."""

import gc
import math
import re
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import Run, loss_of, network

SCHEDULES = [sp.SLATS, partial(sp.PGH, beta=0.1), sp.Sine, sp.Linear, sp.Log2]


def refused(build, text, error=ValueError):
    with pytest.raises(error, match=re.escape(text)):
        build()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_a_schedule_refuses(schedule):
    name = type(schedule(0.5, 10)).__name__
    for final in (-1.0, float("nan"), float("inf")):
        refused(partial(schedule, final, 10), f"`{name}(final=...)` must be >= 0 and finite. Got {final}.")
    for steps in (0, -3, 2.5):
        refused(partial(schedule, 0.5, steps), f"`{name}(steps=...)` must be a whole number >= 1. Got {steps}.")
    for start in (-1, 0.5):
        text = f"`{name}(start=...)` must be a whole number >= 0. Got {start}."
        refused(partial(schedule, 0.5, 10, start=start), text)
    for start in (10, 11):
        text = f"`{name}(start=...)` must be < steps = 10. Got {start}."
        refused(partial(schedule, 0.5, 10, start=start), text)
    assert schedule(0.0, 10, start=9)(10) == 0.0  # the edges are allowed


@pytest.mark.parametrize("beta", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_pgh_refuses_a_beta_outside_0_and_1_and_names_its_limits(beta):
    refused(lambda: sp.PGH(0.5, 10, beta=beta), f"`PGH(beta=...)` must be > 0 and < 1. Got {beta}.")
    refused(lambda: sp.PGH(0.5, 10, beta=beta), "write `Constant(0.5)`; for a constant penalty")
    refused(lambda: sp.PGH(0.5, 10, beta=beta), "write `SLATS(0.5, 10)`.")


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: sp.Constant(-0.1), "`Constant(final=...)` must be >= 0 and finite. Got -0.1."),
        (lambda: sp.Constant(0.1, start=-1), "`Constant(start=...)` must be a whole number >= 0. Got -1."),
        (lambda: sp.LATS(-1.0), "`LATS(penalty=...)` must be >= 0 and finite. Got -1.0."),
        (lambda: sp.LATS(1.0, start=-1), "`LATS(start=...)` must be a whole number >= 0. Got -1."),
        (lambda: sp.LATS.cosine(-1.0, 2, 2), "`CosineLATS(final=...)` must be >= 0 and finite. Got -1.0."),
        (lambda: sp.LATS.cosine(1.0, 0, 2), "`CosineLATS(epochs=...)` must be a whole number >= 1. Got 0."),
        (lambda: sp.LATS.cosine(1.0, 2, 0), "`CosineLATS(batches=...)` must be a whole number >= 1. Got 0."),
        (lambda: sp.SLATS(1.0, 10, lr=lambda x: 0.5 - x), "must be a curve h(x) >= 0 on [0, 1]. Got h("),
        (lambda: sp.SLATS(1.0, 10, lr=lambda x: 0.0), "must be positive somewhere after the start of pruning."),
        (lambda: sp.PGH(1.0, 10, 0.1).stop(slope=0.0), "`PGH.stop(slope=...)` must be > 0. Got 0.0."),
    ],
)
def test_what_thresholds_refuse(build, text):
    refused(build, text)


def scheduler():
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: sp.LATS.from_final(-1.0, scheduler(), 10), ValueError, "`LATS.from_final(final=...)` must be >= 0"),
        (
            lambda: sp.LATS.from_final(1.0, scheduler(), 0),
            ValueError,
            "(steps=...)` must be a whole number >= 1. Got 0.",
        ),
        (lambda: sp.LATS.from_final(1.0, scheduler(), 5, start=5), ValueError, "must be < steps = 5. Got 5."),
        (lambda: sp.LATS.from_final(1.0, scheduler(), 5, interval=0), ValueError, "`LATS.from_final(interval=...)`"),
        (
            lambda: sp.LATS.from_final(1.0, torch.optim.lr_scheduler.ReduceLROnPlateau(scheduler().optimizer), 5),
            TypeError,
            "Cannot play a ReduceLROnPlateau forward.",
        ),
    ],
)
def test_what_lats_from_a_final_threshold_refuses(build, error, text):
    refused(build, text, error)


def test_a_scheduler_that_ends_before_the_run():
    one_cycle = torch.optim.lr_scheduler.OneCycleLR(torch.optim.SGD([torch.zeros(1)], lr=0.1), 0.1, total_steps=100)
    refused(
        lambda: sp.LATS.from_final(1.0, one_cycle, 200), "`lr_scheduler` ends after 101 optimizer steps, and 200"
    )  # as torch counts
    assert sp.LATS.from_final(1.0, one_cycle, 100).penalty > 0


def test_lats_from_a_final_threshold_refuses_a_learning_rate_of_zero():
    zero = torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD([torch.zeros(1)], lr=0.1), lambda step: 0.0)
    refused(lambda: sp.LATS.from_final(1.0, zero, 5), "needs learning rates that sum to more than 0. Got 0.0 over 5")


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


class Stepwise(torch.optim.Optimizer):
    """Without learning rates."""

    def __init__(self, params) -> None:
        super().__init__(params, {"size": 0.1})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=self.param_groups[0]["size"])


@pytest.mark.parametrize("threshold", [sp.LATS(0.1), sp.TargetSparsity(0.9, 10)])
def test_thresholds_that_follow_the_learning_rate_need_one(threshold):
    model = network()
    nothing = torch.optim.SGD(model.parameters(), lr=0.1)
    nothing.param_groups[0]["lr"] = None  # as Adafactor, which finds its own
    for optimizer in (Stepwise(model.parameters()), nothing):
        text = f"{type(threshold).__name__} follows the learning rate, and {type(optimizer).__name__} has none"
        refused(partial(sp.Pruner, sp.select(model), optimizer, threshold=threshold), text)


@pytest.mark.parametrize("threshold", [sp.SLATS(0.2, 4), "str"])
def test_other_thresholds_need_no_learning_rate(threshold):
    model = network()
    params = sp.select(model)
    threshold = sp.STR(params, init=-2.0) if threshold == "str" else threshold
    more = threshold.parameters() if isinstance(threshold, sp.STR) else ()
    optimizer = Stepwise([*model.parameters(), *more])
    with sp.Pruner(params, optimizer, threshold=threshold) as pruner:
        for step in range(4):
            loss_of(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert pruner.step == 4
        assert pruner.sparsity() > 0.1
        penalty = pruner.penalty
        assert all(math.isnan(mu) for mu in (penalty.values() if isinstance(penalty, dict) else [penalty]))


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
    text = "Cannot prune under Lookahead: it may move weights outside of the steps of the optimizer in it"
    refused(lambda: sp.Pruner(params, around, threshold=sp.Constant(0.1)), text, TypeError)
    free = ScheduleFree(model.parameters(), lr=0.1)
    text = "Cannot prune under ScheduleFree: as a schedule-free optimizer it trades the weights"
    refused(lambda: sp.Pruner(params, free, threshold=sp.Constant(0.1)), text, TypeError)


class Rows(sp.Prox):
    """The group Lasso over rows."""

    def __call__(self, theta, d):
        norm = theta.norm(dim=1, keepdim=True)
        return theta * (1 - d / norm.clamp(min=1e-12)).clamp(min=0)

    def penalty(self, w, d):
        return d * w.norm(dim=1, keepdim=True)

    def inverse(self, w, d):
        return w * (1 + d / w.norm(dim=1, keepdim=True).clamp(min=1e-12))


def test_a_target_needs_a_prox_whose_zeros_it_can_count():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer, prox=Rows())
    refused(partial(build, threshold=sp.TargetSparsity(0.5, 10)), "Cannot use TargetSparsity with", TypeError)
    with build(threshold=sp.Constant(100.0)) as pruner:
        assert pruner.sparsity() == 1.0


def test_what_is_no_state():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1))
    refused(lambda: pruner.load_state_dict({}), "it is none that `Pruner.state_dict()` gave")


def test_one_parameter_under_two_names():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    twice = {"a": model[0].weight, "b": model[0].weight}
    text = "'a' and 'b' are one parameter, which cannot be pruned twice. Drop one."
    refused(lambda: sp.Pruner(twice, optimizer, threshold=sp.Constant(0.1)), text)


def test_one_parameter_under_two_pruners_until_the_first_is_detached():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = sp.Pruner({"0.weight": model[0].weight}, optimizer, threshold=sp.Constant(0.1))
    build = partial(sp.Pruner, sp.select(model), optimizer, threshold=sp.Constant(0.1))
    refused(build, "'0.weight' is pruned already. Call `detach()` on its pruner first, or leave it out.")
    other = torch.optim.Adam(model.parameters())
    refused(lambda: sp.Pruner(sp.select(model), other, threshold=sp.Constant(0.1)), "'0.weight' is pruned already.")
    first.detach()
    assert build().step == 0


def test_an_optimizer_keeps_its_pruner_and_both_go_together():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1))  # nobody holds it but the hooks
    gc.collect()
    fresh = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), fresh, threshold=sp.Constant(0.1))
    refused(build, "is pruned already")
    del optimizer
    gc.collect()
    assert build().step == 0


@pytest.mark.parametrize("argument", ["include", "exclude"])
def test_a_pattern_that_matches_nothing(argument):
    text = f"`select({argument}=...)` pattern '2.wieght' matches no trainable parameter. Candidates: 2.weight"
    refused(lambda: sp.select(network(), **{argument: ["2.wieght"]}), text)
    text = f"`select({argument}=...)` must be a list of patterns. Got the string '2.*': write `{argument}=['2.*']`."
    refused(lambda: sp.select(network(), **{argument: "2.*"}), text, TypeError)


def test_a_selection_of_nothing():
    text = "no parameter is left that has two dimensions or more and `weight` in its name. Candidates: "
    refused(lambda: sp.select(nn.LayerNorm(4)), text + "weight, bias.")
    refused(lambda: sp.select(network(), exclude=["*"]), text + "0.weight, 0.bias, 2.weight, 2.bias.")
    refused(lambda: sp.select(nn.Sequential(*(nn.LayerNorm(2) for _ in range(9)))), "6 more.")


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
        ({"threshold": 0.5}, TypeError, "must be a schedule or a threshold. Got 0.5: write `softprune.Constant(0.5)`."),
        ({"threshold": None}, TypeError, "`Pruner(threshold=...)` must be a schedule or a threshold. Got None."),
        ({"threshold": sp.SLATS}, TypeError, "`Pruner(threshold=...)` must be a schedule or a threshold. Got <class"),
        ({"prox": sp.SoftThreshold}, TypeError, "must be a prox, such as `softprune.SoftThreshold()`. Got <class"),
        ({"prox": None}, TypeError, "must be a prox, such as `softprune.SoftThreshold()`. Got None."),
        ({"prox": sp.Blend()}, TypeError, "Blend() reads d and k, and Scheduled gives 1 of them. Leave `prox` out"),
        (
            {"gradient": "identity"},
            TypeError,
            "must be `softprune.identity` or `softprune.subgradient`. Got 'identity'.",
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
    text = "Cannot use GPO with Blend(). This is because GPO blends the soft threshold with the identity. Leave `prox`"
    refused(lambda: sp.Pruner(params, optimizer, threshold=threshold, prox=sp.Blend()), text, TypeError)


def test_the_state_of_another_model():
    run, smaller = Run.of("sgd"), nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 2)).double()
    optimizer = torch.optim.SGD(smaller.parameters(), lr=0.1)
    other = sp.Pruner(sp.select(smaller), optimizer, threshold=sp.Constant(0.1))
    text = "'2.weight' has the shape (2, 7), and the state holds (3, 7). It is the state of another model."
    refused(lambda: optimizer.load_state_dict(run.optimizer.state_dict()), text)
    refused(lambda: other.load_state_dict(run.pruner.state_dict()), text)
    loss_of(run.model, 0).backward()
    run.optimizer.step()


def test_a_pruner_that_cannot_be_built_claims_nothing(monkeypatch):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    build = partial(sp.Pruner, sp.select(model), optimizer, threshold=sp.Constant(0.1))
    with monkeypatch.context() as patch:
        patch.setattr(sp.SoftThreshold, "write", lambda *_: 1 / 0)
        refused(build, "division by zero", ZeroDivisionError)
    assert not optimizer._optimizer_step_pre_hooks
    build()


def test_a_pruner_that_nobody_holds_any_more_is_in_nobodys_way():
    model = network()
    for _ in range(2):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1))
        del optimizer


@pytest.mark.parametrize("d", [-0.1, float("nan"), float("inf")])
def test_a_schedule_that_gives_no_threshold(d):
    refused(lambda: pruner(threshold=lambda step: d), "A threshold must be >= 0 and finite. <function")


def test_a_model_without_shapes():
    text = "0.weight, 0.bias have no shape yet. Run one batch through the model first."
    refused(lambda: sp.select(nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2))), text)


def test_a_detached_pruner_has_no_state():
    run = Run.of("sgd")
    saved = run.pruner.state_dict()
    run.pruner.detach()
    text = "A detached pruner has no state. Save or load it before `detach()`."
    refused(run.pruner.state_dict, text, RuntimeError)
    refused(lambda: run.pruner.load_state_dict(saved), text, RuntimeError)


def test_a_curve_that_cannot_be_remembered():
    @dataclass
    class Curve:
        def __call__(self, x: float) -> float:
            return 1.0

    refused(lambda: sp.SLATS(1.0, 10, lr=Curve()), "`SLATS(lr=...)` must be hashable", TypeError)
    refused(lambda: sp.PGH(1.0, 10, 0.1, lr=Curve()), "`PGH(lr=...)` must be hashable", TypeError)


def test_summarize_takes_a_pruner_or_a_model():
    refused(lambda: sp.summarize([1]), "`summarize` takes a Pruner or a model. Got list.", TypeError)
