"""The quantile without sorting, against torch's sort, on distributions that are hard on histograms."""

import pytest
import torch
from torch import nn

from softprune import quantile
from softprune.hidden import Hidden

G = torch.Generator().manual_seed(0)
N = 4001
DISTRIBUTIONS = {
    "normal": torch.randn(N, generator=G),
    "all equal": torch.full((N,), -0.25),
    "all zero": torch.zeros(N),
    "half zero": torch.cat([torch.zeros(N // 2), torch.randn(N - N // 2, generator=G)]),
    "heavy tails": torch.randn(N, generator=G).pow(15),
    "tiny and huge": torch.cat([torch.full((N // 2,), 1e-38), torch.full((N - N // 2,), 3e38)]),
    "subnormal": torch.randn(N, generator=G) * 1e-40,
    "neighbours": 1 + torch.randint(0, 3, (N,), generator=G) * 2**-23,
    "bf16": torch.randn(N, generator=G).bfloat16(),
}


def hidden(*tensors: torch.Tensor) -> Hidden:
    return Hidden({str(i): nn.Parameter(t.clone()) for i, t in enumerate(tensors)})


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.995, 1.0])
def test_the_kth_magnitude_is_the_kth_of_the_sorted(name, share, monkeypatch):
    monkeypatch.setattr(quantile, "_CHUNK", 512)
    values = DISTRIBUTIONS[name]
    ordered = values.float().abs().sort().values
    k = max(1, round(share * N))
    parts = hidden(values[:1000], values[1000:1001], values[1001:1001], values[1001:].reshape(60, 50))
    assert quantile.kth_magnitude(parts, k) == ordered[k - 1].item()


@pytest.mark.parametrize("name", ["normal", "heavy tails", "bf16"])
def test_the_density_is_the_share_above(name):
    values = DISTRIBUTIONS[name]
    d = values.float().abs().median().item()
    expected = (values.float().abs() > d).double().mean().item()
    assert quantile.density(hidden(values[:7], values[7:]), d) == pytest.approx(expected, abs=1e-12)


def test_memory_format_and_gaps_do_not_matter():
    values = torch.randn(8, 6, 5, 4, generator=G)
    expected = values.abs().flatten().sort().values[99].item()
    for tensor in (values, values.to(memory_format=torch.channels_last), torch.cat([values, values], 3)[..., :4]):
        assert quantile.kth_magnitude(hidden(tensor), 100) == expected
