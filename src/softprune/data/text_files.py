"""Text: its bytes are the tokens that a network reads.

Bytes need no vocabulary: every text has the same 256, none of them is unknown, and what a network has learned from one
text can be measured on any other. In source code and in English nearly every character is one byte.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from softprune.data.listing import expanded, unreadable
from softprune.data.order import generator
from softprune.data.split import Dataset
from softprune.data.windows import windowed
from softprune.errors import DataError

SUFFIXES = frozenset(
    (
        *(".md", ".rst", ".tex", ".txt"),
        *(".c", ".cc", ".cpp", ".cu", ".cuh", ".go", ".h", ".hpp", ".java", ".jl", ".js", ".kt", ".lua", ".php", ".pl"),
        *(".py", ".pyi", ".r", ".rb", ".rs", ".scala", ".sh", ".sql", ".swift", ".ts"),
    )
)
"""Of prose and source code. Data, such as JSON and CSV, are text of another kind."""

STDLIB_BYTES = 6_000_000
"""What ``pystdlib`` reads: a little less than every version of Python has."""

_SKIPPED = frozenset(
    [
        *("dist-packages", "site-packages"),  # of others
        *("encodings", "pydoc_data"),  # tables of numbers, and the manual
        *("distutils", "idlelib", "lib2to3", "test", "tests", "tkinter", "turtledemo"),  # not in every installation
    ]
)


def text(path: str | os.PathLike[str], context: int = 256) -> Dataset:
    """A file, or all files of prose and source code in a folder; the last tenth of the text validates.

    The files of a folder, at any depth, are joined in the order of their paths. Hidden ones are left out, and so are
    files with zero bytes, which are not text. A file that is named itself may have any suffix.

    Args:
        path: the file or the folder; ``~`` is the home folder.
        context: bytes in a window.
    """
    place = expanded(path)
    if not place.is_dir() and not place.is_file():
        raise DataError(f"There is no file or folder {place}.")
    files = [place] if place.is_file() else _files(place)
    parts = [content for content in map(_read, files) if b"\0" not in content]
    if not parts:
        what = "there are zero bytes in it" if files else f"no file in it ends in {', '.join(sorted(SUFFIXES))}"
        raise DataError(f"{place} is no text: {what}.")
    return windowed(b"\n".join(parts), context, str(place))


def pystdlib(context: int = 256) -> Dataset:
    """The source code of Python's standard library, as it is installed: the first 6,000,000 bytes of it.

    Args:
        context: bytes in a window.
    """
    place = Path(sysconfig.get_path("stdlib"))
    content = b"\n".join(_read(file) for file in _files(place, _SKIPPED) if file.suffix == ".py")
    return windowed(content[:STDLIB_BYTES], context, f"Python's standard library in {place}")


def synthetic_text(context: int = 16, windows: int = 32, seed: int = 0) -> Dataset:
    """Sixteen made-up words in random order.

    Args:
        context: bytes in a window.
        windows: how many to train with in an epoch.
        seed: what the words and their order depend on.
    """
    draw = generator("words", seed)
    words = [bytes(torch.randint(97, 123, (length,), generator=draw).tolist()) for length in range(2, 18)]
    order = torch.randint(len(words), (windows * context,), generator=draw)
    return windowed(b" ".join(words[i] for i in order.tolist()), context, "The synthetic text", windows)


def _files(place: Path, skipped: Iterable[str] = ()) -> list[Path]:
    """The files below a folder that should hold text, in the order of their paths."""
    return sorted(_found(place, frozenset(skipped)), key=lambda file: file.relative_to(place).parts)


def _found(place: Path, skipped: frozenset[str]) -> Iterator[Path]:
    for parent, folders, files in os.walk(place, followlinks=True, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in skipped]
        for name in files:
            file = Path(parent, name)
            if not name.startswith(".") and file.suffix.lower() in SUFFIXES and file.is_file():
                yield file


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        unreadable(error)
