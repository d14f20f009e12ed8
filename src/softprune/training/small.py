"""The small network of a run: without what died, with the same outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from softprune.removal import shrink

FILE = "small.safetensors"


@dataclass(frozen=True)
class Small:
    """What is left when the dead are gone, and what that saves.

    Args:
        remark: in a sentence.
        table: what went, and where.
        saved: {what: (before, after)} of parameters, multiplications, and seconds for one sample on the CPU; empty
            where nothing went.
        tensors: the weights of the small network; empty where nothing went.
    """

    remark: str
    table: str = ""
    saved: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {"remark": self.remark, **{name: list(pair) for name, pair in self.saved.items()}}

    def to_markdown(self) -> str:
        return f"{self.remark}\n\n```\n{self.table}\n```" if self.table else self.remark


def removed(network: nn.Module, example: Tensor) -> Small:
    """The small network of a trained one. Whatever goes wrong is a remark: the run itself is complete.

    Args:
        network: with its sparse weights, on the CPU.
        example: one image, or window of text.
    """
    dtype = next(network.parameters()).dtype
    network = network.float() if dtype in (torch.float16, torch.bfloat16) else network  # on a CPU
    example = example.to(next(network.parameters()).dtype) if example.is_floating_point() else example
    try:
        shrunk = shrink(network, example)
        if not any(change.dead for change in shrunk.sites):
            return Small("Nothing is dead that could be removed as a whole: the network keeps its size.")
        before, after = shrunk.parameters
        if before == after:
            return Small("Nothing of what is dead could be removed.", str(shrunk))
        latency = shrunk.latency()
    except Exception as error:  # whatever the network's own code raises when it is looked at, or is smaller
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        return Small(f"The network could not be made smaller: {reason}.")
    saved = {
        "parameters": shrunk.parameters,
        "multiplications": shrunk.multiplications,
        "seconds": (latency.before, latency.after),
    }
    state = shrunk.model.state_dict()
    tensors = {name: (t.to(dtype) if t.is_floating_point() else t).contiguous() for name, t in state.items()}
    remark = (
        f"{FILE} computes the same with {after:,} of {before:,} parameters and {_share(*shrunk.multiplications)} of "
        f"the multiplications: {1000 * latency.after:.2f} ms instead of {1000 * latency.before:.2f} ms for one sample "
        f"on {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)} of this CPU."
    )
    return Small(remark, str(shrunk), saved, tensors)


def _share(before: float, after: float) -> str:
    return f"{after / max(before, 1):.1%}"
