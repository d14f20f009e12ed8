"""The authors' published layers, number by number: losses, thresholds, sparsity, θ and w to 1e-12."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import softprune as sp

GOLDEN = Path(__file__).parents[1] / "golden"
PRUNED = ("0.weight", "3.weight", "7.weight")


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(16, 10, 1, bias=False),
        nn.Flatten(),
    ).double()


def threshold(meta: dict, params: dict) -> object:
    steps = meta["epochs"] * meta["batches"]
    match meta["kind"]:
        case "slats":
            return sp.SLATS(meta["final"], steps)
        case "lats":
            return sp.LATS.cosine(meta["final"], meta["epochs"], meta["batches"])
        case "pgh":
            return sp.PGH(meta["final"], steps, meta["beta"])
        case "sine":
            return sp.Sine(meta["final"], steps)
        case "str":
            return sp.STR(params, init=meta["s_init"])
    raise AssertionError(meta["kind"])


def run(data: dict, meta: dict, make_threshold) -> tuple[sp.Pruner, dict[str, np.ndarray]]:
    model = network()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(data[f"init.{name}"]))
    params = sp.select(model)
    assert tuple(params) == PRUNED
    source = make_threshold(meta, params)
    trained = list(source.parameters()) if isinstance(source, sp.STR) else []
    optimizer = torch.optim.SGD(
        [*model.parameters(), *trained],
        lr=meta["lr"],
        momentum=meta["momentum"],
        weight_decay=meta["weight_decay"],
        nesterov=meta["nesterov"],
    )
    pruner = sp.Pruner(params, optimizer, threshold=source)
    log: dict[str, list] = {"loss": [], "threshold": [], "sparsity": []}
    for epoch in range(meta["epochs"]):
        for group in optimizer.param_groups:
            group["lr"] = meta["lr"] / 2 * (1 + math.cos(math.pi * epoch / meta["epochs"]))
        for x, y in zip(data["X"], data["Y"], strict=True):
            loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log["loss"].append(loss.item())
            log["threshold"].append(list(pruner.threshold.values()))
            log["sparsity"].append([(p == 0).double().mean().item() for p in params.values()])
    return pruner, {key: np.array(values) for key, values in log.items()}


def assert_logged(log: dict[str, np.ndarray], data: dict[str, np.ndarray]) -> None:
    """The authors log one threshold where all layers share it."""
    for key, values in log.items():
        expected = data[key] if data[key].ndim == values.ndim else data[key][:, None] * np.ones(values.shape[1])
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("kind", ["slats", "lats", "pgh", "sine", "str"])
def test_the_authors_numbers(kind):
    data = dict(np.load(GOLDEN / f"{kind}.npz"))
    meta = json.loads(str(data["meta"]))
    pruner, log = run(data, meta, threshold)
    assert pruner.step == 48
    assert_logged(log, data)
    for name in PRUNED:
        theta = pruner.theta[name].numpy()
        w = pruner.params[name].detach().numpy()
        np.testing.assert_allclose(theta, data[f"theta.{name}"], rtol=0, atol=1e-12)
        np.testing.assert_allclose(w, data[f"final.{name}"], rtol=0, atol=1e-12)
        assert ((w == 0) == (data[f"final.{name}"] == 0)).all()
    assert log["sparsity"][-1].mean() > 0.3  # the problem prunes something


def test_exact_lats_is_the_authors_closed_form():
    """Reading the optimizer's lr step by step gives the closed form's run."""
    data = dict(np.load(GOLDEN / "lats.npz"))
    meta = json.loads(str(data["meta"]))
    penalty = meta["final"] / data["lr"].sum()
    _, log = run(data, meta, lambda meta, params: sp.LATS(penalty))
    assert_logged(log, data)
