"""IDX files, written here byte by byte."""

import gzip
import struct
from pathlib import Path

import pytest
import torch

from softprune import data
from softprune.data.augment import Shift
from softprune.errors import DataError


def idx_bytes(array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + bytes(array.flatten().tolist())


def write_idx(root, end="", dash="-"):
    draw = torch.Generator().manual_seed(0)
    arrays = {}
    for part, count in (("train", 10), ("t10k", 4)):
        arrays[part] = torch.randint(256, (count, 6, 5), generator=draw), torch.arange(count) % 3
        for kind, array in zip(("images", "labels"), arrays[part], strict=True):
            content = idx_bytes(array)
            path = root / f"{part}-{kind}{dash}idx{array.ndim}-ubyte{end}"
            path.write_bytes(gzip.compress(content) if end else content)
    return arrays


@pytest.mark.parametrize(("end", "dash"), [("", "-"), (".gz", "-"), ("", ".")])
def test_round_trip(tmp_path, end, dash):
    arrays = write_idx(tmp_path, end, dash)
    dataset = data.idx(tmp_path)
    assert dataset.shape == (1, 6, 5)
    assert dataset.classes == ("0", "1", "2")
    assert dataset.train.augment == Shift(2, flip=False)
    for split, part in ((dataset.train, "train"), (dataset.val, "t10k")):
        assert torch.equal(split.images[:, 0].long(), arrays[part][0])
        assert torch.equal(split.labels, arrays[part][1])


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("train-images-idx3-ubyte", None, r"has no train-images-idx3-ubyte or train-images-idx3-ubyte\.gz\."),
        ("train-images-idx3-ubyte", b"", "train-images-idx3-ubyte is not an IDX file.*and begins with nothing"),
        (
            "t10k-labels-idx1-ubyte",
            b"\x00\x00\x0d\x01",
            "t10k-labels.*must begin with 00000801, and begins with 00000d01",
        ),
        (
            "train-images-idx3-ubyte",
            b"\x00\x00\x08\x03\x00",
            "train-images.* is truncated: it ends within its header",
        ),
        (
            "train-images-idx3-ubyte",
            lambda c: c[:-7],
            r"truncated: its header announces 10 × 6 × 5 = 300 bytes, and 293",
        ),
        ("train-images-idx3-ubyte", lambda c: c + b"x", "is too long: its header announces"),
        (
            "t10k-labels-idx1-ubyte",
            idx_bytes(torch.arange(3)),
            "t10k-images.* has 4 images, but .*t10k-labels.* has 3 labels",
        ),
        (
            "t10k-labels-idx1-ubyte",
            idx_bytes(torch.tensor([0, 1, 7, 0])),
            "have class 7, which the training labels lack",
        ),
        ("t10k-images-idx3-ubyte", idx_bytes(torch.zeros(4, 5, 5).int()), "differ in size"),
        ("t10k-images-idx3-ubyte", idx_bytes(torch.zeros(0, 5, 5).int()), "t10k-images-idx3-ubyte is empty"),
    ],
)
def test_errors_name_the_file(tmp_path, name, change, text):
    write_idx(tmp_path)
    path = tmp_path / name
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()) if callable(change) else change)
    with pytest.raises(DataError, match=text):
        data.idx(tmp_path)


@pytest.mark.parametrize("spoil", [lambda c: c[:-9], lambda c: b"no gzip", lambda c: c[:12] + b"\xff\xff" + c[14:]])
def test_damaged_compression(tmp_path, spoil):
    write_idx(tmp_path, ".gz")
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DataError, match=r"Cannot read \S+train-images-idx3-ubyte\.gz: "):
        data.idx(tmp_path)


def test_missing_folder():
    with pytest.raises(DataError, match=r"The folder \S*nowhere does not exist\."):
        data.idx(Path("nowhere"))
