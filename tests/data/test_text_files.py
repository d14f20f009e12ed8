"""Text from files: which of them, in which order, and what is refused."""

import pytest
import torch

from softprune import data
from softprune.errors import ConfigError, DataError


def content(dataset: data.Dataset) -> bytes:
    return bytes(torch.cat([dataset.train.text, dataset.val.text]).tolist())


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    return folder


def test_files_are_joined_in_the_order_of_their_paths(tmp_path):
    write(
        tmp_path,
        {
            "b.py": b"b" * 20,
            "a/z.TXT": b"z" * 20,
            "a/b/c.md": "é".encode() * 10,
            "a-b/d.py": b"d" * 20,
            "data.json": b"{}",
            "picture.py": b"\0" * 20,
            ".hidden.py": b"h" * 20,
            ".git/e.py": b"e" * 20,
        },
    )
    whole = "é".encode() * 10 + b"\n" + b"z" * 20 + b"\n" + b"d" * 20 + b"\n" + b"b" * 20
    dataset = data.text(tmp_path, context=4)
    assert content(dataset) == whole
    assert (len(dataset.train.text), len(dataset.val.text)) == (75, 8)
    assert dataset.shape == (4,)
    assert (len(dataset.classes), dataset.classes[0x2F]) == (256, "2f")


def test_a_file_may_have_any_suffix(tmp_path):
    write(tmp_path, {"book": b"word " * 20})
    assert content(data.text(str(tmp_path / "book"), context=4)) == b"word " * 20


@pytest.mark.parametrize(
    ("files", "path", "text"),
    [
        ({}, "", r"is no text: no file in it ends in \.c, \.cc, "),
        ({"a.json": b"{}"}, "", "is no text: no file in it ends in"),
        ({"a.py": b"a\0b" * 99}, "", "is no text"),
        ({"a.bin": b"a\0b" * 99}, "a.bin", "is no text: there are zero bytes in it"),
        (
            {"a.py": b"a" * 49},
            "",
            "has 49 bytes of text, and a tenth of them must fill a window of 4 bytes. There must ",
        ),
        ({}, "nowhere", "There is no file or folder"),
    ],
)
def test_refusals(tmp_path, files, path, text):
    write(tmp_path, files)
    with pytest.raises(DataError, match=text):
        data.text(tmp_path / path, context=4)


def test_other_refusals(tmp_path):
    write(tmp_path, {"a.py": b"a" * 50})
    assert len(data.text(tmp_path, context=4).val) == 1
    with pytest.raises(ConfigError, match=r"^`context` must be >= 1\. Got 0\.$"):
        data.text(tmp_path, context=0)
    with pytest.raises(DataError, match="there is no home folder ~nobody-here"):
        data.text("~nobody-here/x")


def test_the_standard_library():
    dataset = data.pystdlib(context=64)
    text = content(dataset)
    assert len(text) == 6_000_000
    assert text.count(b"\ndef ") > 1000
    assert b"class ThreadPoolExecutor" in text
    assert b"class GrammarTests" not in text  # test/
    assert (len(dataset.train), len(dataset.val)) == (6400, 1024)


def test_synthetic_text_has_a_few_words():
    dataset = data.synthetic_text(context=8, windows=20)
    assert len(set(content(dataset).split()[1:-1])) == 16
    assert len(dataset.train) == 20
    assert content(data.synthetic_text(seed=1)) != content(data.synthetic_text(seed=0))
