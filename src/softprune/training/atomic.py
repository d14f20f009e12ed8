"""Files that are whole or not there, or are said to be damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softprune.errors import ConfigError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside to write to. When the block ends well, that file is flushed to the disk and becomes ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def readable(path: Path, remedy: str = "") -> Iterator[None]:
    """What goes wrong with the contents of ``path`` in the block is a sentence; what to do may be added."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is damaged: {error}.{remedy}") from error
