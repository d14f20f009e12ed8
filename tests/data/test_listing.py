"""Class folders: which files there are, and errors that name them."""

import errno
import os

import pytest

from pictures import picture, write, write_folder
from softprune import data
from softprune.errors import DataError


def test_layout(tmp_path):
    """Deeper folders, links, hidden files and names beyond ASCII."""
    root = write_folder(tmp_path / "here", (8, 8))
    (root / "train" / ".DS_Store").touch()
    (root / "train" / "class0" / ".hidden").touch()
    (root / "train" / "README").touch()
    write(root / "train" / "class0" / "deep" / "ümläut 図.png", picture(8, 8))
    (tmp_path / "there").symlink_to(root / "train" / "class1")
    (root / "train" / "class3").symlink_to(tmp_path / "there")
    dataset = data.folder(root)
    assert dataset.classes == ("class0", "class1", "class2", "class3")
    assert dataset.train.labels.bincount().tolist() == [5, 4, 4, 4]


def test_tiny_imagenet_as_it_is_unpacked(tmp_path):
    for i in range(4):
        write(tmp_path / "train" / f"n{i % 2}" / "images" / f"n{i % 2}_{i}.JPEG", picture(64, 64))
        (tmp_path / "train" / f"n{i % 2}" / f"n{i % 2}_boxes.txt").write_text("n0_0.JPEG\t0\t0\t62\t62\n")
        write(tmp_path / "val" / "images" / f"val_{i}.JPEG", picture(64, 64))
    lines = [f"val_{i}.JPEG\tn{1 - i % 2}\t0\t32\t44\t62\n" for i in range(4)]
    (tmp_path / "val" / "val_annotations.txt").write_text("".join(lines))
    write(tmp_path / "test" / "images" / "test_0.JPEG", picture(64, 64))
    dataset = data.folder(tmp_path)
    assert dataset.shape == (3, 64, 64)
    assert dataset.val.labels.tolist() == [1, 0, 1, 0]
    for content, text in (
        ("val_0.JPEG\tn7\t0\n", "names class 'n7', which"),
        ("a", "names class ''"),
        ("", "is empty"),
    ):
        (tmp_path / "val" / "val_annotations.txt").write_text(content)
        with pytest.raises(DataError, match=rf"val_annotations\.txt {text}"):
            data.folder(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda root: root.rename(root.parent / "moved"), r"The folder \S+/images does not exist\."),
        (lambda root: (root / "train").rename(root / "training"), r"/images has no folder train/\. It must have"),
        (lambda root: (root / "val").rename(root / "valid"), r"/images has no folder val/ or test/\."),
        (lambda root: (root / "train" / "dog").mkdir(), r"The class folder \S+/train/dog is empty\."),
        (lambda root: (root / "val" / "class9").mkdir(), r"/val/class9 is a class that \S+/train lacks\."),
        (lambda root: (root / "train" / "class0" / "a.txt").touch(), r"/class0/a\.txt is not an image\. Move it"),
        (lambda root: (root / "train" / "a.jpg").touch(), r"/train/a\.jpg is in no class folder\."),
        (
            lambda root: (root / "val" / "class1" / "a.png").write_text("x"),
            r"Cannot read the image \S+/class1/a\.png",
        ),
    ],
    ids=["folder", "train", "val", "empty class", "class of val", "text", "stray", "small corrupt"],
)
def test_errors_name_the_file(tmp_path, spoil, text):
    root = write_folder(tmp_path / "images", (8, 8))
    spoil(root)
    with pytest.raises(DataError, match=text):
        data.folder(root)


def test_a_part_of_a_class_that_cannot_be_read_is_not_left_out(tmp_path, monkeypatch):
    root = write_folder(tmp_path / "images", (8, 8))
    (root / "train" / "class0" / "more").mkdir()
    scan = os.scandir

    def refuse(path):
        if str(path).endswith("more"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"^Cannot read \S+/train/class0/more: Permission denied\.$"):
        data.folder(root)


def test_no_classes(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    with pytest.raises(DataError, match=r"/train has no class folders\."):
        data.folder(tmp_path)


def test_home_folders(tmp_path, monkeypatch):
    write_folder(tmp_path / "images", (8, 8))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data.folder("~/images").shape == (3, 8, 8)
    for load in (data.folder, data.idx):
        with pytest.raises(DataError, match=r"^Cannot find ~nosuchuser/x: there is no home folder ~nosuchuser\.$"):
            load("~nosuchuser/x")
