"""Ranges of values on data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from softprune.engine.calibrate import DRAWN, MOST, TOGETHER, Extremes, LeastError, Percentile, Seen, batches, observe
from softprune.engine.export import graph
from softprune.engine.fold import fold
from softprune.engine.run_torch import before
from softprune.errors import ArgumentError, DataError

torch.manual_seed(0)
NORMAL = torch.randn(20_000)
TAILS = NORMAL**5


def error(x: Tensor, bounds: tuple[float, float], power: float) -> float:
    """The mean error of 256 levels, rounded as the kernels do."""
    scale = (bounds[1] - bounds[0]) / 255
    zero = round(-bounds[0] / scale)
    q = (torch.round(x / scale) + zero).clamp(0, 255)
    return float(((q - zero) * scale - x).abs().pow(power).mean())


@pytest.mark.parametrize("power", [2, 3])
@pytest.mark.parametrize("x", [NORMAL, NORMAL.relu(), NORMAL.exp(), TAILS, -NORMAL.abs()])
def test_no_other_range_has_a_smaller_error(x: Tensor, power: float) -> None:
    seen = Seen.of(x)
    low, high = LeastError(power)(seen)
    best = error(x, (low, high), power)
    for share in torch.linspace(0.1, 1, 91).tolist():
        other = (min(seen.low, 0) * share, max(seen.high, 0) * share)
        assert best <= 1.1 * error(x, other, power)


def test_outliers_are_clipped_but_not_by_extremes() -> None:
    high = float(NORMAL.max())
    assert Extremes()(Seen.of(NORMAL))[1] == high
    assert LeastError(2)(Seen.of(NORMAL))[1] < LeastError(3)(Seen.of(NORMAL))[1] <= high
    assert Percentile(0.999)(Seen.of(TAILS))[1] < 0.5 * float(TAILS.max())


def test_a_percentile_leaves_out_a_share_on_each_side() -> None:
    x = torch.arange(-500.0, 501)
    assert Percentile(0.99)(Seen.of(x)) == (-490, 490)
    assert Percentile(1.0)(Seen.of(x)) == (-500, 500)


@pytest.mark.parametrize("ranges", [Extremes(), Percentile(), LeastError()])
@pytest.mark.parametrize("x", [torch.zeros(5), torch.ones(5), -torch.ones(5), torch.tensor([1e-38]), NORMAL])
def test_zero_is_in_every_range(ranges: Any, x: Tensor) -> None:
    low, high = ranges(Seen.of(x))
    assert low <= 0 <= high


def test_what_was_seen_adds_up() -> None:
    seen = Seen.of(torch.tensor([1.0, 2.0])) | Seen.of(torch.tensor([-5.0]))
    assert (seen.low, seen.high) == (-5, 2)
    assert sorted(seen.drawn.tolist()) == [-5, 1, 2]
    many = Seen.of(torch.randn(5 * DRAWN))
    for _ in range(4):
        many = many | Seen.of(torch.randn(5 * DRAWN) + 3)
    assert len(many.drawn) <= 2 * DRAWN
    assert many.high > 6


MODEL = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
GRAPH = fold(graph(MODEL, torch.randn(1, 3)))
DATA = torch.randn(50, 3)


@pytest.mark.parametrize(
    "data",
    [
        DATA,
        (DATA,),
        [DATA[:20], DATA[20:]],
        DataLoader(TensorDataset(DATA, torch.arange(50)), batch_size=7),
        [{"input": DATA}],
        {"input": DATA, "labels": None},
    ],
    ids=["tensor", "tuple", "list", "loader", "dicts", "dict"],
)
def test_data_of_every_kind(data: Any) -> None:
    parts = list(batches(GRAPH, data))
    assert torch.equal(torch.cat([x for (x,) in parts]), DATA)
    assert max(len(x) for (x,) in parts) <= TOGETHER
    seen = observe(GRAPH, data, {"input", "0", before("0")})
    hidden = torch.nn.functional.linear(DATA, MODEL[0].weight, MODEL[0].bias).detach()
    assert seen[before("0")].high == pytest.approx(float(hidden.max()), rel=1e-5)
    assert seen["0"].low == pytest.approx(float(nn.functional.gelu(hidden).min()), rel=1e-5)
    assert seen.keys() == {"input", "0", before("0")}


def test_an_endless_stream_ends() -> None:
    def stream() -> Any:
        while True:
            yield torch.zeros(60, 3)

    assert MOST <= sum(len(x) for (x,) in batches(GRAPH, stream())) < MOST + 60


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        ([], DataError, "There is no calibration data"),
        (torch.zeros(0, 3), DataError, "There is no calibration data"),
        (torch.zeros(4, 5), DataError, "`input` has shape N × (3,) in the example"),
        ([{"image": DATA}], ArgumentError, "has no `input`"),
        (["text"], ArgumentError, "must hold 1 tensors"),
        (torch.full((4, 3), torch.nan), DataError, "makes `input` infinite or NaN"),
        (torch.full((4, 3), torch.inf), DataError, "makes `input` infinite or NaN"),
    ],
)
def test_refusals(data: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        observe(GRAPH, data, {"input"})
    assert words in str(caught.value)
