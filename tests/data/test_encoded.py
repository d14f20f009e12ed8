"""What workers hand over when a GPU decodes."""

import struct
from io import BytesIO

import pytest
import torch
from PIL import Image

from pictures import picture, pixels_of, write
from softprune.data import decode, encoded
from softprune.data.augment import Cut
from softprune.data.encoded import Encoded, Encoding
from softprune.data.files import loaded
from softprune.data.listing import Listing, Paths
from softprune.data.pictures import Pictures
from softprune.data.resample import Plan

SIZE = 24


@pytest.fixture
def mixed(tmp_path):
    """A photograph, a PNG file, one in CMYK, and one that is large enough to be decoded at half of its size."""
    files = [
        write(tmp_path / "a.jpg", picture(60, 50)),
        write(tmp_path / "b.png", picture(60, 50)),
        write(tmp_path / "c.jpg", picture(60, 50, "CMYK")),
        write(tmp_path / "d.jpg", picture(600, 500)),
        write(tmp_path / "e.jpg", picture(40, 30)),
    ]
    return Listing(Paths(map(str, files)), torch.arange(5))


@pytest.mark.parametrize("train", [True, False])
def test_files_or_pixels(mixed, train):
    pictures, order = Pictures(mixed, SIZE, seed=0, train=train), [4, 0, 1, 2, 3]
    found = Encoding(pictures)[3, order]
    assert (found.epoch, found.indices, found.labels, found.problem) == (3, order, order, "")
    (part,) = found.parts
    photos = [pictures.photo(3, i) for i in order]
    assert bytes(found.files.tolist()) == photos[0].content + photos[1].content
    assert part.lengths == [len(photos[0].content), len(photos[1].content), 0, 0, 0]
    assert part.sizes == [(30, 40), (50, 60), (SIZE, SIZE), (SIZE, SIZE), (SIZE, SIZE)]
    assert torch.equal(found.pixels, torch.stack([photo.by_pillow() for photo in photos[2:]]))
    shown = [(photo.width, photo.height, photo.cut) for photo in photos[:2]]
    assert part.plan == Plan.of([*shown, *[(SIZE, SIZE, Cut((0, 0, SIZE, SIZE)))] * 3], SIZE)


def test_progressive_files_are_not_for_a_gpu(tmp_path):
    files = [write(tmp_path / f"{p}.jpg", picture(60, 50), progressive=p) for p in (False, True)]
    pictures = Pictures(Listing(Paths(map(str, files)), torch.arange(2)), SIZE, seed=0, train=False)
    found = Encoding(pictures)[0, [0, 1]]
    assert [length > 0 for length in found.parts[0].lengths] == [True, False]
    assert torch.equal(found.pixels[0], pictures.photo(0, 1).by_pillow())


def test_the_same_in_another_epoch_is_another_cut(mixed):
    encoding = Encoding(Pictures(mixed, SIZE, seed=0, train=True))
    plans = [encoding[epoch, [0, 4]].parts[0].plan for epoch in (0, 1, 1)]
    assert plans[0] != plans[1] == plans[2]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # Python 3.12
def test_it_arrives_as_it_was(mixed, workers):
    encoding = Encoding(Pictures(mixed, SIZE, seed=0, train=True))
    (arrived,) = loaded(encoding, [(0, torch.tensor([0, 1, 4]))], workers)
    found = encoding[0, [0, 1, 4]]
    assert (arrived.indices, arrived.labels, arrived.parts) == (found.indices, found.labels, found.parts)
    assert torch.equal(arrived.files, found.files)
    assert torch.equal(arrived.pixels, found.pixels)


def test_what_a_gpu_refused_comes_as_pixels(mixed):
    found = Encoding(Pictures(mixed, SIZE, seed=0, train=True)).encode(0, [0, 4], refused=[4])
    assert [length > 0 for length in found.parts[0].lengths] == [True, False]
    assert len(found.pixels) == 1


