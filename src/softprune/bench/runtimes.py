"""Runtimes: a network becomes a call without arguments, on a number of threads.

A rival is as its users would have it: plain modules in evaluation mode, channels last for images, shapes that are
known beforehand, the default options of its converter.
"""

from __future__ import annotations

import copy
import importlib.util
import io
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from softprune import engine
from softprune.engine import build
from softprune.engine.build import CompilerError
from softprune.errors import ArgumentError

Call = Callable[[], Tensor]
"""Computes the outputs for the example; they may be overwritten by the next call."""


@dataclass(frozen=True, eq=False)
class Work:
    """What all runtimes are given.

    Args:
        model: on the CPU, in evaluation mode.
        example: the batch that is timed. Runtimes other than torch look into it at every call, whatever it holds then.
        samples: real inputs, along the first dimension, from which ranges of values are chosen.
    """

    model: nn.Module
    example: Tensor
    samples: Tensor

    @staticmethod
    def of(model: nn.Module, samples: Tensor, batch: int) -> Work:
        """The first samples are the example, the others for ranges of values; few samples are both."""
        return Work(model, _filled(samples, batch)[:batch], samples[batch:] if len(samples) > batch else samples)

    def __post_init__(self) -> None:
        if self.samples.shape[1:] != self.example.shape[1:] or not len(self.samples):
            shapes = [" × ".join(map(str, x.shape)) for x in (self.example, self.samples)]
            raise ArgumentError(f"`Work(samples=...)` must be like the example, {shapes[0]}. Got {shapes[1]}.")

    def calibration(self) -> list[Tensor]:
        """The samples in batches as large as the example; some samples come again to fill the last."""
        batch = len(self.example)
        return list(torch.split(_filled(self.samples, batch), batch))


def _filled(samples: Tensor, batch: int) -> Tensor:
    """A whole number of batches."""
    count = len(samples)
    return samples[torch.arange(count + -count % batch) % count]


class Runtime(ABC):
    """One way to run a network."""

    name: str
    packages: ClassVar[tuple[str, ...]] = ()  # which it needs beside torch

    def missing(self) -> str | None:
        """Why it cannot be used here."""
        absent = [package for package in self.packages if importlib.util.find_spec(package) is None]
        if not absent:
            return None
        return f"{' and '.join(absent)} not installed: `pip install 'softprune[bench]'`"

    @abstractmethod
    def convert(self, work: Work) -> Callable[[int], Call]:
        """From a number of threads to the call. What takes long is done before, once for all numbers."""


@dataclass(frozen=True)
class TorchEager(Runtime):
    """The module itself."""

    name: str = "torch eager"

    def convert(self, work: Work) -> Callable[[int], Call]:
        model, example = _channels_last(work)
        return lambda threads: _call(model, example)


@dataclass(frozen=True)
class TorchCompiled(Runtime):
    """``torch.compile``; it needs a C++ compiler."""

    name: str = "torch.compile"

    def convert(self, work: Work) -> Callable[[int], Call]:
        model, example = _channels_last(work)

        def start(threads: int) -> Call:
            torch.compiler.reset()  # code for another batch, or number of threads
            return _call(torch.compile(model, dynamic=False), example)

        return start


@dataclass(frozen=True)
class Engine(Runtime):
    """``softprune.engine``, in a precision."""

    precision: str

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"softprune {self.precision}"

    def missing(self) -> str | None:
        try:
            build.compiler()
        except CompilerError as error:
            return str(error)
        return None

    def convert(self, work: Work) -> Callable[[int], Call]:
        def start(threads: int) -> Call:
            compiled = engine.compile(
                work.model, work.example, calibration=work.calibration(), precision=self.precision, threads=threads
            )
            return partial(compiled, work.example)

        return start


def _channels_last(work: Work) -> tuple[nn.Module, Tensor]:
    """Of images; everything else stays as it is."""
    if work.example.ndim != 4:
        return work.model, work.example
    layout: dict[str, Any] = {"memory_format": torch.channels_last}
    return copy.deepcopy(work.model).to(**layout), work.example.to(**layout)


def _call(model: Callable[[Tensor], Tensor], example: Tensor) -> Call:
    def call() -> Tensor:
        with torch.inference_mode():
            return model(example)

    return call


@contextmanager
def quiet() -> Iterator[None]:
    """Converters have much to tell: nothing of it is printed."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
