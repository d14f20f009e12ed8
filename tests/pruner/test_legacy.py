"""States saved before thresholds became rules: one for each kind of threshold, after 12 of 20 steps, and how it ended.

They were made by the version of November 2026, in double precision: a network of two layers, SGD with momentum and
AdamW, the batches below.
"""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import softprune as sp

STEPS, CUT = 20, 12
SAVED = torch.load(Path(__file__).parent / "legacy" / "states.pt", weights_only=True)
OPTIMIZERS = {"sgd": partial(torch.optim.SGD, momentum=0.9), "adam": torch.optim.AdamW}
TRAINED = {
    "str": lambda params: sp.STR(params, init=-3.0),
    "str-gs": lambda params: sp.STR(params, init=-3.0, shared=True),
    "gpo": lambda params: sp.GPO(params, init=-3.0),
}
OTHERS = {
    "slats": lambda scheduler: sp.SLATS(0.1, STEPS),
    "lats": lambda scheduler: sp.LATS(0.2),
    "target": lambda scheduler: sp.TargetSparsity(0.5, STEPS, arrive=1.0, lr_scheduler=scheduler),
    "budget": lambda scheduler: sp.TargetSparsity(0.5, STEPS, arrive=1.0, budget=sp.uniform),
}


def build(kind: str, optimizer: str):
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    params = sp.select(model)
    trained = TRAINED[kind](params) if kind in TRAINED else None
    more = trained.parameters() if trained is not None else ()
    opt = OPTIMIZERS[optimizer]([*model.parameters(), *more], lr=0.05, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    threshold = trained if trained is not None else OTHERS[kind](scheduler)
    prox = sp.SoftThreshold() if kind in ("target", "budget") else None  # what a target brought at the time
    return model, opt, scheduler, sp.Pruner(params, opt, threshold=threshold, prox=prox)


def batch(step: int):
    draw = torch.Generator().manual_seed(step)
    return (torch.randn(16, n, generator=draw, dtype=torch.float64) for n in (6, 3))


@pytest.mark.parametrize("of", ["optimizer", "pruner"])
@pytest.mark.parametrize("name", SAVED)
def test_a_run_saved_by_an_earlier_version_ends_as_it_would_have(name, of):
    saved = copy.deepcopy(SAVED[name])
    model, opt, scheduler, pruner = build(*name.split("/"))
    model.load_state_dict(saved["model"])
    if of == "pruner":  # the optimizer's own part, and the pruner's beside it
        entries = saved["optimizer"]["state"]
        own = {i: {k: v for k, v in e.items() if not k.startswith("softprune.")} for i, e in entries.items()}
        pruner.load_state_dict(saved["pruner"])
        for p, entry in zip((p for g in opt.param_groups for p in g["params"]), own.values(), strict=True):
            opt.state[p] = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in entry.items()}
        opt.param_groups[0]["lr"] = saved["optimizer"]["param_groups"][0]["lr"]
    else:
        opt.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    assert pruner.step == CUT
    for step in range(CUT, STEPS):
        x, y = batch(step)
        (model(x) - y).square().mean().backward()
        opt.step()
        scheduler.step()
        opt.zero_grad()
    assert pruner.sparsity() == saved["sparsity"]
    pruner.detach()
    for key, expected in saved["final"].items():
        torch.testing.assert_close(model.state_dict()[key], expected, rtol=1e-9, atol=1e-12)
