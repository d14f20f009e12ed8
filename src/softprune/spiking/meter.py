"""Measures a spiking network's activity during an evaluation.

    with Meter(network) as meter:
        for x, y in loader:
            network(x)
    print(meter.result().to_markdown())

A spike costs one addition for each nonzero weight that leads from its neuron to another: its fan-out, which is smaller
at the border of an image and under a stride. So a layer's synaptic operations are Σ spikes · fan-out over its input.
The fan-out is the gradient of the layer's summed output, with weights of 0 and 1; no pass over the data is added.

``report.flops`` finds the products of any layer by a dispatch mode; Meter hooks the layers of ``KINDS`` and names
others in a warning. A dispatch mode would run Python for every operation of a whole evaluation, not for one batch, and
the gradient, here one line for any layer, would have to be written for each kind of product and either operand.
"""

from __future__ import annotations

import copy
import math
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import torch
from spikingjelly.activation_based.neuron import BaseNode
from spikingjelly.activation_based.op_counter import SimpleEnergyCostConfig
from torch import Tensor, nn

from softprune.errors import ConfigError
from softprune.spiking.activity import Activity, Firing, Operations

KINDS: dict[type[nn.Module], int] = {  # a layer with weights -> the dimensions of one sample
    nn.Linear: 1,
    nn.Conv1d: 2,
    nn.Conv2d: 3,
    nn.Conv3d: 4,
    nn.ConvTranspose1d: 2,
    nn.ConvTranspose2d: 3,
    nn.ConvTranspose3d: 4,
}
COST = SimpleEnergyCostConfig.fp32()  # Horowitz 2014, 45 nm: 0.9 pJ an addition, 4.6 pJ a multiply-accumulate


@dataclass
class _Neurons:
    neurons: int
    spikes: Tensor
    chances: Tensor  # neurons · time steps · images


@dataclass
class _Weights:
    dense: Tensor  # fan-outs, in the shape of the layer's input
    pruned: Tensor
    received: Tensor  # the input, summed over images and time steps
    spikes: Tensor  # whether it was whole numbers, always
    shown: Tensor  # images · time steps


