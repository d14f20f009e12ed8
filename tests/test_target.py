"""Ask for a sparsity and get it."""

import copy
import io
import math
import statistics
import weakref
from collections.abc import Container
from itertools import product

import pytest
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import lr_scheduler as schedulers

import softprune as sp
from softprune.thresholds.target import Controller

DIGITS = load_digits()
X = torch.tensor(DIGITS.images, dtype=torch.float32).unsqueeze(1) / 16
Y = torch.tensor(DIGITS.target)
STEPS, BATCH = 200, 64

OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda p: AdamW(p, lr=3e-3, weight_decay=1e-2),
    "adam": lambda p: Adam(p, lr=3e-3),
}
SCHEDULES = {
    "cosine": lambda o: schedulers.SequentialLR(
        o,
        [schedulers.LinearLR(o, 0.1, total_iters=10), schedulers.CosineAnnealingLR(o, STEPS - 10)],
        [10],
    ),
    "step": lambda o: schedulers.MultiStepLR(o, [STEPS // 2, 3 * STEPS // 4]),
    "one-cycle": lambda o: schedulers.OneCycleLR(o, max_lr=o.param_groups[0]["lr"], total_steps=STEPS + 1),
    "constant": lambda o: schedulers.ConstantLR(o, factor=1.0),
    "polynomial": lambda o: schedulers.PolynomialLR(o, STEPS, power=0.9),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def train(
    model: nn.Module, optimizer: Optimizer, scheduler, pruner: sp.Pruner, until: int, disturbed: Container[int] = ()
) -> list[float]:
    """Thresholds after each step; in some, the learning rate is not the scheduler's."""
    thresholds = []
    for step in range(pruner.step, until):
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(step))[:BATCH]
        nn.functional.cross_entropy(model(X[order]), Y[order]).backward()
        foretold = optimizer.param_groups[0]["lr"]
        if step in disturbed:
            optimizer.param_groups[0]["lr"] = 0.5 * foretold
        optimizer.step()
        optimizer.param_groups[0]["lr"] = foretold
        scheduler.step()
        optimizer.zero_grad()
        thresholds.append(max(pruner.source.levels) if isinstance(pruner.source, Controller) else 0.0)
    return thresholds


def loss(model: nn.Module) -> float:
    """As batch normalisation has it for evaluation."""
    model.eval()
    with torch.no_grad():
        value = nn.functional.cross_entropy(model(X), Y).item()
    model.train()
    return value


@pytest.mark.parametrize("known", [True, False], ids=["scheduler given", "not given"])
@pytest.mark.parametrize(
    ("target", "optimizer", "schedule"),
    [
        *product([0.5, 0.8, 0.9, 0.95, 0.98], ["sgd", "adamw"], ["cosine", "step", "one-cycle", "constant"]),
        *product([0.5, 0.995], ["adam"], SCHEDULES),
        *product([0.95, 0.995], ["sgd", "adamw"], ["polynomial"]),
    ],
)
def test_the_run_ends_at_the_target(target, optimizer, schedule, known):
    model = network()
    opt = OPTIMIZERS[optimizer](model.parameters())
    scheduler = SCHEDULES[schedule](opt)
    threshold = sp.TargetSparsity(target, STEPS, lr_scheduler=scheduler if known else None)
    pruner = sp.Pruner(sp.select(model), opt, threshold=threshold)
    penalties, d = [], []
    for step in range(1, STEPS + 1):
        lr = opt.param_groups[0]["lr"]
        d += train(model, opt, scheduler, pruner, step)
        penalties.append((d[-1] - (d[-2] if step > 1 else 0.0)) / max(lr, 1e-12))
    assert pruner.sparsity() == pytest.approx(target, abs=1e-3)
    assert max(d) < 1.005 * d[-1]  # it does not go too far, to come back
    moving = schedule == "constant"  # weights move as fast as ever when the run ends, and the quantile with them
    assert d[-2] == pytest.approx(d[-1], rel=0.02 if moving else 0.004)  # the last step lands, it does not jump
    assert d[-STEPS // 20] == pytest.approx(d[-1], rel=0.15 if moving else 0.03)  # nor do the last ten
    if known:
        middle = penalties[STEPS // 10 : -STEPS // 10]
        assert max(middle) < 8 * statistics.median(middle)  # most where the learning rate drops to a tenth


@pytest.mark.parametrize("target", [0.8, 0.95])
@pytest.mark.parametrize("decay", [3e-3, 1e-2])
def test_strong_weight_decay_is_met_long_before_the_last_step(target, decay):
    """Under it hidden weights shrink, and sparsity rises while the threshold stands still: it must come down in time,
    or the last step would shift every weight, and what batch normalisation expects is no longer what it gets."""
    steps, model = 400, network()
    opt = SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=decay)
    scheduler = schedulers.CosineAnnealingLR(opt, steps)
    threshold = sp.TargetSparsity(target, steps, lr_scheduler=scheduler)
    pruner = sp.Pruner(sp.select(model), opt, threshold=threshold)
    d = train(model, opt, scheduler, pruner, steps - 1)
    before = loss(model)
    d += train(model, opt, scheduler, pruner, steps)
    assert pruner.sparsity() == pytest.approx(target, abs=1e-3)
    assert d[-steps // 20] == pytest.approx(d[-1], rel=0.01)
    assert d[-2] == pytest.approx(d[-1], rel=1e-4)
    assert loss(model) == pytest.approx(before, rel=0.02)


def test_weights_far_from_zero_do_not_mislead():
    """None is zero for a long time, then all could be at once."""
    model = network()
    with torch.no_grad():
        for p in sp.select(model).values():
            p.copy_(0.1 * torch.sign(torch.randn(p.shape, generator=torch.Generator().manual_seed(0))))
    opt = SGD(model.parameters(), lr=0.02, momentum=0.9)
    scheduler = schedulers.CosineAnnealingLR(opt, STEPS)
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
    sparsities = []
    for step in range(STEPS):
        train(model, opt, scheduler, pruner, step + 1)
        sparsities.append(pruner.sparsity())
    assert max(sparsities) < 0.94
    assert sparsities[-1] == pytest.approx(0.9, abs=1e-3)


def test_past_the_end_the_threshold_stays():
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = SCHEDULES["cosine"](opt)
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, 20, start=5))
    train(model, opt, scheduler, pruner, 5)
    assert pruner.threshold == 0.0
    train(model, opt, scheduler, pruner, 20)
    assert pruner.sparsity() == pytest.approx(0.9, abs=1e-3)
    final = pruner.threshold
    train(model, opt, scheduler, pruner, 25)
    assert pruner.threshold == final


def run(**options) -> tuple[nn.Module, sp.Pruner]:
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = SCHEDULES["cosine"](opt)
    threshold = sp.TargetSparsity(options.pop("target"), STEPS, lr_scheduler=scheduler, **options)
    pruner = sp.Pruner(sp.select(model), opt, threshold=threshold)
    train(model, opt, scheduler, pruner, STEPS)
    return model, pruner


def zeros(model: nn.Module) -> dict[str, float]:
    return {layer.name: layer.sparsity for layer in sp.summarize(model).layers}


@pytest.mark.parametrize(
    ("target", "budget"),
    [
        (0.9, sp.uniform),
        (0.9, sp.erdos_renyi),
        (0.9, sp.erk),
        (0.861, {"0": 0.2, "3": 0.95, "7": 0.8}),
        (0.936, {"0": 0.0, "3": 0.95, "7": 0.95}),
    ],
)
def test_a_budget_is_kept_by_every_parameter(target, budget):
    _, pruner = run(target=target, budget=budget)
    table = budget(pruner.params, target) if callable(budget) else {f"{name}.weight": s for name, s in budget.items()}
    wanted = {name: table[name] * p.numel() for name, p in pruner.params.items()}
    zeros = {name: int((p == 0).sum()) for name, p in pruner.params.items()}
    assert all(abs(zeros[name] - wanted[name]) < 1 for name in wanted)
    assert sum(zeros.values()) == round(sum(wanted.values()))


def test_a_table_that_leads_elsewhere_is_refused():
    with pytest.raises(ValueError, match=r"is 0.95, but its budget leads to 0.2504"):
        run(target=0.95, budget={"0": 0.1, "3": 0.2, "7": 0.3})


def test_a_refused_budget_names_the_layer():
    with pytest.raises(ValueError, match=r"cannot reach 100.0000% of 0.weight where min_density"):
        run(target=0.9015, budget={"0": 1.0, "3": 0.9, "7": 0.9})


@pytest.mark.parametrize("other", [0.0, 0.001, 1.0])
def test_the_learning_rate_is_that_of_the_pruned(other):
    """Other param groups may learn at other rates, and come first."""
    model = network()
    pruned = sp.select(model)
    rest = [p for name, p in model.named_parameters() if name not in pruned]
    opt = SGD([{"params": rest, "lr": other}, {"params": list(pruned.values()), "lr": 0.1}], momentum=0.9)
    scheduler = schedulers.CosineAnnealingLR(opt, STEPS)
    pruner = sp.Pruner(pruned, opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
    assert pruner.source.future.lrs[0] == 0.1
    d = train(model, opt, scheduler, pruner, STEPS)
    assert pruner.sparsity() == pytest.approx(0.9, abs=1e-3)
    assert d[-STEPS // 20] == pytest.approx(d[-1], rel=0.03)
    assert 0.3 < d[STEPS // 2] / d[-1] < 1


def test_a_scheduler_may_be_stepped_once_an_epoch():
    model, epoch = network(), 20
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = schedulers.ExponentialLR(opt, 0.5)
    make = lambda interval: sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler, interval=interval)  # noqa: E731
    with sp.Pruner(sp.select(model), opt, threshold=make(epoch)) as pruner:
        assert pruner.source.future.lrs[epoch - 1 : epoch + 1] == [0.1, 0.05]
    pruner = sp.Pruner(sp.select(model), opt, threshold=make(1))  # which foretells a fall at every step
    still = schedulers.ConstantLR(opt, factor=1.0)
    with pytest.warns(UserWarning, match="is not what `lr_scheduler` foretold"):
        train(model, opt, still, pruner, STEPS)
    assert pruner.sparsity() == pytest.approx(0.9, abs=1e-3)


def test_equal_weights_do_not_empty_a_guarded_layer():
    """Those as large as the smallest that must stay, stay too."""
    torch.manual_seed(0)
    params = {f"{i}": nn.Parameter(0.01 * torch.randn(100, dtype=torch.bfloat16)) for i in range(100)}
    opt = SGD(params.values(), lr=0.0)
    pruner = sp.Pruner(params, opt, threshold=sp.TargetSparsity(0.98, 1, min_density=0.01))
    opt.step()
    assert all((p != 0).any() for p in params.values())
    assert pruner.sparsity() == pytest.approx(0.98, abs=0.01)


def test_nothing_keeps_the_hidden_weights_after_the_end():
    _, pruner = run(target=0.9)
    theta = weakref.ref(next(iter(pruner._hidden)))
    pruner.detach()
    assert theta() is None
    assert pruner.source is not None


def test_weights_that_are_no_numbers_spoil_no_others():
    a, b = nn.Parameter(torch.full((100,), math.nan)), nn.Parameter(torch.randn(100))
    opt = SGD([a, b], lr=0.0)
    sp.Pruner({"a": a, "b": b}, opt, threshold=sp.TargetSparsity(0.9, 1, min_density=0.0))
    opt.step()
    assert b.isfinite().all()


def test_a_target_may_count_multiplications():
    model = network()
    uses = sp.flops_per_weight(model, X[:1])
    model, pruner = run(target=0.9, flops=uses)
    dense = sum(uses[name] * p.numel() for name, p in pruner.params.items())
    left = sum(uses[name] * int((p != 0).sum()) for name, p in pruner.params.items())
    assert left / dense == pytest.approx(0.1, abs=1e-3)
    assert abs(pruner.sparsity() - 0.9) > 0.01  # another thing than weights


def test_no_layer_falls_below_the_minimum_and_the_target_is_met_all_the_same():
    model, pruner = run(target=0.97, min_density=0.02)
    assert pruner.sparsity() == pytest.approx(0.97, abs=1e-3)
    for name, p in pruner.params.items():
        assert int((p != 0).sum()) >= 0.02 * p.numel(), name
    assert any(0.019 < 1 - sparsity < 0.021 for sparsity in zeros(model).values())  # the guard had work to do


def test_an_impossible_target_is_refused():
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    with pytest.raises(ValueError, match=r"cannot reach 99\.0000% where min_density = 0\.05 leaves at most 94\."):
        sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.99, STEPS, min_density=0.05))


def test_an_unguarded_layer_that_dies_is_named():
    with pytest.warns(UserWarning, match=r"Nothing is left of 0\.weight\."):
        run(target=0.901, min_density=0.0, budget={"0": 1.0, "3": 0.9, "7": 0.9})


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        ({"0": 0.5, "3": 0.5}, "says nothing about 7.weight"),
        ({"0": 0.5, "3": 0.5, "7": 0.5, "9": 0.5}, "names 9, which is not among the pruned parameters"),
        ({"0": 0.5, "3": 0.5, "7": 1.5}, "must be between 0 and 1. Got 1.5."),
    ],
)
def test_a_wrong_budget_is_refused(budget, text):
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    with pytest.raises(ValueError, match=text.replace(".", r"\.")):
        sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.5, STEPS, budget=budget))


