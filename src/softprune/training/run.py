"""A run: trained in its folder from the newest checkpoint on, and measured again when it is complete."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, seed_everything
from torch import Tensor

import softprune as sp
from softprune.data import Dataset
from softprune.errors import ArgumentError, ConfigError
from softprune.recipes.config import EVALUATION, Config
from softprune.removal.load import load_small
from softprune.training import checkpoint, history, model_file, names, results, settings, small, trainer
from softprune.training.checkpoint import AtomicCheckpointIO, Checkpoints
from softprune.training.data_card import DataCard
from softprune.training.files import write_text
from softprune.training.folder import Folder
from softprune.training.history import History
from softprune.training.launch import first_process
from softprune.training.observer import Measured, measure
from softprune.training.recorder import Bar, Recorder
from softprune.training.stream import Samples
from softprune.training.task import Task

Progress = Literal["bar", "lines"] | None
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. ``stopped_by`` is the number of the signal that stopped it early."""

    accuracy: float | None
    sparsity: float
    stopped_by: int | None = None
    figures: Mapping[str, float] = field(default_factory=dict)  # what else the network has to tell


@dataclass(frozen=True)
class Run:
    """Settings, and the folder in which they are trained."""

    home: Folder
    config: Config

    @classmethod
    def create(cls, path: Path, config: Config) -> Run:
        """A new run in the folder ``path``, which this process owns from now on until training ends."""
        trainer.rehearse(config)
        return cls(Folder.create(path, config), config)

    @classmethod
    def claim(cls, stem: str, config: Config) -> Run:
        """A new run in a new folder under runs/."""
        trainer.rehearse(config)
        return cls(Folder.claim(stem, config), config)

    @classmethod
    def open(cls, path: Path) -> Run:
        """The run in the folder ``path``."""
        home = Folder.open(path)
        return cls(home, home.config)

    @property
    def folder(self) -> Path:
        return self.home.path

    @property
    def outcome(self) -> dict[str, Any] | None:
        """The contents of report.json, if the run is complete."""
        return self.home.outcome

    def train(
        self,
        say: Say = print,
        progress: Progress = None,
        callbacks: Sequence[Callback] = (),
        data: Dataset | None = None,
    ) -> Outcome:
        """Train from the newest checkpoint that can be used, or from the beginning.

        Args:
            say: is given every line for the user.
            progress: a bar for a terminal, or lines for a log, one for each epoch.
            callbacks: more of Lightning's.
            data: what ``config.data`` names, if they are at hand already.
        """
        if (complete := self.outcome) is not None:
            say(f"{self.folder} is complete.")
            return Outcome(complete["accuracy"], complete["sparsity"], figures=complete["figures"])
        with self.home.held():
            return self._train(say, progress, callbacks, data)

    def _train(self, say: Say, progress: Progress, callbacks: Sequence[Callback], data: Dataset | None) -> Outcome:
        config, began = self.config, time.monotonic()
        data = data or names.dataset(config)
        card = self._card(data)
        if (remark := card.remark()) is not None:
            say(remark)
        module = Samples(config, data)
        batches = module.batches()
        seed_everything(config.seed, verbose=False)
        task = Task(config, len(data.classes), data.shape, batches)
        found = self._newest(say, task)
        saver = Checkpoints(self.home, config)
        recorder = Recorder(History(self.folder / "history.jsonl"), say if progress == "lines" else None)
        everyone = [recorder, saver, *callbacks, *([Bar()] if progress == "bar" else [])]
        fitting = trainer.training(config, self.folder, task, everyone, AtomicCheckpointIO(found))
        decoder = data.train.decoder(fitting.strategy.root_device)
        if decoder is not None:
            say(f"JPEG files are decoded by {decoder}.")
        with trainer.threads(task.network):
            with saver:
                try:
                    fitting.fit(task, module, ckpt_path=found[0] if found else None)
                except SystemExit:  # Lightning's, after a second Ctrl-C
                    if saver.stopped_by is None:
                        raise
                    raise KeyboardInterrupt from None
            if fitting.strategy.reduce_boolean_decision(saver.stopped_by is not None, all=False):
                stopped_by = saver.stopped_by or signal.SIGTERM  # of this process, or of another
                return Outcome(None, task.pruner.sparsity() if task.pruner else 0.0, stopped_by)
            report = recorder.report or self._recovered(
                sp.summarize(task.pruner, task.network) if task.pruner else sp.summarize(task.network)
            )
            if task.pruner is not None:
                task.pruner.detach()
            measured = measure(fitting, task, module)
        tensors = model_file.gather(task.network)
        if fitting.is_global_zero:
            shrunk = self._small(data, tensors, fitting.strategy.root_device, say) if task.pruner is not None else None
            seconds = time.monotonic() - began
            results.write(self.home, config, card, decoder, tensors, shrunk, report, measured, seconds)
        return Outcome(measured.accuracy, report.sparsity, figures=measured.figures())

    def _small(self, data: Dataset, tensors: Mapping[str, Tensor], device: torch.device, say: Say) -> small.Small:
        """The network without what died, looked at with one sample of the data."""
        network = names.NETWORKS.find(self.config.network).build(len(data.classes), data.shape)
        network.to(next(t.dtype for t in tensors.values() if t.is_floating_point())).load_state_dict(tensors)
        example, _ = next(iter(data.val.loader(batch=1, train=False, device=device)))
        with trainer.threads(network):
            found = small.removed(network, example.cpu())
        if found.tensors or names.PATTERNS[self.config.pattern].units:
            say(found.remark)
        return found

    def _card(self, data: Dataset) -> DataCard:
        """That of the data, which must be those that the run began with."""
        card, path = DataCard.of(data), self.folder / "data.json"
        if (before := type(card).read(path)) is not None:
            before.resumed_with(card, self.config.data)
        elif first_process():
            write_text(path, card.to_json())
        return card

    def _recovered(self, report: sp.Report) -> sp.Report:
        """The report of a run without a validation: one that is not pruned, or was stopped after its last step. The
        pruner of the latter made no step since it was resumed, so that the last penalty is read from the history."""
        return replace(report, penalty=history.last(self.folder / "history.jsonl").get("penalty"))

    def _newest(self, say: Say, task: Task) -> tuple[Path, dict[str, Any]] | None:
        def optimizer() -> Mapping[str, Any]:
            return trainer.rehearsed(self.config).state_dict()

        expected = checkpoint.Expected(self.config, frozenset(task.state_dict()), optimizer)
        found = checkpoint.newest(self.home, expected, say)
        if found is None and history.last(self.folder / "history.jsonl"):
            say("There is no checkpoint yet: training begins anew.")
        return found

    @property
    def has_small(self) -> bool:
        """Whether something died that could be removed."""
        return (self.folder / small.FILE).exists()

    def evaluate(self, changes: Iterable[str], *, of_small: bool = False) -> Measured:
        """Measure the model file, or that of the small network, again on one device, with the run's data or with
        others: ``["data=FOLDER"]``."""
        changes = list(changes)
        config = replace(names.located(self.config.override(changes)), devices="1", nodes=1)
        settings.check(config)
        if other := [name for name, *_ in (s.partition("=") for s in changes) if name not in EVALUATION]:
            raise ConfigError(
                f"`{other[0]}` belongs to the trained network, and cannot be changed to evaluate it. "
                f"Settings that can: {', '.join(EVALUATION)}."
            )
        if self.outcome is None:
            raise ConfigError(
                f"{self.folder} is not complete yet. Go on with `softprune train --resume {self.folder}`."
            )
        data = names.dataset(config)
        if (card := type(DataCard.of(data)).read(self.folder / "data.json")) is not None:
            data = card.evaluated_on(data, config.data)
        task = Task(config, len(data.classes), data.shape, batches=1)
        path = self.folder / (small.FILE if of_small else "model.safetensors")
        tensors = model_file.read(path)
        try:
            if of_small:
                task.network = load_small(task.network, tensors)
            else:
                task.network.load_state_dict(tensors)
        except (RuntimeError, ArgumentError) as error:
            raise ConfigError(
                f"{path} does not fit the network {config.network!r} for {len(data.classes)} classes and "
                f"{data.shape[0]} channels. Choose data with the classes that it was trained on."
            ) from error
        with trainer.threads(task.network):
            return measure(trainer.measuring(config), task, Samples(config, data))
