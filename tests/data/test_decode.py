"""Pixels of a file: crops against slower ones, modes, and files that are no images."""

import os
import random

import pytest
import torch
from PIL import Image

from pictures import picture, pixels_of, write
from softprune.data import decode
from softprune.data.augment import centre_box, random_box
from softprune.errors import DataError


def crop(path, size, draw):
    return decode.Photo(str(path), size, draw).pixels()


@pytest.mark.parametrize(("width", "height"), [(500, 375), (301, 517), (224, 224), (90, 2000), (64, 31)])
def test_evaluation_against_two_steps(tmp_path, width, height):
    path = write(tmp_path / "a.png", picture(width, height))
    shorter = min(width, height)
    resized = (int(64 * width / shorter), int(64 * height / shorter))
    x, y = round((resized[0] - 56) / 2), round((resized[1] - 56) / 2)
    slow = Image.open(path).resize(resized, Image.Resampling.BILINEAR).crop((x, y, x + 56, y + 56))
    difference = crop(path, 56, None).int() - pixels_of(slow)
    shrunk_first = shorter >= 4 * 64  # by averaging, and rounded then
    assert difference.abs().max() <= 1 + shrunk_first


def test_training_against_crop_then_resize(tmp_path):
    path = write(tmp_path / "a.png", picture(300, 200))
    flips = 0
    for i in range(20):
        draw = random.Random(i)
        box = random_box(300, 200, draw)
        slow = Image.open(path).crop(box).resize((48, 48), Image.Resampling.BILINEAR)
        if draw.random() < 0.5:
            slow, flips = slow.transpose(Image.Transpose.FLIP_LEFT_RIGHT), flips + 1
        difference = crop(path, 48, random.Random(i)).int() - pixels_of(slow)
        assert difference.abs().max() <= 3  # pixels beside the box count at its border
        assert difference[3:-3, 3:-3].abs().max() <= 1
    assert 5 < flips < 15


@pytest.mark.parametrize("train", [True, False])
def test_draft_changes_next_to_nothing(tmp_path, train, monkeypatch):
    photo = picture(1201, 903)
    path = write(tmp_path / "a.jpg", photo, quality=90)
    drafted = []
    for i in range(10):
        with monkeypatch.context() as m:
            m.setattr(decode, "_draft", lambda image, box, size: box)
            slow = crop(path, 64, random.Random(i) if train else None)
        fast = crop(path, 64, random.Random(i) if train else None)
        with Image.open(path) as image:
            box = random_box(*image.size, random.Random(i)) if train else centre_box(*image.size, 64)
            decode._draft(image, box, 64)
            drafted.append(image.size)
        difference = (fast.int() - slow.int()).abs()
        assert difference.max() <= 4
        assert difference.float().mean() < 0.5
    assert (301, 226) in drafted or (601, 452) in drafted


@pytest.mark.parametrize("box", [(0, 0, 61, 47), (3, 5, 60, 20), (10, 10, 11, 40), (0, 0, 8, 8)])
@pytest.mark.parametrize("size", [16, 24])
def test_torch_resizes_as_pillow_does(box, size):
    noise = torch.randint(256, (47, 61, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    image = Image.fromarray(noise.numpy())
    expected = decode._pixels(image.crop(box).resize((size, size), Image.Resampling.BILINEAR))
    assert (decode._resize(image, box, size).int() - expected.int()).abs().max() <= 1


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P", "LA", "1", "YCbCr"])
def test_any_mode_becomes_rgb(tmp_path, mode):
    suffix = {"CMYK": "jpg", "YCbCr": "jpg"}.get(mode, "png")
    path = write(tmp_path / f"a.{suffix}", picture(20, 30, mode))
    expected = pixels_of(Image.open(path).convert("RGB"))
    assert torch.equal(decode.whole(str(path)).int(), expected)


def test_palette_with_transparency(tmp_path):
    path = write(tmp_path / "a.png", picture(20, 30, "P"), transparency=bytes(range(100)))
    assert decode.whole(str(path)).shape == (30, 20, 3)


def test_orientation_is_ignored(tmp_path):
    photo = picture(20, 30)
    exif = Image.Exif()
    exif[0x0112] = 6
    plain, turned = write(tmp_path / "a.jpg", photo), write(tmp_path / "b.jpg", photo, exif=exif)
    assert torch.equal(decode.whole(str(plain)), decode.whole(str(turned)))


def test_sixteen_bits_are_refused(tmp_path):
    path = write(tmp_path / "a.png", Image.frombytes("I;16", (4, 4), bytes(32)))
    with pytest.raises(DataError, match=r"a\.png: its pixels have more than 8 bits \(mode I;16\)"):
        decode.whole(str(path))


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n"])
def test_not_an_image(tmp_path, content):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    for function in (decode.whole, decode.measure):
        with pytest.raises(DataError, match=r"^Cannot read the image \S*a\.png: [^\n]+\.$"):
            function(str(path))


def test_a_pipe_is_not_opened(tmp_path, monkeypatch):
    """Reading it would wait for ever."""
    os.mkfifo(tmp_path / "a.png")
    monkeypatch.setattr(Image, "open", lambda path: pytest.fail("opened"))
    for function in (decode.whole, decode.measure):
        with pytest.raises(DataError, match=r"^Cannot read the image \S*a\.png: it is not a file\.$"):
            function(str(tmp_path / "a.png"))