@pytest.mark.parametrize("stop", [1, 57, 199])
@pytest.mark.parametrize(
    "options", [{}, {"min_density": 0.04}, {"budget": sp.erk}], ids=["plain", "caps that bind", "budget"]
)
def test_it_resumes_bit_for_bit(stop, options):
    whole, part = network(), network()
    results = []
    for model, pause in ((whole, None), (part, stop)):
        opt = OPTIMIZERS["sgd"](model.parameters())
        scheduler = SCHEDULES["cosine"](opt)
        make = lambda s: sp.TargetSparsity(0.95, STEPS, lr_scheduler=s, **options)  # noqa: E731
        pruner = sp.Pruner(sp.select(model), opt, threshold=make(scheduler))
        if pause is not None:
            train(model, opt, scheduler, pruner, pause)
            file = io.BytesIO()
            torch.save([model.state_dict(), opt.state_dict(), scheduler.state_dict()], file)
            file.seek(0)
            saved = torch.load(file, weights_only=True)
            model = network()
            opt = OPTIMIZERS["sgd"](model.parameters())
            scheduler = SCHEDULES["cosine"](opt)
            pruner = sp.Pruner(sp.select(model), opt, threshold=make(scheduler))
            model.load_state_dict(saved[0])
            opt.load_state_dict(saved[1])
            scheduler.load_state_dict(saved[2])
        train(model, opt, scheduler, pruner, STEPS)
        results.append(copy.deepcopy(model.state_dict()))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


