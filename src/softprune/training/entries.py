"""What an entry of ``names.py`` is: a name, what it stands for, and how to build it. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from softprune.errors import ConfigError, did_you_mean
from softprune.recipes.config import Config
from softprune.schedules.curves import Curve

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    import softprune as sp
    from softprune.data import Dataset

    Built = sp.Threshold | Callable[[int], float]  # what `Pruner(threshold=...)` takes

Kind = Literal["images", "text"]


@dataclass(frozen=True)
class Entry:
    """A name and what it stands for, in a few words."""

    name: str
    about: str


@dataclass(frozen=True)
class Asked:
    """What a threshold may depend on. A threshold that is trained is built before there is an optimizer, from the
    parameters; the others come after it, and may read its learning-rate scheduler. ``start`` counts steps. ``flops``
    says how much each weight counts for a target; None where all count alike."""

    config: Config
    params: Mapping[str, nn.Parameter]
    steps: int
    start: int
    lr_scheduler: LRScheduler | None = None
    flops: Mapping[str, float] | None = None

    def number(self, setting: str) -> float:
        value = getattr(self.config, setting)
        assert value is not None, "settings.check() was not called"
        return float(value)


@dataclass(frozen=True)
class Method(Entry):
    """``needs`` are the settings that it cannot do without, ``reads`` those that it may be given; all others of
    ``names.OF_METHODS`` are refused. ``build`` is None where nothing is pruned. ``power`` and ``gradient`` are the
    method's own, where they are not those that its threshold brings."""

    build: Callable[[Asked], Built] | None
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    trained: bool = False
    power: float | None = None
    gradient: str | None = None

    def takes(self, setting: str) -> bool:
        return setting in self.needs or setting in self.reads


@dataclass(frozen=True)
class Pattern(Entry):
    """``build`` gets the network and an example of what it sees, and gives what ``Pruner(groups=...)`` takes; it is
    None where weights are pruned one by one. ``units`` lie in several parameters, and can be removed."""

    build: Callable[[nn.Module, Tensor], sp.Grouping] | None
    units: bool = False


@dataclass(frozen=True)
class Count(Entry):
    """``build`` gets the network and an example, and gives how much each weight counts; None where all count alike."""

    build: Callable[[nn.Module, Tensor], Mapping[str, float]] | None


@dataclass(frozen=True)
class Network(Entry):
    """A function ``name(num_classes, in_channels)`` of the module ``home``; if ``positional``, it is given the whole
    shape of what it sees, since it learns positions: ``name(num_classes, in_channels, rows, columns)``, or
    ``name(num_tokens, context)`` for text. ``context`` is the length of the windows of text that it reads, None for
    images. ``smoke`` is the shape of the synthetic data of a smoke test, and ``pixels`` a side of the images that the
    network is made for, where they are larger."""

    home: str
    smoke: tuple[int, ...] = (3, 32, 32)
    positional: bool = False
    context: int | None = None
    pixels: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what the network is made for."""
        channels, *sides = self.smoke
        return (self.context,) if self.context else (channels, *(self.pixels or side for side in sides))

    @property
    def takes(self) -> Kind:
        return "images" if self.context is None else "text"

    def build(self, classes: int, shape: tuple[int, ...]) -> nn.Module:
        make = getattr(import_module(self.home), self.name)
        network: nn.Module = make(classes, *(shape if self.positional else shape[:1]))
        return network

    def example(self, shape: tuple[int, ...]) -> Tensor:
        """One image, or window of text, of this shape, with nothing in it."""
        import torch

        return torch.zeros(1, *shape, dtype=torch.get_default_dtype() if self.context is None else torch.int64)


@dataclass(frozen=True)
class LrCurve(Entry):
    """The learning rate after warm-up, as a share of its peak; ``by_epoch``: constant within an epoch."""

    curve: Curve
    by_epoch: bool = False


@dataclass(frozen=True)
class OptimizerName(Entry):
    """``build`` gets the param groups and the settings. ``reads`` are the settings that not every optimizer has; all
    others of ``names.OF_OPTIMIZERS`` are refused."""

    build: Callable[[list[dict[str, Any]], Config], Optimizer]
    reads: tuple[str, ...] = ()

    def takes(self, setting: str) -> bool:
        return setting in self.reads


@dataclass(frozen=True)
class GradientName(Entry):
    """``build`` gives what ``Pruner(gradient=...)`` takes."""

    build: Callable[[], Any]


@dataclass(frozen=True)
class Data(Entry):
    """``build`` gets the settings and what follows the name, for data that are files: ``idx:FOLDER``. ``kind`` is None
    for data that are made to suit the network."""

    build: Callable[[Config, Path], Dataset]
    files: bool = False
    kind: Kind | None = "images"


@dataclass(frozen=True)
class Decode(Entry):
    """``on_gpu`` is what ``data.folder(on_gpu=...)`` takes."""

    on_gpu: bool | None


E = TypeVar("E", bound=Entry)


class Names(dict[str, E], Generic[E]):
    """The entries of one setting."""

    def __init__(self, setting: str, entries: Iterable[E]) -> None:
        super().__init__((entry.name, entry) for entry in entries)
        self.setting = setting

    def find(self, name: str) -> E:
        """The entry of this name, or the sentence that lists them all."""
        if name not in self:
            raise ConfigError(
                f"`{self.setting}` must be one of {', '.join(self)}. Got {name!r}.{did_you_mean(name, self)}"
            )
        return self[name]
