"""Files written whole or not at all, and read as untrusted. No torch.

Writing never follows a symbolic link; reading gives a value of the expected type, or raises a sentence.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from softprune.errors import ConfigError

_HALF_WRITTEN = re.compile(r"\..+\.\d+")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file beside ``path`` to write to. When the block ends well, it is flushed to the disk and renamed, so that
    a link at ``path`` is replaced and not followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        beside.touch(exist_ok=False)
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file, atomically."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def sweep(folder: Path) -> None:
    """Remove what a kill left half-written."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _HALF_WRITTEN.fullmatch(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)


@contextmanager
def readable(path: Path, remedy: str = "") -> Iterator[None]:
    """Report what is wrong with the contents of ``path`` in a sentence, with a remedy if there is one."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"Cannot use {path}: {error}{remedy}") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is damaged: it is nested too deeply.{remedy}") from error
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.{remedy}") from error
    except ValueError as error:  # of json and of decoding
        raise ConfigError(f"{path} is damaged: {error}.{remedy}") from error


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; to be called in ``readable``."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ConfigError(f"It must hold a JSON object. Got {type(values).__name__}.")
    return values
