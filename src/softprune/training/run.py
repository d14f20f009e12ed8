"""A run and its folder.

config.json          the settings
data.json            classes, image size and normalisation
checkpoints/         step-000001234.ckpt, the last two
tensorboard/         logs
history.jsonl        curves
model.safetensors    the sparse weights under their ordinary names
report.md, .json     what came out; they exist when the run is complete
plots/               threshold and penalty, sparsity, layers, weights leaving and coming back
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, seed_everything
from torch import Tensor

import softprune as sp
from softprune.data import Dataset
from softprune.errors import CheckpointError, ConfigError
from softprune.recipes.config import EVALUATION, Config
from softprune.training import checkpoint, history, plots, weights
from softprune.training.atomic import readable, replacing
from softprune.training.history import Bar, History
from softprune.training.images import Images, dataset
from softprune.training.launch import alone, first_process
from softprune.training.observer import Observation, Observed
from softprune.training.origin import Origin
from softprune.training.task import Task, in_sentences, plain_trainer, rehearse
from softprune.training.trainer import build, quieten


@dataclass(frozen=True)
class Outcome:
    """How a run ended. ``stopped_by`` is the number of the signal that stopped it early."""

    accuracy: float | None
    sparsity: float
    stopped_by: int | None = None
    figures: Mapping[str, float] = field(default_factory=dict)  # what else the network has to tell


@dataclass(frozen=True)
class Run:
    folder: Path
    config: Config
    new_folder: bool = field(default=False, compare=False)  # made by ``create``

    @classmethod
    def create(cls, folder: Path, config: Config, *, claim: bool = False) -> Run:
        """A new run; its first process makes the folder, and refuses one that holds a run, or anything else, already.
        What is left of a run that never began may be there, unless the folder is to be ``claim``ed: then it is a
        FileExistsError that there is one."""
        quieten()
        rehearse(config)
        if not first_process():
            return cls(folder, config)
        begun = [folder / "history.jsonl", folder / "report.json", *checkpoint.find(folder / "checkpoints")]
        if not claim and any(path.exists() for path in begun):
            raise ConfigError(
                f"{folder} holds a run already. Go on with `softprune train --resume {folder}`, "
                "or choose another folder with `--out`."
            )
        try:
            new = not folder.exists()
            if not claim and folder.is_dir() and not _left_by_us(folder):
                raise ConfigError(f"{folder} is not empty. Choose another folder with `--out`.")
            folder.mkdir(parents=True, exist_ok=not claim)
            (folder / "config.json").write_text(config.to_json())
        except OSError as error:
            if claim and isinstance(error, FileExistsError):
                raise
            raise ConfigError(
                f"Cannot make the folder {folder}: {error.strerror}. Choose another with `--out`."
            ) from error
        return cls(folder, config, new)

    @classmethod
    def open(cls, folder: Path) -> Run:
        path = folder / "config.json"
        if not path.exists():
            raise ConfigError(f"{folder} is not a run: it holds no config.json.")
        with readable(path):
            return cls(folder, Config.from_json(path.read_text()))

    def withdraw(self) -> None:
        """Remove what ``create`` made, where training never began."""
        if not first_process() or not _left_by_us(self.folder):
            return
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self.new_folder:
            self.folder.rmdir()

    @property
    def outcome(self) -> dict[str, Any] | None:
        """The contents of report.json, if the run is complete."""
        path = self.folder / "report.json"
        if not path.exists():
            return None
        with readable(path, " Delete it, and `--resume` writes it again."):
            values: dict[str, Any] = json.loads(path.read_text())
        return values

    def train(
        self,
        say: Callable[[str], None] = print,
        progress: bool = True,
        callbacks: Sequence[Callback] = (),
        images: Dataset | None = None,
    ) -> Outcome:
        """Train from the newest checkpoint that can be read, or from the beginning.

        ``images`` are what ``config.data`` names, if they are at hand already.
        """
        quieten()
        if (complete := self.outcome) is not None:
            say(f"{self.folder} is complete.")
            return Outcome(complete["accuracy"], complete["sparsity"], figures=complete.get("figures", {}))
        with alone(self.folder / "config.json"):
            return self._train(say, progress, callbacks, images)

    def _train(
        self, say: Callable[[str], None], progress: bool, callbacks: Sequence[Callback], images: Dataset | None
    ) -> Outcome:
        config = self.config
        began = time.monotonic()
        images = images or dataset(config)
        origin = self._origin(images)
        if not origin.in_memory:
            say(f"Images are cut to {origin.shape[2]} × {origin.shape[1]} pixels.")
        module = Images(config, images)
        seed_everything(config.seed, verbose=False)
        task = Task(config, len(images.classes), images.shape[0], module.batches())
        saver = checkpoint.Checkpoints(self.folder / "checkpoints", config.checkpoint_minutes)
        recorder = History(self.folder / "history.jsonl")
        with in_sentences():
            everyone = [recorder, saver, *callbacks, *([Bar()] if progress else [])]
            trainer = build(config, self.folder, task, everyone)
        with saver:
            trainer.fit(task, module, ckpt_path=self._newest(say, task.state_dict()))
        if trainer.strategy.reduce_boolean_decision(saver.stopped_by is not None, all=False):
            stopped_by = saver.stopped_by or signal.SIGTERM  # of this process, or of another
            return Outcome(None, task.pruner.sparsity() if task.pruner else 0.0, stopped_by)
        report = recorder.report or self._recovered(sp.summarize(task.pruner or task.network))
        if task.pruner is not None:
            task.pruner.detach()
        observer = task.network.observer() if isinstance(task.network, Observed) else None
        with observer or nullcontext():
            accuracy = trainer.validate(task, module, verbose=False)[0]["accuracy"]
        observed = observer.result() if observer else None
        tensors = weights.gather(task.network)
        if trainer.is_global_zero:
            self._write(tensors, report, accuracy, task.steps, time.monotonic() - began, observed, origin)
        return Outcome(accuracy, report.sparsity, figures=observed.figures() if observed else {})

    def _origin(self, images: Dataset) -> Origin:
        """What the run began with, which ``images`` must be."""
        origin, path = Origin.of(images), self.folder / "data.json"
        if (before := Origin.read(path)) is not None:
            before.resumed_with(origin, self.config.data)
        elif first_process():
            origin.write(path)
        return origin

    def _recovered(self, report: sp.Report) -> sp.Report:
        """Of a run that was stopped when nothing was left to train: its last penalty is in the history alone."""
        return replace(report, penalty=history.last(self.folder / "history.jsonl").get("penalty"))

    def progress(self) -> str:
        """How far a run is that is not complete."""
        last = history.last(self.folder / "history.jsonl")
        forms = {"loss": ".4g", "sparsity": ".2%", "threshold": ".4g", "accuracy": ".2%"}
        numbers = [f"step {last.get('step', 0):,}"]
        numbers += [f"{name} {last[name]:{form}}" for name, form in forms.items() if name in last]
        blend = " GPO's weights become exactly zero when it is." if self.config.method == "gpo" else ""
        return f"The run is not complete: {', '.join(numbers)}.{blend}"

    def newest_weights(self) -> Path:
        """The model file of a complete run, the newest checkpoint of another."""
        checkpoints = checkpoint.find(self.folder / "checkpoints")
        for path in (self.folder / "model.safetensors", *checkpoints):
            if path.exists():
                return path
        raise ConfigError(f"{self.folder} holds neither model.safetensors nor a checkpoint yet.")

    def evaluate(self, settings: Iterable[str]) -> tuple[float, int]:
        """Accuracy of the model file, and the number of images it was measured on."""
        quieten()
        settings = list(settings)
        config = self.config.override(settings)
        if other := [name for name, *_ in (s.partition("=") for s in settings) if name not in EVALUATION]:
            raise ConfigError(
                f"`{other[0]}` belongs to the trained network, and cannot be changed to evaluate it. "
                f"Settings that can: {', '.join(EVALUATION)}."
            )
        if self.outcome is None:
            raise ConfigError(
                f"{self.folder} is not complete yet. Go on with `softprune train --resume {self.folder}`."
            )
        images = dataset(config)
        if (origin := Origin.read(self.folder / "data.json")) is not None:
            images = origin.evaluated_on(images, config.data)
        module = Images(config, images)
        task = Task(config, len(images.classes), images.shape[0], batches=1)
        path = self.folder / "model.safetensors"
        tensors = weights.read(path)
        try:
            task.network.load_state_dict(tensors)
        except RuntimeError as error:
            raise ConfigError(
                f"{path} does not fit the network {config.network!r} for {len(images.classes)} classes and "
                f"{images.shape[0]} channels. Choose data with the classes that it was trained on."
            ) from error
        with in_sentences():
            trainer = plain_trainer(config, devices=1)
        return trainer.validate(task, module, verbose=False)[0]["accuracy"], len(images.val)

    def _newest(self, say: Callable[[str], None], names: Collection[str]) -> Path | None:
        """The newest checkpoint of this network that can be read; none if there is none at all."""
        folder = self.folder / "checkpoints"
        if first_process():
            checkpoint.sweep(folder)
        for path in (found := checkpoint.find(folder)):
            try:
                checkpoint.load(path, names)
            except CheckpointError as error:
                say(f"{error} Trying the one before it.")
            else:
                say(f"Resuming from {path}.")
                return path
        if found:
            raise CheckpointError(f"No checkpoint in {folder} can be read. Delete them to begin the run anew.")
        if history.last(self.folder / "history.jsonl"):
            say("There is no checkpoint yet: training begins anew.")
        return None

    def _write(
        self,
        tensors: dict[str, Tensor],
        report: sp.Report,
        accuracy: float,
        steps: int,
        seconds: float,
        observed: Observation | None,
        origin: Origin,
    ) -> None:
        """Everything a complete run leaves behind; report.json last, since it says that the run is complete."""
        config = self.config
        about = {"config": config.to_json(), "data": origin.to_json()}
        weights.save(tensors, self.folder / "model.safetensors", about)
        plots.draw(self.folder, report)
        aim = "" if config.target is None else f" (target {config.target:.2%})"
        lines = [
            f"# {config.method} · {config.network} · {config.data}",
            f"Accuracy {accuracy:.2%} at {report.sparsity:.2%} sparsity{aim} after {steps:,} steps.",
            report.to_markdown(),
            *([observed.to_markdown()] if observed else []),
            *(f"![{path.stem}](plots/{path.name})" for path in sorted((self.folder / "plots").glob("*.png"))),
            f"```json\n{config.to_json()}\n```",
        ]
        (self.folder / "report.md").write_text("\n\n".join(lines) + "\n")
        values = {
            "accuracy": accuracy,
            "sparsity": report.sparsity,
            "seconds": seconds,
            "config": asdict(config),
            "data": asdict(origin),
            "report": report.to_dict(),
            "figures": observed.figures() if observed else {},
            "observed": observed.to_dict() if observed else None,
        }
        with replacing(self.folder / "report.json") as beside:
            beside.write_text(json.dumps(values, indent=2))


BEFORE_TRAINING = ("config.json", "data.json", "tensorboard")  # all that is there when training begins


def _left_by_us(folder: Path) -> bool:
    """Whether a folder is empty, or holds a run that never began, and nothing else."""
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    try:
        return names <= set(BEFORE_TRAINING) and bool(Run.open(folder))
    except ConfigError:
        return False
