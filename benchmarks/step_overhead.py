"""What pruning adds to a training step of ResNet-50: time and memory, as ratios within one run.

    python benchmarks/step_overhead.py            # a table; a GPU if there is one, else a small CPU version
    python benchmarks/step_overhead.py --out results.json

Ways to train the same network with the same optimizer:

    dense          no pruning
    softprune      S-LATS through the optimizer's hooks
    power          the same with PowerThreshold(3) in place of the soft threshold
    calm           the same with the gradient `calm`, the default of targets
    blocks         the same with blocks of 1 × 4
    channels       the same with all channels that can be removed
    str, gpo       STR and GPO through the optimizer's hooks: subgradient and trainable thresholds
    parametrize    S-LATS through torch.nn.utils.parametrize, as users write it today

All but the last share one model, compiled once: a pruner comes and goes, and the model does not notice. The
variants take turns, a few steps each, for many rounds; a ratio is the median over rounds of the variant's time
over the dense time of the same round, so slow drifts of the machine cancel.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import warnings
from collections.abc import Callable
from functools import cached_property
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import softprune as sp
from softprune.models import resnet18, resnet50

STEPS = 10_000
warnings.filterwarnings("ignore", message="Pruning ends after")  # a turn is a few steps
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
VARIANTS = ("dense", "softprune", "power", "calm", "blocks", "channels", "str", "gpo", "parametrize")


class SoftThresholdParametrization(nn.Module):
    """w = S_d(θ) with the identity as gradient, and d in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("d", torch.zeros(()))

    def forward(self, theta: Tensor) -> Tensor:
        w = theta - theta.clamp(-self.d, self.d)
        return theta + (w - theta).detach()


class Bench:
    """One network on one batch."""

    def __init__(self, batch_size: int, compiled: bool, parametrized: bool = False) -> None:
        size = 224 if CUDA else 64
        self.images = torch.randn(batch_size, 3, size, size, device=DEVICE).to(memory_format=torch.channels_last)
        self.labels = torch.randint(1000, (batch_size,), device=DEVICE)
        self.model = (resnet50() if CUDA else resnet18()).to(DEVICE, memory_format=torch.channels_last)
        self.maps: list[SoftThresholdParametrization] = []
        for module in list(self.model.modules()) if parametrized else ():
            if isinstance(module, nn.Conv2d | nn.Linear):
                self.maps.append(SoftThresholdParametrization().to(DEVICE))
                parametrize.register_parametrization(module, "weight", self.maps[-1])
        self.forward = torch.compile(self.model) if compiled else self.model

    @cached_property
    def channels(self) -> sp.Channels:
        return sp.Channels(self.model, self.images[:1])

    def turn(self, variant: str, steps: int) -> tuple[float, int]:
        """Seconds a step, and the bytes that the variant keeps."""
        before = torch.cuda.memory_allocated() if CUDA else 0
        threshold = sp.SLATS(final=0.5, steps=STEPS)
        groups = [{"params": list(self.model.parameters())}]
        if variant in ("str", "gpo"):
            threshold = (sp.STR if variant == "str" else sp.GPO)(sp.select(self.model), init=-5.0)
            groups.append({"params": list(threshold.parameters())})
        optimizer = torch.optim.SGD(groups, lr=0.256, momentum=0.875, weight_decay=3.05e-5)
        pruner = None
        if variant not in ("dense", "parametrize"):
            other = {
                "power": {"prox": sp.PowerThreshold(3)},
                "calm": {"prox": sp.PowerThreshold(3), "gradient": sp.calm},
                "blocks": {"groups": sp.Blocks(1, 4)},
                "channels": {"groups": self.channels},
            }.get(variant, {})
            pruner = sp.Pruner(sp.select(self.model), optimizer, threshold=threshold, **other)
        count = 0

        def step() -> None:
            nonlocal count
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(self.forward(self.images), self.labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            count += 1
            for m in self.maps:
                m.d.fill_(threshold(count))

        timed(step, 2)
        kept = (torch.cuda.memory_allocated() if CUDA else 0) - before
        gc.collect()
        gc.disable()
        seconds = timed(step, steps)
        gc.enable()
        if pruner is not None:
            pruner.detach()
        return seconds, kept


def timed(step: Callable[[], None], steps: int) -> float:
    if CUDA:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if CUDA:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def measure(batch_size: int, mode: str, rounds: int, steps: int, variants: list[str]) -> list[dict]:
    compiled = mode == "compiled"
    plain = Bench(batch_size, compiled)
    benches = {v: Bench(batch_size, compiled, True) if v == "parametrize" else plain for v in variants}
    weights = sum(p.numel() * p.element_size() for p in sp.select(plain.model).values())
    for variant, bench in benches.items():
        bench.turn(variant, 5 if CUDA else 1)  # warm-up, compilation
    gc.freeze()  # the compiler leaves a million objects, which every collection would look at
    seconds: dict[str, list[float]] = {variant: [] for variant in variants}
    kept: dict[str, int] = {}
    for _ in range(rounds):
        for variant, bench in benches.items():
            time_, kept[variant] = bench.turn(variant, steps)
            seconds[variant].append(time_)
    rows = []
    for variant, values in seconds.items():
        ratios = sorted(t / dense for t, dense in zip(values, seconds["dense"], strict=True))
        rows.append(
            {
                "batch": batch_size,
                "mode": mode,
                "variant": variant,
                "ms": 1000 * statistics.median(values),
                "ratio": statistics.median(ratios),
                "quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]],
                "extra memory / weights": (kept[variant] - kept["dense"]) / weights if CUDA else None,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the rows to this JSON file")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--batches", type=int, nargs="+", default=(256, 64) if CUDA else (16, 4))
    parser.add_argument("--modes", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if CUDA else f"CPU, {torch.get_num_threads()} threads"
    print(f"{name}, torch {torch.__version__}, {'ResNet-50, 224 px' if CUDA else 'ResNet-18, 64 px'}, bf16 autocast")
    print(f"{'batch':>5}  {'mode':8}  {'variant':12}  {'ms/step':>8}  {'ratio':>7}  {'quartiles':>15}  {'memory':>6}")
    results = []
    for mode, batch in product(options.modes, options.batches):
        rounds = options.rounds or (7680 // batch if CUDA else 5)
        for row in measure(batch, mode, rounds, 5 if CUDA else 2, options.variants):
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
