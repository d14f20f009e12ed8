"""Checkpoints that survive: written atomically, read without executing anything, refused in a sentence.

A checkpoint is made after a training batch, never inside one, and carries the settings of its run. Two are kept, so
that a damaged one costs the work since the one before it.
"""

from __future__ import annotations

import errno
import pickle
import shutil
import signal
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer

from softprune.errors import CheckpointError, listing
from softprune.recipes.config import Config, as_text, with_defaults_of_then
from softprune.training.files import replacing
from softprune.training.folder import Folder

MARK = "softprune"
KEEP = 2


class AtomicCheckpointIO(CheckpointIO):
    """Written whole or not at all. Read tensors and plain values, nothing else.

    ``kept`` is a checkpoint that was read already, to find the newest one that can be used; it is handed over once.
    """

    def __init__(self, kept: tuple[Path, dict[str, Any]] | None = None) -> None:
        self._kept = kept

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        path = Path(path)
        try:
            with replacing(path) as beside, beside.open("wb") as file:
                torch.save({**checkpoint, MARK: 1}, file)
        except (OSError, RuntimeError) as error:  # torch reports a failed write as RuntimeError
            full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error) or _full(path)
            reason = "the disk is full. Free some space" if full else str(error)
            before = " The checkpoint before it is untouched; `softprune train --resume` goes on from there."
            raise CheckpointError(
                f"Cannot write the checkpoint {path}: {reason}.{before if any(path.parent.glob('step-*.ckpt')) else ''}"
            ) from error

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        kept, self._kept = self._kept, None
        return kept[1] if kept is not None and kept[0] == Path(path) else load(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def _full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < 2**20
    except OSError:  # the folder could not be made
        return False


_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
    EOFError,
    OSError,
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError),  # what nonsense makes of a pickle
)


def load(path: Path) -> dict[str, Any]:
    """The checkpoint at ``path``. Nothing in it is executed, whoever wrote it."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch does not look at the checksums
            if (part := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"the checksum of {part} is wrong")
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"There is no checkpoint {path}.") from None
    except pickle.UnpicklingError as error:  # torch's own words advise to execute it
        raise CheckpointError(
            f"{path} is damaged, or holds more than tensors and plain values, and is not read."
        ) from error
    except _DAMAGED as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is damaged, and is not read: {reason}.") from error
    if not isinstance(checkpoint, dict) or MARK not in checkpoint:
        raise CheckpointError(f"{path} is not a checkpoint of softprune, and is not read.")
    return checkpoint


@dataclass(frozen=True)
class Expected:
    """What a checkpoint of this run must hold: the names of the weights, the settings, and an optimizer's state of the
    same form. Checkpoints of versions before settings were saved are told apart by the form alone."""

    config: Config
    weights: frozenset[str]
    optimizer: Callable[[], Mapping[str, Any]]

    def check(self, path: Path, checkpoint: Mapping[str, Any]) -> None:
        """Refuse the checkpoint of another run."""
        state, settings = checkpoint.get("state_dict"), checkpoint.get("settings")
        if not isinstance(state, dict) or set(state) != self.weights:
            raise CheckpointError(f"{path} is the checkpoint of another network, and is not used.")
        if isinstance(settings, dict):
            self._check_settings(path, settings)
        elif not self._same_form(checkpoint):
            raise CheckpointError(f"{path} is the checkpoint of another optimizer or method, and is not used.")

    def _check_settings(self, path: Path, settings: dict[str, Any]) -> None:
        """A setting that was not known when the checkpoint was made had its default. Values are compared as text, since
        those in an untrusted file may be tensors."""
        theirs = Config().shaping() | with_defaults_of_then(settings)
        mine = {name: as_text(value) for name, value in self.config.shaping().items()}
        if other := [f"{name}={as_text(theirs[name])}" for name in mine if as_text(theirs[name]) != mine[name]]:
            raise CheckpointError(
                f"{path} is the checkpoint of a run with other settings, and is not used: {listing(other, most=4)}."
            )

    def _same_form(self, checkpoint: Mapping[str, Any]) -> bool:
        match checkpoint.get("optimizer_states"):
            case [dict(state)]:
                try:
                    return _form(state) == _form(self.optimizer())
                except (KeyError, TypeError, AttributeError):  # not the state of an optimizer
                    return False
        return False


def _form(state: Mapping[str, Any]) -> tuple[Any, ...]:
    """The sizes of the param groups, what tells one optimizer from another, and which entries are the pruner's, but for
    the mark of its prox, which is younger than such checkpoints."""
    groups = [(len(group["params"]), {"momentum", "betas"} & set(group)) for group in state["param_groups"]]
    entries = {str(key) for values in state["state"].values() for key in values}
    ours = {".".join(key.split(".")[:2]) for key in entries if key.startswith("softprune.")}
    return groups, ours - {"softprune.prox"}


def newest(folder: Folder, expected: Expected, say: Callable[[str], None]) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that this run can go on from, with its contents; None if there is none at all."""
    for i, path in enumerate(found := folder.checkpoints()):
        try:
            checkpoint = load(path)
            expected.check(path, checkpoint)
        except CheckpointError as error:
            say(f"{error} Trying the one before it." if i + 1 < len(found) else str(error))
        else:
            say(f"Resuming from {path}.")
            return path, checkpoint
    if found:
        raise CheckpointError(f"No checkpoint in {found[0].parent} can be used. Delete them to begin the run anew.")
    return None


