"""Class folders: which files there are, and what they are labelled."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from softprune.errors import DataError

SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".pnm", ".tif", ".tiff"))
ANNOTATIONS = "val_annotations.txt"  # Tiny-ImageNet keeps its validation images in one folder, and the labels here


class Paths:
    """Very many paths in one string.

    A worker that counts references to a million strings would copy each page of memory that holds them.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._ends = torch.tensor([len(path) for path in encoded], dtype=torch.int64).cumsum(0)
        self._joined = b"".join(encoded)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, i: int) -> str:
        start = int(self._ends[i - 1]) if i else 0
        return os.fsdecode(self._joined[start : int(self._ends[i])])


@dataclass(frozen=True)
class Listing:
    """Files and their labels."""

    paths: Paths
    labels: Tensor


def existing(path: str | os.PathLike[str]) -> Path:
    """The folder of that name, with ``~`` for the home folder."""
    folder = expanded(path)
    if not folder.is_dir():
        raise DataError(f"The folder {folder} does not exist.")
    return folder


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path, with ``~`` for the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DataError(f"Cannot find {path}: there is no home folder {Path(path).parts[0]}.") from None


def listings(root: Path) -> tuple[Listing, Listing, tuple[str, ...]]:
    """Training files, validation files and classes of ``root``/train and ``root``/val or ``root``/test."""
    train = root / "train"
    val = next((root / name for name in ("val", "test") if (root / name).is_dir()), None)
    if not train.is_dir() or val is None:
        missing = "train/" if not train.is_dir() else "val/ or test/"
        raise DataError(f"{root} has no folder {missing}. It must have train/ and val/ (or test/) with class folders.")
    tiny = (val / ANNOTATIONS).is_file()
    classes = tuple(_class_folders(train))
    number = {name: i for i, name in enumerate(classes)}
    training = _listed((path, number[name]) for name in classes for path in _images(train / name, tiny))
    if tiny:
        return training, _listed(_annotated(val, number)), classes
    names = _class_folders(val)
    if unknown := [name for name in names if name not in number]:
        raise DataError(f"{val / unknown[0]} is a class that {train} lacks.")
    return training, _listed((path, number[name]) for name in names for path in _images(val / name)), classes


def _listed(pairs: Iterable[tuple[str, int]]) -> Listing:
    paths, labels = zip(*pairs, strict=True)
    return Listing(Paths(paths), torch.tensor(labels, dtype=torch.int64))


def _class_folders(folder: Path) -> list[str]:
    names = []
    for entry in list(os.scandir(folder)):  # a list, so that the folder is closed before an error
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            names.append(entry.name)
        elif Path(entry.name).suffix.lower() in SUFFIXES:
            raise DataError(f"{entry.path} is in no class folder. Move it into {folder}/CLASS/.")
    if not names:
        raise DataError(f"{folder} has no class folders.")
    return sorted(names)


def _images(folder: Path, tiny: bool = False) -> list[str]:
    """The images of a class, at any depth, in the order of their names."""
    found = []
    for parent, folders, files in os.walk(folder, followlinks=True, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if name.startswith(".") or (tiny and name.endswith("_boxes.txt")):
                continue
            path = os.path.join(parent, name)
            if os.path.splitext(name)[1].lower() not in SUFFIXES:
                raise DataError(f"{path} is not an image. Move it out of the class folder {folder}.")
            found.append(path)
    if not found:
        raise DataError(f"The class folder {folder} is empty.")
    return sorted(found)


def unreadable(error: OSError) -> NoReturn:
    """A file or folder that the system does not let us read."""
    raise DataError(f"Cannot read {error.filename}: {error.strerror}.") from error


def _annotated(val: Path, number: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Lines of Tiny-ImageNet: file, class, and a bounding box."""
    file = val / ANNOTATIONS
    lines = file.read_text(encoding="utf-8").splitlines()
    if not lines:
        raise DataError(f"{file} is empty.")
    for line in lines:
        name, _, rest = line.partition("\t")
        label = rest.partition("\t")[0]
        if label not in number:
            raise DataError(f"{file} names class {label!r}, which {val.parent / 'train'} lacks.")
        yield str(val / "images" / name), number[label]
