"""The quantile without sorting, against torch's sort."""

import pytest
import torch

from magnitudes import DISTRIBUTIONS, N, all_of, hidden
from softprune.thresholds.quantile import Cell, quantiles, survivors

G = torch.Generator().manual_seed(0)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.995, 1.0])
def test_the_threshold_is_the_kth_of_the_sorted(name, share):
    values = DISTRIBUTIONS[name]
    ordered = values.float().abs().sort().values
    k = max(1, round(share * N))
    parts = hidden(values[:1000], values[1000:1001], values[1001:1001], values[1001:].reshape(60, 50))
    assert quantiles(parts, [all_of(parts, share)]) == [ordered[k - 1].item() if share > 0 else 0.0]


def test_a_tensor_may_be_larger_than_what_is_counted_at_once():
    values = torch.randn((1 << 22) + 1000, generator=G)
    parts = hidden(values)
    k = round(0.9 * len(values))
    (d,) = quantiles(parts, [all_of(parts, 0.9)])
    assert d == values.abs().kthvalue(k).values.item()
    assert survivors(parts, [d]) == [len(values) - k]


@pytest.mark.parametrize("name", ["normal", "heavy tails", "bf16"])
def test_survivors_are_counted_for_each_parameter(name):
    values = DISTRIBUTIONS[name]
    d = values.float().abs().median().item()
    expected = [int((part.float().abs() > d).sum()) for part in (values[:7], values[7:])]
    assert survivors(hidden(values[:7], values[7:]), [d, d]) == expected


def test_several_cells_at_once():
    a, b, c = DISTRIBUTIONS["normal"].split([1000, 1000, N - 2000])
    one, two = quantiles(hidden(a, b, c), [Cell((0, 2), (1.0, 1.0), 0.9), Cell((1,), (1.0,), 0.3)])
    both = torch.cat([a, c]).abs().sort().values
    assert one == both[round(0.9 * len(both)) - 1].item()
    assert two == b.abs().sort().values[299].item()


def test_weights_may_count_more_than_one():
    a, b = torch.randn(500, generator=G), 0.5 * torch.randn(300, generator=G)
    (d,) = quantiles(hidden(a, b), [Cell((0, 1), (2.0, 7.0), 0.8)])
    zeroed = 2.0 * (a.abs() <= d).sum() + 7.0 * (b.abs() <= d).sum()
    assert 0.8 * 3100 <= zeroed < 0.8 * 3100 + 7.0


def test_capped_weights_are_not_to_be_had():
    a, b = torch.randn(500, generator=G), 0.1 * torch.randn(500, generator=G)
    cap = b.abs().sort().values[449].item()
    (d,) = quantiles(hidden(a, b), [Cell((0, 1), (1.0, 1.0), 0.9)], caps=[float("inf"), cap])
    assert int((a.abs() <= d).sum()) + int((b.abs() <= min(d, cap)).sum()) == 900
    assert int((b.abs() > min(d, cap)).sum()) == 50


def test_memory_format_and_gaps_do_not_matter():
    values = torch.randn(8, 6, 5, 4, generator=G)
    expected = values.abs().flatten().sort().values[95].item()
    for tensor in (values, values.to(memory_format=torch.channels_last), torch.cat([values, values], 3)[..., :4]):
        parts = hidden(tensor)
        assert quantiles(parts, [all_of(parts, 0.1)]) == [expected]