def test_a_scheduler_that_was_left_aside_stays_so_after_a_resume():
    results = []
    for pause in (None, 100):
        model = network()
        opt = OPTIMIZERS["sgd"](model.parameters())
        scheduler = SCHEDULES["cosine"](opt)
        pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
        with pytest.warns(UserWarning, match="not what `lr_scheduler` foretold"):
            train(model, opt, scheduler, pruner, 100, disturbed=range(30, 60))
        if pause is not None:
            weights, saved, schedule = (copy.deepcopy(x.state_dict()) for x in (model, opt, scheduler))
            model = network()
            opt = OPTIMIZERS["sgd"](model.parameters())
            scheduler = SCHEDULES["cosine"](opt)
            pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
            model.load_state_dict(weights)
            opt.load_state_dict(saved)
            scheduler.load_state_dict(schedule)
        train(model, opt, scheduler, pruner, STEPS)
        results.append(model.state_dict())
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.parametrize("first", [1e-4, 0.0])
def test_a_warm_up_that_nobody_foretold_does_not_prune_at_once(first):
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = schedulers.LambdaLR(
        opt, lambda t: max(first, min(1.0, t / 20)) * 0.5 * (1 + math.cos(math.pi * t / STEPS))
    )
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.95, STEPS))
    d = train(model, opt, scheduler, pruner, STEPS)
    assert pruner.sparsity() == pytest.approx(0.95, abs=1e-3)
    assert d[STEPS // 20] < 0.15 * d[-1]
    assert loss(model) < 0.3


@pytest.mark.parametrize("fall", [0.1, 0.02])
def test_a_learning_rate_that_falls_late_leaves_little_to_the_last_step(fall):
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = schedulers.LambdaLR(opt, lambda t: min(1.0, max(0.0, (1 - t / STEPS) / fall)))
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
    d = train(model, opt, scheduler, pruner, STEPS)
    assert abs(d[-1] / d[-2] - 1) < 0.01
    assert loss(model) < 0.2


def test_a_run_resumed_with_fewer_steps_than_it_made_ends_at_the_target():
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = SCHEDULES["constant"](opt)
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS))
    train(model, opt, scheduler, pruner, 150)
    weights, saved = (copy.deepcopy(x.state_dict()) for x in (model, opt))
    with pytest.warns(UserWarning, match="ends after 150 of 200 steps"):
        pruner.detach()
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, 100))
    model.load_state_dict(weights)
    opt.load_state_dict(saved)
    train(model, opt, scheduler, pruner, 155)
    after = pruner.threshold
    assert pruner.sparsity() > 0.89
    train(model, opt, scheduler, pruner, 160)
    assert pruner.threshold == after  # it landed once


