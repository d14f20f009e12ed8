"""A GPT reaches its target under the optimizers that language models are trained with, and resumes bit for bit."""

import functools
from collections.abc import Callable, Iterable

import pytest
import torch
import transformers
from torch import nn
from torch.func import functional_call

import softprune as sp
from oracles import StraightThrough, assert_same, refused, saved
from small_gpt import GPT, text_loss

STEPS = 100
Optimizers = list[torch.optim.Optimizer]


def with_adamw(matrices: Callable[..., torch.optim.Optimizer]) -> Callable[[nn.Module], Optimizers]:
    """One optimizer for the matrices that are pruned, the way Muon is used, and AdamW for all else."""

    def build(model: nn.Module) -> Optimizers:
        hidden = list(sp.select(model).values())
        rest = [p for p in model.parameters() if all(p is not q for q in hidden)]
        return [matrices(hidden), torch.optim.AdamW(rest, lr=0.01)]

    return build


def alone(make: Callable[..., torch.optim.Optimizer], **settings) -> Callable[[nn.Module], Optimizers]:
    return lambda model: [make(model.parameters(), **settings)]


BUILD: dict[str, Callable[[nn.Module], Optimizers]] = {
    "adamw": alone(torch.optim.AdamW, lr=0.01),
    "adafactor": alone(torch.optim.Adafactor, lr=0.1),
    "transformers-adafactor": alone(transformers.Adafactor, lr=0.01, relative_step=False, scale_parameter=False),
}
if hasattr(torch.optim, "Muon"):  # since torch 2.9
    BUILD["muon"] = with_adamw(functools.partial(torch.optim.Muon, lr=0.02))


def train(model: nn.Module, optimizers: Optimizers, steps: Iterable[int]) -> list[float]:
    losses = []
    for step in steps:
        loss = text_loss(model, step)
        loss.backward()
        advance(model, optimizers)
        losses.append(loss.item())
    return losses


def advance(model: nn.Module, optimizers: Optimizers) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def begun(name: str, threshold: sp.Threshold, tied: bool = True) -> tuple[nn.Module, Optimizers, sp.Pruner]:
    model = GPT(tied)
    optimizers = BUILD[name](model)
    return model, optimizers, sp.Pruner(sp.select(model), optimizers[0], threshold=threshold)


@pytest.mark.parametrize(("name", "tied"), [*((name, True) for name in BUILD), ("adamw", False)])
def test_a_gpt_learns_and_reaches_its_target(name, tied):
    model, optimizers, pruner = begun(name, sp.TargetSparsity(0.8, STEPS), tied)
    losses = train(model, optimizers, range(STEPS))
    assert losses[-1] < 0.2 * losses[0]
    report = sp.summarize(pruner, model)
    assert report.sparsity == pytest.approx(0.8, abs=1e-3)
    assert [layer.name for layer in report.layers] == [
        f"blocks.{i}.{part}.weight" for i in range(2) for part in ("qkv", "project", "mlp.0", "mlp.2")
    ]
    assert all(layer.zeros for layer in report.layers)
    assert not any((p == 0).any() for p in (model.tokens.weight, model.head.weight, model.positions.weight))
    assert ("the head" in report.left_alone) is not tied


@pytest.mark.parametrize("name", BUILD)
def test_the_run_resumes_bit_for_bit(name):
    threshold = sp.TargetSparsity(0.3, 20)
    model, optimizers, pruner = begun(name, threshold)
    train(model, optimizers, range(10))
    files = saved([model.state_dict(), *(optimizer.state_dict() for optimizer in optimizers)])
    train(model, optimizers, range(10, 20))
    resumed, others, again = begun(name, threshold)
    resumed.load_state_dict(files[0])
    for optimizer, state in zip(others, files[1:], strict=True):
        optimizer.load_state_dict(state)
    train(resumed, others, range(10, 20))
    assert_same(resumed, model)
    assert_same(again, pruner)


@pytest.mark.parametrize("name", BUILD)
def test_bit_for_bit_the_straight_through_run(name):
    """Muon orthogonalises what it adds to θ, and Adafactor measures θ: neither may see w in its place."""
    model, reference = GPT(), GPT()
    optimizers, others = BUILD[name](model), BUILD[name](reference)
    schedule = sp.SLATS(0.1, 10)
    pruner = sp.Pruner(sp.select(model), optimizers[0], threshold=schedule)
    train(model, optimizers, range(10))
    for step in range(10):
        weights = {name: StraightThrough.apply(p, schedule(step)) for name, p in sp.select(reference).items()}
        text_loss(lambda tokens, weights=weights: functional_call(reference, weights, (tokens,)), step).backward()
        advance(reference, others)
    for name, theta in sp.select(reference).items():
        assert torch.equal(pruner.theta[name], theta), name
    assert pruner.sparsity() > 0.1


def test_an_adafactor_that_finds_its_own_learning_rate_takes_a_schedule():
    model = GPT()
    optimizer = transformers.Adafactor(model.parameters(), relative_step=True, warmup_init=True)
    build = functools.partial(sp.Pruner, sp.select(model), optimizer)
    for threshold in (sp.TargetSparsity(0.8, STEPS), sp.LATS(0.1)):
        text = "follows the learning rate, and Adafactor has none: `lr` is missing in a param group. Use a schedule, or"
        refused(functools.partial(build, threshold=threshold), text)
    pruner = build(threshold=sp.SLATS(0.1, 10))
    train(model, [optimizer], range(10))
    assert pruner.sparsity() > 0.1
