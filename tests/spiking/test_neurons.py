"""The neurons against a plain loop written from the paper's appendix, and their gradients against the formula."""

import math

import pytest
import torch
from spikingjelly.activation_based import functional, neuron, surrogate
from torch import Tensor

from softprune.errors import ConfigError, UserError
from softprune.spiking.neurons import IF, LIF, StateError
from softprune.spiking.sew import SEWResNet, sew_digits

NEURONS = {"IF": (IF, None), "LIF": (LIF, 2.0), "LIF, τ = 5": (lambda: LIF(tau=5.0), 5.0)}
U_REST, U_TH = 0.0, 1.0


def appendix(currents: list[list[float]], tau: float | None) -> tuple[list[list[float]], list[list[float]]]:
    """s[t] and u[t⁻] of the discretised equations, neuron by neuron; integrate and fire is u[t⁻] = u[t−1] + Σ w·I."""
    spikes = [[0.0] * len(currents[0]) for _ in currents]
    potentials = [[0.0] * len(currents[0]) for _ in currents]
    for i in range(len(currents[0])):
        u = U_REST
        for t in range(len(currents)):
            x = currents[t][i]
            u = u + x if tau is None else u + 1 / tau * (-(u - U_REST) + x)
            s = 1.0 if u - U_TH >= 0 else 0.0
            spikes[t][i], potentials[t][i] = s, u
            u = s * U_REST + (1 - s) * u
    return spikes, potentials


def currents(tau: float | None, T: int = 6) -> Tensor:
    x = torch.randn(T, 3, 40, dtype=torch.double) + 0.3
    return x if tau is None else tau * x


@pytest.mark.parametrize("name", NEURONS)
def test_spikes_follow_the_appendix(name):
    make, tau = NEURONS[name]
    x = currents(tau)
    spikes = make()(x)
    expected, _ = appendix(x.flatten(1).tolist(), tau)
    assert spikes.flatten(1).tolist() == expected
    assert 0.1 < spikes.mean() < 0.9


def test_a_neuron_fires_at_its_threshold_and_starts_again_from_rest():
    x = torch.tensor([[0.5], [0.5], [0.5], [0.5]], dtype=torch.double)
    assert IF()(x).flatten().tolist() == [0, 1, 0, 1]
    assert IF()(4 * x).flatten().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("name", NEURONS)
def test_gradients_follow_the_surrogate_through_time(name):
    """Backwards through the appendix by hand: ds/du⁻ = 1 / (1 + (π (u⁻ − u_th))²), and none through the reset."""
    make, tau = NEURONS[name]
    x = currents(tau).requires_grad_()
    weights = torch.randn_like(x)
    (make()(x) * weights).sum().backward()
    spikes, potentials = appendix(x.flatten(1).tolist(), tau)
    into, keep = (1.0, 1.0) if tau is None else (1 / tau, 1 - 1 / tau)
    expected = torch.empty_like(x.detach().flatten(1))
    for i in range(expected.shape[1]):
        carried = 0.0  # dL / du[t]
        for t in reversed(range(len(x))):
            slope = 1 / (1 + (math.pi * (potentials[t][i] - U_TH)) ** 2)
            du = weights.flatten(1)[t, i].item() * slope + carried * (1 - spikes[t][i])
            expected[t, i] = du * into
            carried = du * keep
    torch.testing.assert_close(x.grad.flatten(1), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("make", [IF, LIF])
def test_they_are_spikingjellys_neurons(make, dtype):
    """Spikes, gradients and potentials of its own implementation, which on a GPU is what runs."""
    options = {"surrogate_function": surrogate.ATan(), "detach_reset": True, "step_mode": "m"}
    theirs, ours = {IF: neuron.IFNode, LIF: neuron.LIFNode}[make](**options), make()
    assert isinstance(ours, type(theirs))
    x = (2 * torch.randn(5, 4, 30, dtype=dtype)).requires_grad_()
    y = x.detach().clone().requires_grad_()
    a, b = ours(x), theirs(y)
    assert torch.equal(a, b)
    torch.testing.assert_close(ours.v, theirs.v)
    for out, into in ((a, x), (b, y)):
        (out * torch.arange(30)).sum().backward(inputs=into)
    torch.testing.assert_close(x.grad, y.grad)


def test_potentials_are_single_precision_under_autocast():
    x = torch.full((300, 1, 1), 1 / 256, dtype=torch.bfloat16)  # in bfloat16, u would stop growing at 1/2 or so
    neurons = IF()
    spikes = neurons(x)
    assert spikes.dtype == torch.bfloat16
    assert spikes.sum() == 1
    assert neurons.v.dtype == torch.float32


def test_state_that_was_not_reset_is_refused_in_a_sentence():
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), LIF())
    x = torch.randn(4, 2, 3)
    first = network(x)
    with pytest.raises(StateError, match=r"was not reset between batches\. Call `spikingjelly") as error:
        network(x)
    assert isinstance(error.value, UserError)
    functional.reset_net(network)
    assert torch.equal(network(x), first)


def test_a_network_is_at_rest_before_and_after_each_batch():
    network = sew_digits().eval()
    x = torch.randn(3, 1, 8, 8)
    first = network(x)
    assert torch.equal(network(x), first)
    network.sn1(torch.ones(4, 3, 16, 8, 8))  # somebody's own experiment
    assert torch.equal(network(x), first)
    with pytest.raises(RuntimeError):
        network(torch.randn(3, 2, 8, 8))  # broken off
    assert torch.equal(network(x), first)
    assert all(m.v == 0.0 for m in network.modules() if isinstance(m, IF))
    assert not any(name.endswith(".v") for name in network.state_dict())  # so a checkpoint is whole without them


def test_refusals():
    with pytest.raises(ConfigError, match=r"`LIF\(tau=...\)` must be > 1. Got 1.0."):
        LIF(tau=1.0)
    with pytest.raises(ConfigError, match=r"`SEWResNet\(T=...\)` must be a whole number >= 1: .* Got 0."):
        SEWResNet((1,), 10, T=0)
    with pytest.raises(ConfigError, match=r"takes N × C × H × W or 4 × N × C × H × W. Got 3 × 2 × 1 × 8 × 8."):
        sew_digits()(torch.zeros(3, 2, 1, 8, 8))
    with pytest.raises(ConfigError, match=r"Neurons need at least one time step, T × N × …. Got the shape \(0, 3\)."):
        IF()(torch.zeros(0, 3))