def test_huge_pictures_are_for_pillow(mixed, monkeypatch):
    monkeypatch.setattr(encoded, "LARGEST", 60 * 50 - 1)
    found = Encoding(Pictures(mixed, SIZE, seed=0, train=True))[0, [0, 4]]
    assert [length > 0 for length in found.parts[0].lengths] == [False, True]


def test_parts_have_so_many_pixels_at_most(mixed, monkeypatch):
    monkeypatch.setattr(encoded, "MOST", 60 * 50 + 40 * 30)
    found = Encoding(Pictures(mixed, SIZE, seed=0, train=True))[0, [0, 4, 0, 4, 4]]
    assert [len(part.sizes) for part in found.parts] == [2, 2, 1]
    assert sum(length for part in found.parts for length in part.lengths) == len(found.files)


def test_a_problem_is_a_sentence(mixed, tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"hello")
    found = Encoding(Pictures(mixed, SIZE, seed=0, train=True))[0, [4, 0]]
    assert found.problem.startswith(f"Cannot read the image {tmp_path / 'a.jpg'}: ")


def test_nothing(mixed):
    found = Encoding(Pictures(mixed, SIZE, seed=0, train=False))[0, []]
    assert found == Encoded(0, [], [], None, None, [], "")


@pytest.mark.parametrize("box", [(4, 2, 20, 26), (1.5, 0.0, 30.25, 28.75)])
def test_a_plan_stays_inside_the_picture(box):
    plan = Plan.of([(40, 30, Cut(box, mirrored=True))] * 2, SIZE)
    rows = [struct.unpack("11q4d", plan.words[at : at + 120]) for at in (0, 120)]
    x, y, columns, lines, first, read, *taps, mirrored, torchs, place, left, top, right, down = rows[0]
    assert 0 <= x <= x + columns <= 40
    assert 0 <= y + first <= y + first + read <= y + lines <= 30
    assert (mirrored, torchs, place) == (1, int(Cut(box).whole), 0)
    assert rows[1][10] == read == plan.longest == plan.rows / 2
    assert (x + left, y + top) == box[:2]
    assert (right, down) == pytest.approx(((box[2] - box[0]) / SIZE, (box[3] - box[1]) / SIZE))
    assert all(n >= 2 * scale + 1 for n, scale in zip(taps, (right, down), strict=True))
    assert plan.taps == max(taps)


class Torchvision:
    """``torchvision.io`` as ``decode`` uses it, by Pillow."""

    ImageReadMode = type("ImageReadMode", (), {"RGB": "RGB"})

    def __init__(self):
        self.calls = 0

    def decode_jpeg(self, content, mode):
        self.calls += 1
        if bytes(content[-4:].tolist()) == b"bad!":
            raise RuntimeError("damaged")
        return pixels_of(Image.open(BytesIO(bytes(content.tolist())))).byte().permute(2, 0, 1)


@pytest.mark.parametrize("train", [True, False])
def test_torchvision_reads_the_usual_and_pillow_the_rest(mixed, train, monkeypatch):
    pictures = Pictures(mixed, SIZE, seed=0, train=train)
    monkeypatch.setattr(decode, "torchvision", lambda: None)
    expected = [pictures.photo(0, i).pixels() for i in range(5)]
    monkeypatch.setattr(decode, "torchvision", lambda: io)
    io = Torchvision()
    assert all(torch.equal(pictures.photo(0, i).pixels(), pixels) for i, pixels in enumerate(expected))
    assert io.calls == 2


def test_what_torchvision_refuses_is_for_pillow(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jpg", picture(60, 50))
    path.write_bytes(path.read_bytes() + b"bad!")
    expected = decode.Photo(str(path), SIZE, None).by_pillow()
    monkeypatch.setattr(decode, "torchvision", lambda: io)
    io = Torchvision()
    assert torch.equal(decode.Photo(str(path), SIZE, None).pixels(), expected)
    assert io.calls == 1
