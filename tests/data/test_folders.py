"""Class folders: which images are kept in memory, and how they are augmented."""

import pytest
import torch
from torch.utils.data import get_worker_info

from pictures import picture, write, write_folder
from softprune import data
from softprune.data import decode, folders
from softprune.data.augment import Shift
from softprune.data.files import FileSplit
from softprune.data.listing import listings
from softprune.data.tensors import TensorSplit
from softprune.errors import ConfigError, DataError

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # Python 3.12


@pytest.mark.parametrize("held_out", ["val", "test"])
def test_small_images_are_kept(tmp_path, held_out):
    dataset = data.folder(write_folder(tmp_path, (32, 32), held_out=held_out))
    assert dataset.classes == ("class0", "class1", "class2")
    assert dataset.shape == (3, 32, 32)
    assert isinstance(dataset.train, TensorSplit)
    assert dataset.train.images.dtype == torch.uint8
    assert dataset.train.augment == Shift(4, flip=True)
    x = torch.cat([x for x, _ in dataset.train.loader(batch=5, train=False)])
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3), correction=0), torch.ones(3))
    assert len(dataset.val) == 5
    file = sorted((tmp_path / "train" / "class1").iterdir())[2]
    assert torch.equal(dataset.train.images[6].permute(1, 2, 0), decode.whole(str(file)))


def test_grey_images_are_not_mirrored(tmp_path):
    dataset = data.folder(write_folder(tmp_path, (28, 28), mode="L"))
    assert dataset.shape == (3, 28, 28)
    assert dataset.train.augment == Shift(4, flip=False)


def test_tiny_images(tmp_path):
    assert data.folder(write_folder(tmp_path, (16, 12))).train.augment == Shift(1)


@pytest.mark.parametrize(
    ("sizes", "size", "seen"),
    [((32, 32), 48, 48), ((65, 65), None, 224), (lambda i: (32, 32 + (i == 7)), 32, 32)],
    ids=["another size", "large", "one differs"],
)
def test_others_stay_in_their_files(tmp_path, sizes, size, seen):
    dataset = data.folder(write_folder(tmp_path, sizes), size=size)
    assert isinstance(dataset.train, FileSplit)
    assert dataset.shape == (3, seen, seen)
    x, _ = next(iter(dataset.val.loader(batch=2, train=False)))
    assert x.shape == (2, 3, seen, seen)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("part", ["train", "val"])
def test_a_small_image_of_another_size_is_named(tmp_path, part, workers, monkeypatch):
    monkeypatch.setattr(folders, "_workers", lambda images: workers)
    root = write_folder(tmp_path, (32, 32))
    write(root / part / "class0" / "z.png", picture(1, 2))
    text = rf"^\S+/{part}/class0/z\.png has 1 × 2 pixels, the first training image 32 × 32\. Small images must all"
    with pytest.raises(DataError, match=text):
        data.folder(root)


@pytest.mark.skipif(folders._workers(10_000) == 0, reason="no fork")
def test_small_images_are_decoded_by_workers(tmp_path, monkeypatch):
    paths = listings(write_folder(tmp_path, (8, 8)))[0].paths
    here = folders._decoded(paths, 8, 8)
    whole = folders.whole
    monkeypatch.setattr(folders, "whole", lambda path: 255 - whole(path) if get_worker_info() else whole(path))
    monkeypatch.setattr(folders, "_workers", lambda images: 1)
    assert torch.equal(folders._decoded(paths, 8, 8), 255 - here)


def test_size(tmp_path):
    with pytest.raises(ConfigError, match=r"`folder\(size=...\)` must be >= 1. Got 0."):
        data.folder(tmp_path, size=0)
