"""What pruning adds to a training step of ResNet-50: time and memory, as ratios within one run.

    python benchmarks/step_overhead.py            # a table; a GPU if there is one, else a small CPU version
    python benchmarks/step_overhead.py --out results.json

Four ways to train the same network with the same optimizer:

    dense          no pruning
    softprune      S-LATS through the optimizer's hooks
    str            STR through the optimizer's hooks: subgradient and trainable thresholds
    parametrize    S-LATS through torch.nn.utils.parametrize, as users write it today

The variants take turns, a few steps each, for many rounds; a ratio is the median over rounds of the
variant's time over the dense time of the same round, so slow drifts of the machine cancel.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import softprune as sp
from softprune.models import resnet18, resnet50

STEPS = 10_000


class SoftThresholdParametrization(nn.Module):
    """w = S_d(θ) with the identity as gradient, and d in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("d", torch.zeros(()))

    def forward(self, theta: Tensor) -> Tensor:
        w = theta - theta.clamp(-self.d, self.d)
        return theta + (w - theta).detach()


def make_model(device: str) -> nn.Module:
    return (resnet50() if device == "cuda" else resnet18()).to(device, memory_format=torch.channels_last)


def make_step(variant: str, model: nn.Module, compiled: bool, batch: Tensor, labels: Tensor) -> Callable[[], None]:
    params = sp.select(model)
    threshold = sp.STR(params, init=-5.0) if variant == "str" else sp.SLATS(final=0.5, steps=STEPS)
    groups = [{"params": list(model.parameters())}]
    if variant == "str":
        groups.append({"params": list(threshold.parameters())})
    after: Callable[[], None] = lambda: None  # noqa: E731
    if variant == "parametrize":
        maps = []
        for module in list(model.modules()):
            if isinstance(module, nn.Conv2d | nn.Linear):
                maps.append(SoftThresholdParametrization().to(batch.device))
                parametrize.register_parametrization(module, "weight", maps[-1])
        groups = [{"params": list(model.parameters())}]
        count = 0

        def after() -> None:
            nonlocal count
            count += 1
            d = threshold(count)
            for m in maps:
                m.d.fill_(d)

    optimizer = torch.optim.SGD(groups, lr=0.256, momentum=0.875, weight_decay=3.05e-5)
    if variant in ("softprune", "str"):
        sp.Pruner(params, optimizer, threshold=threshold)
    forward = torch.compile(model) if compiled else model
    device = batch.device.type

    def step() -> None:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(forward(batch), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after()

    return step


def timed(step: Callable[[], None], steps: int, cuda: bool) -> float:
    """Seconds a step."""
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def measure(batch_size: int, compiled: bool, rounds: int, steps: int, cuda: bool) -> list[dict]:
    device = "cuda" if cuda else "cpu"
    size = 224 if cuda else 64
    batch = torch.randn(batch_size, 3, size, size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch_size,), device=device)
    variants, memory = {}, {}
    timed(make_step("dense", make_model(device), compiled, batch, labels), 2, cuda)  # work spaces are allocated
    for variant in ("dense", "softprune", "str", "parametrize"):
        torch._dynamo.reset()
        before = torch.cuda.memory_allocated() if cuda else 0
        model = make_model(device)
        weights = sum(p.numel() * p.element_size() for p in sp.select(model).values())
        variants[variant] = make_step(variant, model, compiled, batch, labels)
        timed(variants[variant], 12 if cuda else 2, cuda)  # warm-up, compilation
        memory[variant] = (torch.cuda.memory_allocated() if cuda else 0) - before
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    for _ in range(rounds):
        gc.collect()
        gc.disable()
        for variant, step in variants.items():
            times[variant].append(timed(step, steps, cuda))
        gc.enable()
    rows = []
    for variant, seconds in times.items():
        ratios = sorted(t / dense for t, dense in zip(seconds, times["dense"], strict=True))
        rows.append(
            {
                "batch": batch_size,
                "mode": "compiled" if compiled else "eager",
                "variant": variant,
                "ms": 1000 * statistics.median(seconds),
                "ratio": statistics.median(ratios),
                "quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]],
                "extra memory / weights": (memory[variant] - memory["dense"]) / weights if cuda else None,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the rows to this JSON file")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--batches", type=int, nargs="+", default=None)
    parser.add_argument("--modes", nargs="+", default=["eager", "compiled"])
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    name = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}, {'ResNet-50, 224 px' if cuda else 'ResNet-18, 64 px'}, bf16 autocast")
    print(f"{'batch':>5}  {'mode':8}  {'variant':12}  {'ms/step':>8}  {'ratio':>7}  {'quartiles':>15}  {'memory':>6}")
    results = []
    for mode, batch in product(options.modes, options.batches or ((256, 64) if cuda else (16, 4))):
        steps = 5 if cuda else 2
        rounds = options.rounds or (12800 // batch if cuda else 5)
        for row in measure(batch, mode == "compiled", rounds, steps, cuda):
            extra = row["extra memory / weights"]
            print(
                f"{row['batch']:>5}  {row['mode']:8}  {row['variant']:12}  {row['ms']:8.3f}  {row['ratio']:7.4f}  "
                f"{row['quartiles'][0]:.4f}-{row['quartiles'][1]:.4f}  {'' if extra is None else f'{extra:+.2f}'}",
                flush=True,
            )
            results.append(row)
        if options.out:
            options.out.write_text(json.dumps({"device": name, "torch": torch.__version__, "rows": results}, indent=1))


if __name__ == "__main__":
    main()
