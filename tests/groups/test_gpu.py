"""Groups on a GPU: the same as on a CPU, and no step waits for the device."""

import math

import pytest
import torch
from torch import nn

import softprune as sp
from waiting import no_waiting

pytestmark = pytest.mark.gpu


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def grouping(kind: str, model: nn.Module, device: str) -> sp.Grouping:
    example = torch.zeros(1, 3, 8, 8, device=device)
    return {"1x4": sp.Blocks(1, 4), "3x5": sp.Blocks(3, 5)}.get(kind) or sp.Channels(model, example)


def train(kind: str, device: str, p: float, layout: torch.memory_format, steps: int = 8) -> sp.Pruner:
    model = network().to(device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    pruner = sp.Pruner(
        sp.select(model),
        optimizer,
        threshold=sp.Linear(0.99 if kind == "channels" else 0.1, steps),
        prox=sp.PowerThreshold(p),
        groups=grouping(kind, model, device),
    )
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randn(8, 3, 8, 8, generator=generator).to(device, memory_format=layout) for _ in range(steps)]
    labels = torch.arange(8, device=device)
    for i, x in enumerate(batches):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        with no_waiting(device == "cuda" and i > 0):  # the first step makes tables
            optimizer.step()
    return pruner


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("p", [1, 4, math.inf])
@pytest.mark.parametrize("kind", ["1x4", "3x5", "channels"])
def test_the_gpu_follows_the_cpu_and_no_step_waits_for_it(kind, p, layout):
    on_cpu, on_gpu = train(kind, "cpu", p, layout), train(kind, "cuda", p, layout)
    assert 0.05 < on_cpu.sparsity() < 0.95
    assert on_cpu.sparsity() == pytest.approx(on_gpu.sparsity(), abs=0.05)


@pytest.mark.parametrize("kind", ["1x4", "channels"])
def test_two_runs_on_a_gpu_are_bit_for_bit_the_same(kind):
    torch.backends.cudnn.deterministic = True
    one, two = (train(kind, "cuda", 4, torch.channels_last) for _ in range(2))
    torch.backends.cudnn.deterministic = False
    assert all(torch.equal(a, b) for a, b in zip(one.theta.values(), two.theta.values(), strict=True))


@pytest.mark.parametrize("kind", ["1x4", "channels"])
def test_a_target_is_reached(kind):
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    groups = grouping(kind, model, "cuda")
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.TargetSparsity(0.6, steps=40), groups=groups)
    for _ in range(40):
        optimizer.zero_grad()
        x = torch.randn(8, 3, 8, 8, device="cuda")
        nn.functional.cross_entropy(model(x), torch.arange(8, device="cuda")).backward()
        optimizer.step()
    pruner.detach()
    assert pruner.sparsity() == pytest.approx(0.6, abs=0.03 if kind == "channels" else 1e-3)
