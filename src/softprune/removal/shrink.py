"""Exact removal: the network without what zeros have made dead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from softprune.errors import ArgumentTypeError
from softprune.removal import huggingface
from softprune.removal.dead import alive, leave_one
from softprune.removal.masks import without_masks
from softprune.removal.result import Change, Shrunk
from softprune.removal.sizes import resized
from softprune.removal.slicing import cut
from softprune.removal.varies import Read, reads
from softprune.report.flops import flops_per_weight
from softprune.selection import unwrap
from softprune.structure import Site, Structure, analyse
from softprune.structure.state import changed, tensors
from softprune.structure.trace import evaluation, run

# Sums in another order differ by so much, relative to the largest output.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 3e-2, torch.bfloat16: 1e-1}


@torch.inference_mode(False)  # in which linear layers are hidden, and what is made cannot be trained
def shrink(model: nn.Module, example: Any) -> Shrunk:
    """A smaller module with the same outputs: without channels, neurons and heads that are dead.

    A unit is dead if nobody reads it, since every weight that would is zero; or if it is the same number for every
    input, since every weight that makes it is zero. Such numbers, after norms and activations, go into the biases of
    the layers that read them, unless they are others at another size of the input. However the zeros came about, the
    result is exact: it is run on the example, and on noise of its size and of another that the module takes, and
    compared; sites without which the module does not run or gives something else stay, and the table says why. The
    model that is given is not changed.

    - At the border of a padded convolution a constant that is not zero is missing, so it cannot go into the bias: such
      a channel stays.
    - The masks of ``torch.nn.utils.prune`` count as zeros, and are gone in the result.
    - A model with a config (Hugging Face) shrinks to what a config can describe: all layers to the widest of them.

    Args:
        model: the network; DDP, DataParallel and ``torch.compile`` around it are looked through.
        example: its input: a tensor, a tuple of positional arguments, or a mapping of keyword arguments. One sample is
            enough, of the largest size that the network is used with. Branches that it does not take are not seen, nor
            positions behind its last.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> with torch.no_grad():
    ...     net[2].weight[:, :5] = 0
    >>> print(shrink(net, torch.ones(1, 4)))
    layer  kind    before  after
    0      neuron       8      3
    parameters: 58 -> 23 (60.3% fewer)
    multiplications: 48 -> 18 (62.5% fewer)
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"`shrink(model, example)` must be given a module. Got {type(model).__name__}.")
    model = without_masks(unwrap(model))
    structure = analyse(model, example)
    others = resized(model, example)
    constants = reads(model, example, *others)
    described = huggingface.has_config(model)
    living = alive(model, structure, constants, new_biases=not described)
    keep, config = huggingface.fit(model, structure, living) if described else (living, None)
    check = _Check(model, [example, *map(_noise, (example, *others))])
    trial = _Trial(model, structure, constants, keep, config, check)
    sites = [site for site in structure.sites if not bool(keep[site.units.start : site.units.stop].all())]
    removed = trial.largest(sites, [])
    small = trial.build(removed)
    changes = tuple(_change(site, living, keep, site in removed, trial.reasons) for site in structure.sites)
    return Shrunk(
        model=small,
        sites=changes,
        parameters=(_size(model), _size(small)),
        multiplications=(_multiplications(model, example), _multiplications(small, example)),
        unknown=structure.unknown,
        original=model,
        example=example,
    )


@dataclass(frozen=True)
class _Trial:
    """Cuts sites out, and looks whether the outputs are the same."""

    model: nn.Module
    structure: Structure
    reads: Mapping[str, Sequence[Read]]
    keep: Tensor
    config: Any
    difference: Callable[[nn.Module], str]
    reasons: dict[str, str] = field(default_factory=dict)

    def build(self, sites: Sequence[Site]) -> nn.Module:
        keep = torch.ones_like(self.keep)
        for site in sites:
            keep[site.units.start : site.units.stop] = self.keep[site.units.start : site.units.stop]
        small = cut(self.model, self.structure, leave_one(self.structure, keep), self.reads)
        if sites and self.config is not None:
            huggingface.configure(small, self.config)
        return small

    def largest(self, sites: Sequence[Site], already: Sequence[Site]) -> list[Site]:
        """Those sites that can go beside those which already went, found by halving."""
        if not sites:
            return []
        small = self.build([*already, *sites])
        try:
            reason = self.difference(small)
        except Exception as error:  # whatever the module's own code raises when its sizes change
            reason = f"its forward pass needs the size: {next(iter(str(error).splitlines()), type(error).__name__)}"
        if not reason:
            return list(sites)
        if len(sites) == 1 or self.config is not None:
            self.reasons.update({site.name: reason for site in sites})
            return []
        half = len(sites) // 2
        first = self.largest(sites[:half], already)
        return [*first, *self.largest(sites[half:], [*already, *first])]


class _Check:
    """Compares the outputs of a smaller network with those of the model."""

    def __init__(self, model: nn.Module, examples: Sequence[Any]) -> None:
        self.examples = examples
        with evaluation(model):
            self.outputs = [[x.clone() for x in tensors(run(model, one))] for one in self.examples]

    def __call__(self, small: nn.Module) -> str:
        with evaluation(small):
            for example, outputs in zip(self.examples, self.outputs, strict=True):
                for a, b in zip(outputs, tensors(run(small, example)), strict=True):
                    if a.shape != b.shape:
                        return "the output would have another shape"
                    if a.is_floating_point() and a.numel():
                        scale = a.nan_to_num().abs().max().clamp(min=torch.finfo(a.dtype).tiny)
                        close = (a - b).abs() <= _TOLERANCE.get(a.dtype, 1e-1) * scale
                        if not bool((close | (a == b) | (a.isnan() & b.isnan())).all()):
                            return "the outputs would differ"
        return ""


def _noise(example: Any) -> Any:
    """The example with normal numbers in the place of its own; whole numbers stay."""

    def change(x: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x) if x.is_floating_point() else x

    return changed(example, change)


def _change(site: Site, living: Tensor, keep: Tensor, removed: bool, reasons: Mapping[str, str]) -> Change:
    here = slice(site.units.start, site.units.stop)
    before, needed = len(site.units), int(living[here].sum())
    after = int(keep[here].sum()) if removed else before
    reason = reasons.get(site.name, "")
    if after > needed and not reason:
        reason = "a config has one size for all layers" if removed else "no config can say so"
    return Change(site.name, site.kind, before, before - needed, after, f"left alone: {reason}" if reason else "")


def _size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


class _Called(nn.Module):
    """A model that takes its example in one piece."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, example: Any) -> Any:
        return run(self.model, example)


def _multiplications(model: nn.Module, example: Any) -> float:
    sizes = {f"model.{name}": p.numel() for name, p in model.named_parameters()}
    return sum(times * sizes[name] for name, times in flops_per_weight(_Called(model), example).items())
