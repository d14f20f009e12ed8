"""Spiking neurons, multi-step: input currents T × N × … in, spikes of the same shape out. They are spikingjelly's.

u[t⁻] = u[t−1] + Σ w·I[t]                              integrate and fire
u[t⁻] = u[t−1] + (−(u[t−1] − u_rest) + Σ w·I[t]) / τ   leaky
s[t]  = 1 if u[t⁻] >= u_th else 0
u[t]  = u_rest if s[t] else u[t⁻]

The derivative of s[t] by u[t⁻] is taken to be that of arctan(π·x) / π at x = u[t⁻] − u_th, which is 1 / (1 + (π·x)²).
No gradient passes through the reset, as in Fang et al. 2021. u_rest is 0 and u_th is 1.
"""

from __future__ import annotations

from typing import Any

import torch
from spikingjelly.activation_based import neuron, surrogate
from torch import Tensor

from softprune.errors import ConfigError, UsageError


class StateError(UsageError):
    """Neurons that still hold the membrane potentials of the batch before."""


class Spiking(neuron.BaseNode):  # type: ignore[misc]
    """Base class: neurons start at rest, and their potentials are float32 or wider.

    A network resets its neurons around each batch. If it did not, spikingjelly would go on with the potentials of
    other images; here that is an error. The time steps are plain operations, which a compiler fuses with the layers
    around them; on a GPU without compilation they are spikingjelly's kernel.
    """

    v: float | Tensor  # u; a number while at rest

    def charge(self, u: Tensor, x: Tensor) -> Tensor:
        """u[t⁻]."""
        raise NotImplementedError

    def reset(self) -> None:
        """To rest. spikingjelly's own method calls ``copy.deepcopy``, which breaks the graph in torch 2.11."""
        self.v, self.v_seq = self.v_reset, None

    def materialize_states(
        self, inputs: tuple[Tensor, ...], states: tuple[Any, ...], step_mode: str
    ) -> tuple[Any, ...]:
        if len(inputs[0]) == 0:
            raise ConfigError(
                f"Neurons need at least one time step, T × N × …. Got the shape {tuple(inputs[0].shape)}."
            )
        x = inputs[0][0]
        dtype = torch.promote_types(x.dtype, torch.float32)
        return (torch.full_like(x, states[0], dtype=dtype, requires_grad=False),)

    def multi_step_forward(self, x_seq: Tensor) -> Tensor:
        if isinstance(self.v, Tensor):
            raise StateError(
                "The state of the spiking neurons was not reset between batches. Call "
                "`spikingjelly.activation_based.functional.reset_net(network)` after each batch; the networks of "
                "softprune.spiking.sew do so themselves."
            )
        if x_seq.is_cuda and not torch.compiler.is_compiling():
            return super().multi_step_forward(x_seq)  # type: ignore[no-any-return]
        (u,) = self.materialize_states((x_seq,), (self.v,), "m")
        spikes = []
        for x in x_seq.unbind():  # compiled, the gradients of x_seq[0], x_seq[1], ... would forget channels_last
            u = self.charge(u, x)
            s = self.surrogate_function(u - self.v_threshold)
            # not s > 0: where both u and u − u_th are stored, Triton 3.6 fails (triton-lang/triton#8257)
            u = torch.where(u.detach() >= self.v_threshold, self.v_reset, u)
            spikes.append(s.to(x.dtype))
        self.v = u
        return torch.cat(spikes).view(x_seq.shape)  # not stack, which forgets channels_last


class IF(Spiking, neuron.IFNode):  # type: ignore[misc]
    """Integrate and fire: the neuron of the published experiments.

    >>> IF()(torch.tensor([[0.6], [0.6], [0.6], [0.6]])).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0]
    """

    def __init__(self) -> None:
        super().__init__(surrogate_function=surrogate.ATan(), detach_reset=True, step_mode="m")

    def charge(self, u: Tensor, x: Tensor) -> Tensor:
        return u + x


class LIF(Spiking, neuron.LIFNode):  # type: ignore[misc]
    """Leaky integrate and fire, as the paper's appendix defines it.

    Args:
        tau: τ > 1, the time constant in time steps.

    >>> LIF(tau=2.0)(torch.tensor([[1.5], [1.5], [1.5], [1.5]])).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0]
    """

    def __init__(self, tau: float = 2.0) -> None:
        if not tau > 1:
            raise ConfigError(f"`LIF(tau=...)` must be > 1. Got {tau}.")
        super().__init__(tau=float(tau), surrogate_function=surrogate.ATan(), detach_reset=True, step_mode="m")

    def charge(self, u: Tensor, x: Tensor) -> Tensor:
        return u + (x - (u - self.v_reset)) / self.tau  # type: ignore[no-any-return]
