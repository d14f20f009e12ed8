"""A run's folder: who owns it, how it comes to be and goes again, and what is read from it. No torch.

config.json          the settings
data.json            classes, image size and normalisation, or which text
checkpoints/         step-000001234.ckpt, the last two
tensorboard/         logs
history.jsonl        curves
model.safetensors    the sparse weights under their ordinary names
small.safetensors    those of the network without what died, if something could be removed
report.md, .json     what came out; they exist when the run is complete
plots/               threshold and penalty, sparsity, layers, weights dropped and regrown

A process owns the folder while it holds the lock on it: from before the first file is written until training ends. A
process that dies lets go.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from softprune.errors import ConfigError, UserError
from softprune.recipes.config import Config, fits
from softprune.training import history, names
from softprune.training.files import read_object, readable, sweep, write_text
from softprune.training.launch import first_process, processes

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_CHOSEN = "SOFTPRUNE_RUN_FOLDER"  # tells the processes that Lightning launches where the first one trains
_BEFORE_TRAINING = {"config.json", "data.json", "tensorboard"}  # all that is there when training begins
_SUBFOLDERS = ("checkpoints", "plots", "tensorboard")
_REPORTED = {"accuracy": float, "sparsity": float, "figures": dict[str, float], "report": dict, "small": dict | None}


class Folder:
    """``create``, ``claim`` or ``open`` one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._created = False  # by this object
        self._new = False  # the folder itself, too

    @classmethod
    def create(cls, path: Path, config: Config) -> Folder:
        """Make a folder for a new run, and own it. Refuse one that holds a run, or anything else, already; what is
        left of a run that never began may be there."""
        folder = cls(path)
        if first_process():
            try:
                folder._new = _made(path)
                folder._begin(config)
            except OSError as error:
                raise ConfigError(
                    f"Cannot make the folder {path}: {error.strerror}. Choose another with `--out`."
                ) from error
        return folder

    @classmethod
    def claim(cls, stem: str, config: Config) -> Folder:
        """The first free one of runs/STEM-1, runs/STEM-2, ...; the processes of one launch agree on it, and those of
        two launches never do."""
        if not first_process() and _CHOSEN in os.environ:
            return cls(Path(os.environ[_CHOSEN]))
        if processes() > 1:
            raise ConfigError("Several processes need to agree on a folder: write `--out FOLDER`.")
        number = 1
        while True:
            folder = cls(Path("runs") / f"{stem}-{number}")
            try:
                folder.path.mkdir(parents=True)
            except FileExistsError:  # also if somebody else was faster
                number += 1
                continue
            folder._new = True
            folder._begin(config)
            return folder

    @classmethod
    def open(cls, path: Path) -> Folder:
        if not (path / "config.json").exists():
            raise ConfigError(
                f"{path} is not a run: it holds no config.json. Runs are under runs/, or where `--out` said."
            )
        return cls(path)

    def _begin(self, config: Config) -> None:
        """Take the lock, then look, then write."""
        try:
            self._take()
            self._refuse_other_contents()
            write_text(self.path / "config.json", config.to_json())
            self._created = True
        except BaseException:
            if self._new and self._lock is not None:  # nobody else may have begun in it
                self.path.rmdir()
            self.release()
            raise

    def _refuse_other_contents(self) -> None:
        begun = [self.path / "history.jsonl", self.path / "report.json", *self.checkpoints()]
        if any(path.exists() for path in begun):
            raise ConfigError(
                f"{self.path} holds a run already. Go on with `softprune train --resume {self.path}`, "
                "or choose another folder with `--out`."
            )
        if any(self.path.iterdir()) and not self._never_began():
            raise ConfigError(f"{self.path} is not empty. Choose another folder with `--out`.")

    def _never_began(self) -> bool:
        """Whether the folder holds a run that was not trained at all, and nothing else."""
        try:
            return {path.name for path in self.path.iterdir()} <= _BEFORE_TRAINING and bool(self.config)
        except ConfigError:
            return False

    # owning it

    @contextmanager
    def held(self) -> Iterator[None]:
        """Own the folder while training in it. If training is refused before it begins, remove what ``create`` made."""
        if first_process():
            self._take()
        before = os.environ.get(_CHOSEN)
        os.environ[_CHOSEN] = str(self.path)
        try:
            if first_process():
                self._refuse_links()
                self._sweep()
            yield
        except (UserError, OSError):
            self._withdraw()
            raise
        finally:
            os.environ.pop(_CHOSEN)
            if before is not None:
                os.environ[_CHOSEN] = before
            self.release()

    def release(self) -> None:
        """Let go of the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __del__(self) -> None:
        self.release()

    def _take(self) -> None:
        if self._lock is not None or fcntl is None:
            return
        lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ConfigError(f"Another process trains in {self.path}. Wait until it is done, or stop it.") from None
        except OSError:
            pass  # a file system without locks
        if not self.path.exists() or not os.path.samestat(os.fstat(lock), self.path.stat()):
            os.close(lock)  # somebody made it, was refused, and removed it again
            raise ConfigError(f"Another process removed {self.path} just now. Start again.")
        self._lock = lock

    def _withdraw(self) -> None:
        if not (self._created and self._never_began()):
            return
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if self._new:
            self.path.rmdir()

    def _refuse_links(self) -> None:
        """Files are replaced, which does not follow links; folders, and the files of loggers, are written to."""
        folders = [self.path / name for name in _SUBFOLDERS]
        for path in (*folders, *(folders[-1].glob("*") if folders[-1].is_dir() else ())):
            if path.is_symlink():
                raise ConfigError(f"{path} is a link, which a run does not follow. Put what it points to in its place.")

    def _sweep(self) -> None:
        for path in (self.path, *(self.path / name for name in _SUBFOLDERS)):
            sweep(path)

    # reading it

    @property
    def config(self) -> Config:
        path = self.path / "config.json"
        with readable(path):
            return Config.from_json(path.read_text(encoding="utf-8"))

    @property
    def outcome(self) -> dict[str, Any] | None:
        """The contents of report.json, if the run is complete."""
        path = self.path / "report.json"
        if not path.exists():
            return None
        with readable(path, " Delete it, and `--resume` writes it again."):
            values = {"figures": {}, "small": None} | read_object(path)
            for name, kind in _REPORTED.items():
                if not fits(values.get(name), kind):
                    raise ConfigError(f"`{name}` is missing, or of the wrong type.")
        return values

    def checkpoints(self) -> list[Path]:
        """Newest first."""
        return sorted((self.path / "checkpoints").glob("step-*.ckpt"), reverse=True)

    def newest_weights(self) -> Path:
        """The model file of a complete run, the newest checkpoint of another."""
        for path in (self.path / "model.safetensors", *self.checkpoints()):
            if path.exists():
                return path
        raise ConfigError(
            f"{self.path} holds neither model.safetensors nor a checkpoint yet. Wait for the first one, or go on with "
            f"`softprune train --resume {self.path}`."
        )

    def progress(self) -> str:
        """How far a run is that is not complete."""
        last = history.last(self.path / "history.jsonl")
        forms = {"loss": ".4g", "sparsity": ".2%", "threshold": ".4g", "accuracy": ".2%"}
        numbers = [f"step {last.get('step', 0):,}"]
        numbers += [f"{name} {last[name]:{form}}" for name, form in forms.items() if last.get(name) is not None]
        later = ""
        if self.config.method == "gpo":
            later = " GPO's weights become exactly zero when it is."
        elif names.PATTERNS.find(self.config.pattern).units:
            later = " What reads a dead unit counts as zero, and becomes it when it is."
        return f"The run is not complete: {', '.join(numbers)}.{later}"


def _made(path: Path) -> bool:
    """Whether this very call made the folder; it may be there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
        return False
    return True