def _signals() -> list[signal.Signals]:
    """That ask a run to stop: Ctrl-C, kill, and a terminal that closes, unless ``nohup`` has it ignored."""
    hangup = getattr(signal, "SIGHUP", None)  # not on Windows
    asked = [signal.SIGINT, signal.SIGTERM, *([hangup] if hangup else [])]
    return [number for number in asked if signal.getsignal(number) != signal.SIG_IGN]


class Checkpoints(Callback):
    """Saves every few minutes, at the end, and when a signal asks the run to stop."""

    def __init__(self, folder: Folder, config: Config) -> None:
        self.folder = folder
        self.settings = config.shaping()
        self.seconds = 60 * config.checkpoint_minutes
        self.stopped_by: int | None = None
        self._saved_at = time.monotonic()

    def __enter__(self) -> Self:
        """Remember who handles signals, before Lightning and this callback take turns."""
        self._handlers = {number: signal.getsignal(number) for number in _signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_at = time.monotonic()
        for number in self._handlers:
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.stopped_by is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stopped_by = number

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        asked = self._agree(trainer, self.stopped_by is not None)
        due = self._agree(trainer, time.monotonic() - self._saved_at >= self.seconds)
        if asked or due or trainer.global_step >= trainer.max_steps:
            self.save(trainer)
        if asked:
            self.stopped_by = self.stopped_by or signal.SIGTERM  # another process was asked
            trainer.limit_val_batches = 0  # Lightning would validate before it stops
            trainer.should_stop = True

    def _agree(self, trainer: Trainer, wish: bool) -> bool:
        """All processes save, or none; they talk about it every 16th step."""
        if trainer.world_size == 1:
            return wish
        if trainer.global_step % 16 and trainer.global_step < trainer.max_steps:
            return False
        return bool(trainer.strategy.reduce_boolean_decision(wish, all=False))

    def save(self, trainer: Trainer) -> None:
        """Keep the last ones. Also delete newer ones: resuming skipped them because they could not be used."""
        new = self.folder.path / "checkpoints" / f"step-{trainer.global_step:09d}.ckpt"
        trainer.save_checkpoint(new)
        self._saved_at = time.monotonic()
        if trainer.is_global_zero:
            found = self.folder.checkpoints()
            for path in set(found) - set([path for path in found if path <= new][:KEEP]):
                path.unlink(missing_ok=True)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["settings"] = self.settings
        checkpoint["rng"] = torch.get_rng_state()
        if torch.cuda.is_available():
            checkpoint["cuda_rng"] = torch.cuda.get_rng_state()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        torch.set_rng_state(checkpoint["rng"])
        if "cuda_rng" in checkpoint and torch.cuda.is_available():
            torch.cuda.set_rng_state(checkpoint["cuda_rng"])