@dataclass
class Meter:
    """Hooks on every layer of neurons and weights inside a ``with`` block; ``result()`` is what they measured.

    Call the network once for each batch, over all time steps. The batch size is read at the first neurons, which see
    T × N × …, or N × … if they take one time step at a time. A layer whose input ever was anything but whole numbers
    >= 0 (pixels, averages) is counted in multiplications. Compiled networks run uncompiled meanwhile, since compiled
    code skips hooks.

    Args:
        network: a network of spikingjelly neurons, such as those of ``softprune.spiking.sew``.

    >>> from softprune.spiking.sew import sew_digits
    >>> with Meter(sew_digits()) as meter:
    ...     logits = meter.network(torch.zeros(2, 1, 8, 8))
    >>> meter.result().images
    2
    """

    network: nn.Module
    images: int = 0
    _counted: bool = False  # the images of the call under way
    _neurons: dict[str, _Neurons] = field(default_factory=dict)
    _weights: dict[str, _Weights] = field(default_factory=dict)
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self._warn_of_the_uncounted()
        self._open.enter_context(torch.compiler.set_stance("force_eager"))
        self._open.enter_context(self.network.register_forward_pre_hook(self._begin))
        for name, m in self.network.named_modules():
            if isinstance(m, BaseNode):
                self._open.enter_context(m.register_forward_hook(partial(self._fired, name)))
            elif (kind := _kind(m)) is not None:
                self._open.enter_context(m.register_forward_hook(partial(self._reached, name, kind)))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def result(self) -> Activity:
        """What all processes measured together; each of them must call it."""
        device = next(self.network.parameters()).device
        if _total(torch.tensor(not self._neurons, dtype=torch.long, device=device)):
            raise ConfigError("Nothing to measure: give a network of spiking neurons, and every process an image.")
        images = int(_total(torch.tensor(self.images, device=device)))
        firing = [
            Firing(name, float(_total(s.spikes) / _total(s.chances)), s.neurons) for name, s in self._neurons.items()
        ]
        operations = [_operations(name, seen, images) for name, seen in self._weights.items()]
        return Activity(tuple(firing), tuple(operations), images)

    def _warn_of_the_uncounted(self) -> None:
        counted = {id(m.weight) for m in self.network.modules() if _kind(m) is not None}
        if uncounted := [n for n, p in self.network.named_parameters() if p.ndim > 1 and id(p) not in counted]:
            warnings.warn(
                f"The synaptic operations of {', '.join(uncounted)} are not counted. This is because Meter knows "
                f"{', '.join(kind.__name__ for kind in KINDS)}.",
                stacklevel=3,
            )

    def _begin(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if any(isinstance(m.v, Tensor) for m in module.modules() if isinstance(m, BaseNode)):
            raise ConfigError(
                "Cannot measure a network whose neurons still hold the potentials of the call before: each call counts "
                "as a batch of other images. Let one call do all time steps, with `functional.set_step_mode(network, "
                "'m')`, and `functional.reset_net(network)` after it."
            )
        self._counted = False

    @torch.no_grad()
    def _fired(self, name: str, module: BaseNode, inputs: tuple[Any, ...], spikes: Tensor) -> None:
        images, *each = spikes.shape[1:] if module.step_mode == "m" else spikes.shape
        if not self._counted:
            self.images, self._counted = self.images + images, True
        if name not in self._neurons:
            self._neurons[name] = _Neurons(math.prod(each), *spikes.new_zeros(2, dtype=torch.double))
        seen = self._neurons[name]
        seen.spikes += spikes.sum(dtype=torch.double)
        seen.chances += spikes.numel()

    @torch.no_grad()
    def _reached(
        self, name: str, kind: type[nn.Module], module: nn.Module, inputs: tuple[Tensor], output: Tensor
    ) -> None:
        x = inputs[0].flatten(0, -KINDS[kind] - 1)  # over images and time steps, wherever they are
        if name not in self._weights:
            alive = torch.ne(module.weight, 0).float()  # type: ignore[arg-type]
            dense, pruned = (_fan_out(module, kind, weight, x) for weight in (torch.ones_like(alive), alive))
            received, shown = torch.zeros_like(dense), dense.new_zeros(())
            self._weights[name] = _Weights(dense, pruned, received, torch.ones_like(shown, dtype=torch.bool), shown)
        seen = self._weights[name]
        if x.shape[1:] != seen.received.shape:
            raise ConfigError(
                f"Cannot measure {name} at two sizes, {tuple(seen.received.shape)} and {tuple(x.shape[1:])}: its "
                "fan-out differs. Measure images of one size at a time."
            )
        seen.received += x.sum(0, dtype=torch.double)
        seen.spikes &= ((x >= 0) & (x == x.round())).all()
        seen.shown += len(x)


def _kind(module: nn.Module) -> type[nn.Module] | None:
    return next((kind for kind in KINDS if isinstance(module, kind)), None)


@torch.inference_mode(False)
@torch.enable_grad()
def _fan_out(module: nn.Module, kind: type[nn.Module], weight: Tensor, x: Tensor) -> Tensor:
    """How many of the layer's weights, which are 0 or 1, each of its inputs is multiplied by."""
    layer = copy.copy(module)  # calling ``forward`` skips its hooks
    layer._parameters = {"weight": nn.Parameter(weight.clone()), "bias": None}
    silence = torch.zeros(1, *x.shape[1:], dtype=weight.dtype, device=x.device, requires_grad=True)
    with torch.autocast(x.device.type, enabled=False):
        reached = kind.forward(layer, silence)
    (met,) = torch.autograd.grad(reached.sum(), silence)
    return met[0].round().double()


def _operations(name: str, seen: _Weights, images: int) -> Operations:
    spikes = not _total((~seen.spikes).long())
    received = _total(seen.received if spikes else seen.shown)  # a value is multiplied even if it is 0
    dense, pruned = (float((received * fan_out).sum()) / images for fan_out in (seen.dense, seen.pruned))
    return Operations(name, spikes, dense, pruned, COST.e_ac_pj if spikes else COST.e_mac_pj)


def _total(value: Tensor) -> Tensor:
    """The sum over processes."""
    value = value.clone()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(value)
    return value
