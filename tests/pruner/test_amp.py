"""GradScaler: the loss is scaled, steps are skipped, and nothing of it shows in the pruned run."""

from functools import partial

import pytest
import torch

import softprune as sp
from oracles import OPTIMIZERS, Run, loss_of

FUSED = {
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "adam": partial(torch.optim.Adam, lr=0.03),
    "adamw": partial(torch.optim.AdamW, lr=0.03, weight_decay=0.1),
}
SKIPPED = {2, 5}


def build(optimizer: str, fused: bool, method: str) -> Run:
    return Run.of(partial(FUSED[optimizer], fused=fused), method)


def scaled(run: Run, unscale: bool = False) -> None:
    """Eight steps under a GradScaler whose scale is a power of two, so that no bit is lost; two of them overflow."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    for step in range(8):
        before = run.pruner.threshold
        overflow = float("inf") if step in SKIPPED else 1.0
        scaler.scale(loss_of(run.model, step) * overflow).backward()
        if unscale:
            scaler.unscale_(run.optimizer)
            torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.1)
        scaler.step(run.optimizer)
        scaler.update()
        run.optimizer.zero_grad()
        assert (run.pruner.threshold == before) == (step in SKIPPED)


def plain(run: Run, clip: bool = False) -> None:
    """The same run without a scaler, and without the steps that overflow."""
    for step in (step for step in range(8) if step not in SKIPPED):
        loss_of(run.model, step).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.1)
        run.optimizer.step()
        run.optimizer.zero_grad()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("optimizer", FUSED)
@pytest.mark.parametrize("method", ["slats", "lats", "str", "str-shared", "gpo"])
@pytest.mark.parametrize("unscale", [False, True], ids=["", "unscaled by hand"])
def test_a_scaled_run_is_the_plain_run_without_its_skipped_steps(optimizer, fused, method, unscale):
    run, reference = build(optimizer, fused, method), build(optimizer, fused, method)
    scaled(run, unscale)
    plain(reference, clip=unscale)
    assert run.pruner.step == reference.pruner.step == 8 - len(SKIPPED)
    for (name, a), (_, b) in zip(run.numbers(), reference.numbers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


def test_a_first_step_may_be_skipped():
    run = build("adam", True, "str")
    start = run.pruner.threshold
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(loss_of(run.model, 0) * float("inf")).backward()
    scaler.step(run.optimizer)
    scaler.update()
    assert run.pruner.step == 0
    assert run.pruner.threshold == start
    assert all(theta.isfinite().all() for theta in run.pruner.theta.values())
    assert scaler.get_scale() == 2.0


def test_autocast_computes_on_the_sparse_weights():
    run = Run.of(OPTIMIZERS["sgd"], lambda params: sp.Constant(0.1), dtype=torch.float32)
    seen = []
    run.model[0].register_forward_hook(lambda module, args, out: seen.append((module.weight == 0).any().item()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss_of(run.model, 0, torch.float32).backward()
    run.optimizer.step()
    assert seen == [True]
    assert run.model[0].weight.dtype == torch.float32