@pytest.mark.parametrize("goal", [sp.TargetSparsity(0.97, 2 * STEPS), sp.TargetSparsity(0.9, 2 * STEPS)])
def test_a_run_that_ended_can_be_prolonged(goal):
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = SCHEDULES["constant"](opt)
    with sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS)) as pruner:
        train(model, opt, scheduler, pruner, STEPS)
        weights, saved = (copy.deepcopy(x.state_dict()) for x in (model, opt))
    pruner = sp.Pruner(sp.select(model), opt, threshold=goal)
    model.load_state_dict(weights)
    opt.load_state_dict(saved)
    train(model, opt, scheduler, pruner, 2 * STEPS)
    assert pruner.sparsity() == pytest.approx(goal.target, abs=1e-3)


@pytest.mark.parametrize("foretold", [True, False])
def test_a_run_with_skipped_steps_ends_at_the_target(foretold):
    """A GradScaler does not step the optimizer where gradients overflow; schedulers and loops count such steps."""
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = SCHEDULES["cosine"](opt)
    goal = sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler if foretold else None)
    pruner = sp.Pruner(sp.select(model), opt, threshold=goal)
    for steps in (30, STEPS - 3):
        train(model, opt, scheduler, pruner, steps)
        scheduler.step()  # and a step is skipped
        if steps == 30:
            scheduler.step()
            scheduler.step()
    assert pruner.step == STEPS - 3
    if foretold:
        assert pruner.source.skipped == 3
        assert pruner.sparsity() == pytest.approx(0.9, abs=1e-3)
    pruner.detach()
    zeros = sum(int((p == 0).sum()) for p in sp.select(model).values())
    assert zeros / sum(p.numel() for p in sp.select(model).values()) == pytest.approx(0.9, abs=1e-3)


def test_to_stop_early_is_not_to_end_and_is_said():
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS))
    train(model, opt, SCHEDULES["constant"](opt), pruner, STEPS // 2)
    before = pruner.sparsity()
    with pytest.warns(UserWarning, match=r"ends after 100 of 200 steps, before its target 0.9. .* not batches"):
        pruner.detach()
    assert pruner.sparsity() == before < 0.89


def test_accelerates_scheduler_is_unwrapped():
    model = network()
    accelerator = Accelerator(cpu=True)
    opt = OPTIMIZERS["sgd"](model.parameters())
    model, opt, scheduler = accelerator.prepare(model, opt, SCHEDULES["cosine"](opt))
    pruner = sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))
    assert pruner.source.future.to_come(0) > 0


def test_a_scheduler_of_another_optimizer_is_refused():
    model, other = network(), network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    scheduler = SCHEDULES["cosine"](OPTIMIZERS["sgd"](other.parameters()))
    with pytest.raises(ValueError, match="an `lr_scheduler` must be that of the same optimizer"):
        sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS, lr_scheduler=scheduler))


def test_states_of_other_thresholds_are_refused():
    model = network()
    opt = OPTIMIZERS["sgd"](model.parameters())
    with sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS)):
        adaptive = copy.deepcopy(opt.state_dict())
    with sp.Pruner(sp.select(model), opt, threshold=sp.SLATS(0.1, STEPS)):
        plain = copy.deepcopy(opt.state_dict())
        with pytest.raises(ValueError, match="its threshold adapts to the weights"):
            opt.load_state_dict(adaptive)
    with (
        sp.Pruner(sp.select(model), opt, threshold=sp.TargetSparsity(0.9, STEPS)),
        pytest.raises(ValueError, match="another kind of threshold than TargetSparsity"),
    ):
        opt.load_state_dict(plain)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"target": 1.0, "steps": 10}, "must be > 0 and < 1. Got 1.0."),
        ({"target": 95, "steps": 10}, "must be > 0 and < 1. Got 95."),
        ({"target": 0.9, "steps": 0}, "must be a whole number >= 1. Got 0."),
        ({"target": 0.9, "steps": 20.5}, "must be a whole number >= 1. Got 20.5."),
        ({"target": 0.9, "steps": 10, "start": 10}, "must be < steps = 10. Got 10."),
        ({"target": 0.9, "steps": 10, "start": 0.5}, "must be a whole number >= 0. Got 0.5."),
        ({"target": 0.9, "steps": 10, "interval": 1.5}, "must be a whole number >= 1. Got 1.5."),
        ({"target": 0.9, "steps": 10, "refresh": 0}, "must be a whole number >= 1. Got 0."),
    ],
)
def test_wrong_arguments_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text.replace(".", r"\.")):
        sp.TargetSparsity(**arguments)
