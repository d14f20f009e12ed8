"""Data: batches are a function of (seed, epoch, batch), crops agree with slow ones, errors name the file."""

from __future__ import annotations

import errno
import gzip
import math
import os
import random
import struct
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import get_worker_info

from softprune import data
from softprune.data import files, folders, images
from softprune.data.augment import Shift, centre_box, random_box
from softprune.data.files import FileSplit
from softprune.data.listing import listings
from softprune.data.order import Order
from softprune.data.tensors import TensorSplit, moments, pair
from softprune.errors import ConfigError, DataError, UserError

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # Python 3.12


def picture(width, height, mode="RGB", seed=0):
    """Smooth, so that resampling filters agree, and in colour."""
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 5, 5, generator=draw)
    smooth = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bilinear")[0]
    return Image.fromarray((255 * smooth).byte().permute(1, 2, 0).numpy()).convert(mode)


def write(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def write_folder(root, size, train=12, val=5, mode="RGB", held_out="val", suffix="png", classes=3):
    for part, count in (("train", train), (held_out, val)):
        for i in range(count):
            width, height = size(i) if callable(size) else size
            write(root / part / f"class{i % classes}" / f"{i}.{suffix}", picture(width, height, mode, seed=i))
    return root


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Files of many sizes, read at 24 pixels."""
    root = write_folder(tmp_path_factory.mktemp("large"), lambda i: (80 + 3 * i, 100 - 5 * i), train=13, suffix="jpg")
    return data.folder(root, size=24)


@pytest.fixture(scope="module")
def small():
    """13 images in memory, whose labels are their numbers."""
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (13, 3, 9, 7), dtype=torch.uint8, generator=draw)
    train, val = pair((pixels, torch.arange(13)), (pixels[:5], torch.arange(5)), Shift(2, flip=True))
    return data.Dataset(train, val, tuple("abcdefghijklm"), (3, 9, 7))


@pytest.fixture(params=["small", "large"])
def kind(request):
    return request.getfixturevalue(request.param)


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for (x, y), (x_, y_) in zip(ours, theirs, strict=True):
        assert torch.equal(x, x_)
        assert torch.equal(y, y_)


def endless(loader):
    while True:
        yield from loader


class TestLoader:
    def test_batches(self, kind):
        loader = kind.train.loader(batch=4, train=True)
        assert len(kind.train) == 13
        assert len(loader) == 3
        for x, y in loader:
            assert x.shape == (4, *kind.shape)
            assert (x.dtype, y.dtype) == (torch.float32, torch.int64)

    def test_resumes_at_any_batch(self, kind):
        loader = kind.train.loader(batch=4, train=True, seed=3)
        batches, states = [], [loader.state_dict()]
        for batch in islice(endless(loader), 8):
            batches.append(batch)
            states.append(loader.state_dict())
        assert states[:5] == [{"epoch": e, "batch": b} for e, b in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))]
        for done, state in enumerate(states[:-1]):
            torch.rand(3)  # the process's random state has nothing to do with it
            resumed = kind.train.loader(batch=4, train=True, seed=3)
            resumed.load_state_dict(state)
            assert resumed.state_dict() == state
            same(list(islice(endless(resumed), 8 - done)), batches[done:])

    def test_epoch_that_is_used_up(self, kind):
        loader = kind.train.loader(batch=4, train=True)
        loader.load_state_dict({"epoch": 1, "batch": 3})
        assert loader.state_dict() == {"epoch": 2, "batch": 0}
        assert len(list(loader)) == 3

    def test_state_goes_on_where_a_loop_broke_off(self, kind):
        whole = list(kind.train.loader(batch=4, train=True))
        loader = kind.train.loader(batch=4, train=True)
        first = list(islice(loader, 2))
        same(first + list(loader), whole)

    def test_state_loaded_within_a_loop(self, kind):
        whole = list(kind.train.loader(batch=4, train=True))
        loader = kind.train.loader(batch=4, train=True)
        batches = iter(loader)
        next(batches)
        loader.load_state_dict({"epoch": 0, "batch": 2})
        same(list(batches), whole[2:])

    @pytest.mark.parametrize("world", [2, 4])
    @pytest.mark.parametrize("train", [True, False])
    def test_processes_share_every_batch(self, kind, world, train):
        split = kind.train if train else kind.val
        alone = list(split.loader(batch=4, train=train, seed=1))
        ranks = [list(split.loader(batch=4, train=train, seed=1, rank=r, world=world)) for r in range(world)]
        assert {len(rank) for rank in ranks} == {len(alone)}
        together = [tuple(torch.cat(parts) for parts in zip(*batch, strict=True)) for batch in zip(*ranks, strict=True)]
        same(together, alone)

    def test_training_sees_every_image_once_in_a_new_order(self, small):
        loader = small.train.loader(batch=1, train=True)
        epochs = [[int(y) for _, y in loader] for _ in range(3)]
        assert all(sorted(labels) == list(range(13)) for labels in epochs)
        assert len({tuple(labels) for labels in epochs}) == 3
        assert [int(y) for _, y in small.train.loader(batch=1, train=True, seed=1)] not in epochs

    def test_training_drops_the_incomplete_batch(self, small):
        labels = torch.cat([y for _, y in small.train.loader(batch=5, train=True)]).tolist()
        assert len(labels) == len(set(labels)) == 10

    def test_evaluation_sees_every_image_once_in_order(self, kind):
        loader = kind.val.loader(batch=2, train=False)
        assert len(loader) == 3
        labels = torch.cat([y for _, y in loader])
        assert [len(y) for _, y in loader] == [2, 2, 1]
        assert torch.equal(labels, kind.val.labels if isinstance(kind.val, TensorSplit) else kind.val.listing.labels)

    def test_evaluation_starts_over(self, kind):
        loader = kind.val.loader(batch=2, train=False)
        next(iter(loader))  # as Lightning's sanity check
        assert len(list(loader)) == 3

    def test_augmentation_is_new_in_every_epoch_and_for_every_seed(self, kind):
        def image(seed, epoch):
            loader = kind.train.loader(batch=13, train=True, seed=seed)
            loader.load_state_dict({"epoch": epoch, "batch": 0})
            order = Order(13, 13, True, seed).epoch(epoch)
            return next(iter(loader))[0][order.argsort()]

        assert not torch.equal(image(0, 0), image(0, 1))
        assert not torch.equal(image(0, 0), image(1, 0))
        assert torch.equal(image(1, 2), image(1, 2))

    def test_global_random_state_is_left_alone(self, kind):
        before = torch.get_rng_state(), random.getstate()
        list(kind.train.loader(batch=4, train=True))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]


class TestWorkers:
    def test_give_the_same_and_do_not_count_what_they_prefetch(self, large):
        before = torch.get_rng_state()
        alone = list(islice(endless(large.train.loader(batch=4, train=True)), 7))
        loader = large.train.loader(batch=4, train=True, workers=2)
        batches = []
        for n, batch in enumerate(islice(endless(loader), 7), 1):
            batches.append(batch)
            assert loader.state_dict() == {"epoch": n // 3, "batch": n % 3}
        same(batches, alone)
        loader.load_state_dict({"epoch": 1, "batch": 1})
        same(list(loader), alone[4:6])
        assert torch.equal(torch.get_rng_state(), before)

    def test_evaluation(self, large):
        loader = large.val.loader(batch=2, train=False, workers=2)
        alone = list(large.val.loader(batch=2, train=False))
        for _ in range(2):
            same(list(loader), alone)

    @pytest.mark.parametrize("workers", [0, 1])
    @pytest.mark.parametrize("kept", [0.3, 0.9], ids=["header", "pixels"])
    def test_corrupt_image_is_a_sentence(self, tmp_path, workers, kept):
        root = write_folder(tmp_path, (80, 70), train=6, suffix="jpg")
        broken = root / "train" / "class1" / "4.jpg"
        content = broken.read_bytes()
        broken.write_bytes(content[: int(kept * len(content))])
        loader = data.folder(root, size=16).train.loader(batch=3, train=True, workers=workers)
        with pytest.raises(
            DataError, match=r"^Cannot read the image \S*/train/class1/4\.jpg: [^\n]*[Tt]runcated[^\n]*\.$"
        ):
            list(loader)

    @pytest.mark.skipif(folders._workers(10_000) == 0, reason="no fork")
    def test_small_images_are_decoded_by_workers(self, tmp_path, monkeypatch):
        paths = listings(write_folder(tmp_path, (8, 8)))[0].paths
        here = folders._decoded(paths, 8, 8)
        whole = folders.whole
        monkeypatch.setattr(folders, "whole", lambda path: 255 - whole(path) if get_worker_info() else whole(path))
        monkeypatch.setattr(folders, "_workers", lambda images: 1)
        assert torch.equal(folders._decoded(paths, 8, 8), 255 - here)


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"batch": 0}, r"`loader\(batch=...\)` must be >= 1. Got 0."),
            ({"batch": 5, "world": 2}, "must be divisible by their number. Got 5 images for 2 processes."),
            (
                {"batch": 4, "world": 2, "rank": 2},
                r"`loader\(rank=...\)` must be in 0 ... world - 1. Got 2 with world 2.",
            ),
            ({"batch": 14}, "must be at most the number of training images. Got 14 for 13 images."),
            ({"batch": 4, "workers": -1}, r"`loader\(workers=...\)` must be >= 0. Got -1."),
        ],
    )
    def test_loader(self, small, arguments, text):
        with pytest.raises(ConfigError, match=text):
            small.train.loader(train=True, **arguments)

    @pytest.mark.parametrize(
        "state", [{}, {"epoch": 0, "batch": 4}, {"epoch": -1, "batch": 0}, {"epoch": 0.5, "batch": 0}]
    )
    def test_state(self, small, state):
        with pytest.raises(
            ConfigError, match=r"a loader with 3 batches an epoch must be \{'epoch': 0 or more, 'batch'"
        ):
            small.train.loader(batch=4, train=True).load_state_dict(state)

    def test_package_that_is_missing(self, monkeypatch, tmp_path):
        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
        with pytest.raises(ImportError, match=r"`digits\(\)` needs scikit-learn.*pip install 'softprune\[train\]'"):
            data.digits()
        with pytest.raises(UserError, match=r"`folder\(\)` needs Pillow"):
            data.folder(tmp_path)

    @pytest.mark.parametrize("arguments", [{"classes": 0}, {"images": 0}, {"shape": (3, 0, 3)}, {"shape": (8, 8)}])
    def test_synthetic(self, arguments):
        with pytest.raises(ConfigError, match="at least one class, one image and a shape"):
            data.synthetic(**arguments)

    def test_size(self, tmp_path):
        with pytest.raises(ConfigError, match=r"`folder\(size=...\)` must be >= 1. Got 0."):
            data.folder(tmp_path, size=0)


class TestShift:
    @pytest.mark.parametrize("flip", [True, False])
    def test_against_a_loop(self, flip):
        pixels = torch.randint(1, 256, (40, 2, 6, 5), dtype=torch.uint8)
        numbers = torch.rand(40, 3)
        out = Shift(2, flip)(pixels, numbers)
        seen = set()
        for image, (a, b, c), result in zip(pixels, numbers.tolist(), out, strict=True):
            down, right = 2 - math.floor(5 * a), 2 - math.floor(5 * b)
            seen.add((down, right))
            expected = torch.zeros_like(image)
            for y in range(max(0, down), min(6, 6 + down)):
                for x in range(max(0, right), min(5, 5 + right)):
                    expected[:, y, x] = image[:, y - down, x - right]
            assert torch.equal(result, expected.flip(2) if flip and c < 0.5 else expected)
        assert len(seen) > 12

    def test_numbers_next_to_one(self):
        numbers = torch.full((1, 3), 1 - 2**-24)
        for p in range(1, 40):
            Shift(p)(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), numbers)

    def test_none(self, small):
        plain = TensorSplit(small.train.images, small.train.labels, small.train.mean, small.train.std)
        x, y = next(iter(plain.loader(batch=13, train=True)))
        expected = next(iter(plain.loader(batch=13, train=False)))[0]
        assert torch.equal(x[y.argsort()], expected)

    def test_moments(self):
        pixels = torch.randint(256, (1500, 3, 4, 4), dtype=torch.uint8)
        pixels[:, 2] = 7
        mean, std = moments(pixels)
        expected = torch.std_mean(pixels.double(), (0, 2, 3), correction=0)
        torch.testing.assert_close(mean, expected[1].float())
        torch.testing.assert_close(std, torch.tensor([*expected[0][:2].tolist(), 1.0]))


class TestBoxes:
    @pytest.mark.parametrize(("width", "height"), [(500, 375), (300, 500), (224, 224)])
    def test_random_resized_crop_against_rejection_sampling(self, width, height):
        n = 20_000
        draw = random.Random(0)
        left, top, right, bottom = torch.tensor([random_box(width, height, draw) for _ in range(n)]).double().T
        w, h = right - left, bottom - top
        assert (left >= 0).all()
        assert (top >= 0).all()
        assert (right <= width).all()
        assert (bottom <= height).all()
        share = torch.empty(4 * n, dtype=torch.float64).uniform_(0.08, 1)
        ratio = torch.empty_like(share).uniform_(math.log(3 / 4), math.log(4 / 3)).exp()
        sides = (share * width * height * ratio).sqrt(), (share * width * height / ratio).sqrt()
        fits = (sides[0] <= width) & (sides[1] <= height)
        at = torch.linspace(0.02, 0.98, 25, dtype=torch.float64)
        for ours, theirs in ((w * h / (width * height), share[fits]), ((w / h).log(), ratio[fits].log())):
            torch.testing.assert_close(ours.quantile(at), theirs.quantile(at), atol=0.015, rtol=0)
        for start, room in ((left, width - w), (top, height - h)):
            free = room >= 50
            place = (start / (room + 1))[free]
            torch.testing.assert_close(place.quantile(at), at, atol=0.03, rtol=0)

    def test_fallback(self):
        assert random_box(10, 1000, random.Random(0)) == (0, 493, 10, 506)
        assert random_box(1000, 10, random.Random(0)) == (493, 0, 506, 10)
        assert random_box(1, 1, random.Random(0)) == (0, 0, 1, 1)

    @pytest.mark.parametrize(("width", "height"), [(500, 375), (301, 517), (224, 224), (90, 2000), (64, 31)])
    def test_evaluation_against_two_steps(self, tmp_path, width, height):
        path = write(tmp_path / "a.png", picture(width, height))
        shorter = min(width, height)
        resized = (int(64 * width / shorter), int(64 * height / shorter))
        x, y = round((resized[0] - 56) / 2), round((resized[1] - 56) / 2)
        slow = Image.open(path).resize(resized, Image.Resampling.BILINEAR).crop((x, y, x + 56, y + 56))
        difference = images.crop(str(path), 56, None).int() - pixels_of(slow)
        shrunk_first = shorter >= 4 * 64  # by averaging, and rounded then
        assert difference.abs().max() <= 1 + shrunk_first

    def test_training_against_crop_then_resize(self, tmp_path):
        path = write(tmp_path / "a.png", picture(300, 200))
        flips = 0
        for i in range(20):
            draw = random.Random(i)
            box = random_box(300, 200, draw)
            slow = Image.open(path).crop(box).resize((48, 48), Image.Resampling.BILINEAR)
            if draw.random() < 0.5:
                slow, flips = slow.transpose(Image.Transpose.FLIP_LEFT_RIGHT), flips + 1
            difference = images.crop(str(path), 48, random.Random(i)).int() - pixels_of(slow)
            assert difference.abs().max() <= 3  # pixels beside the box count at its border
            assert difference[3:-3, 3:-3].abs().max() <= 1
        assert 5 < flips < 15

    @pytest.mark.parametrize("train", [True, False])
    def test_draft_changes_next_to_nothing(self, tmp_path, train, monkeypatch):
        photo = picture(1201, 903)
        path = write(tmp_path / "a.jpg", photo, quality=90)
        drafted = []
        for i in range(10):
            with monkeypatch.context() as m:
                m.setattr(images, "_draft", lambda image, box, size: box)
                slow = images.crop(str(path), 64, random.Random(i) if train else None)
            fast = images.crop(str(path), 64, random.Random(i) if train else None)
            with Image.open(path) as image:
                box = random_box(*image.size, random.Random(i)) if train else centre_box(*image.size, 64)
                images._draft(image, box, 64)
                drafted.append(image.size)
            difference = (fast.int() - slow.int()).abs()
            assert difference.max() <= 4
            assert difference.float().mean() < 0.5
        assert (301, 226) in drafted or (601, 452) in drafted


def pixels_of(image):
    return torch.tensor(list(image.tobytes())).view(image.height, image.width, 3).int()


class TestImages:
    @pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P", "LA", "1", "YCbCr"])
    def test_any_mode_becomes_rgb(self, tmp_path, mode):
        suffix = {"CMYK": "jpg", "YCbCr": "jpg"}.get(mode, "png")
        path = write(tmp_path / f"a.{suffix}", picture(20, 30, mode))
        expected = pixels_of(Image.open(path).convert("RGB"))
        assert torch.equal(images.whole(str(path)).int(), expected)

    def test_palette_with_transparency(self, tmp_path):
        path = write(tmp_path / "a.png", picture(20, 30, "P"), transparency=bytes(range(100)))
        assert images.whole(str(path)).shape == (30, 20, 3)

    def test_orientation_is_ignored(self, tmp_path):
        photo = picture(20, 30)
        exif = Image.Exif()
        exif[0x0112] = 6
        plain, turned = write(tmp_path / "a.jpg", photo), write(tmp_path / "b.jpg", photo, exif=exif)
        assert torch.equal(images.whole(str(plain)), images.whole(str(turned)))

    def test_sixteen_bits_are_refused(self, tmp_path):
        path = write(tmp_path / "a.png", Image.frombytes("I;16", (4, 4), bytes(32)))
        with pytest.raises(DataError, match=r"a\.png: its pixels have more than 8 bits \(mode I;16\)"):
            images.whole(str(path))

    @pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n"])
    def test_not_an_image(self, tmp_path, content):
        path = tmp_path / "a.png"
        path.write_bytes(content)
        for function in (images.whole, images.measure):
            with pytest.raises(DataError, match=r"^Cannot read the image \S*a\.png: [^\n]+\.$"):
                function(str(path))


class TestFolder:
    @pytest.mark.parametrize("held_out", ["val", "test"])
    def test_small_images_are_kept(self, tmp_path, held_out):
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
        assert torch.equal(dataset.train.images[6].permute(1, 2, 0), images.whole(str(file)))

    def test_grey_images_are_not_mirrored(self, tmp_path):
        dataset = data.folder(write_folder(tmp_path, (28, 28), mode="L"))
        assert dataset.shape == (3, 28, 28)
        assert dataset.train.augment == Shift(4, flip=False)

    def test_tiny_images(self, tmp_path):
        assert data.folder(write_folder(tmp_path, (16, 12))).train.augment == Shift(1)

    @pytest.mark.parametrize(
        ("sizes", "size", "seen"),
        [((32, 32), 48, 48), ((65, 65), None, 224), (lambda i: (32, 32 + (i == 7)), None, 224)],
        ids=["another size", "large", "one differs"],
    )
    def test_others_stay_in_their_files(self, tmp_path, sizes, size, seen):
        dataset = data.folder(write_folder(tmp_path, sizes), size=size)
        assert isinstance(dataset.train, FileSplit)
        assert dataset.shape == (3, seen, seen)
        x, _ = next(iter(dataset.val.loader(batch=2, train=False)))
        assert x.shape == (2, 3, seen, seen)

    def test_one_differs_in_val(self, tmp_path):
        root = write_folder(tmp_path, (32, 32))
        write(root / "val" / "class0" / "z.png", picture(33, 32))
        assert isinstance(data.folder(root).train, FileSplit)

    def test_pixels_and_normalisation(self, large):
        x, y = next(iter(large.val.loader(batch=5, train=False)))
        assert y.tolist() == [0, 0, 1, 1, 2]
        pixels = torch.stack([images.crop(large.val.listing.paths[i], 24, None) for i in range(5)])
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        torch.testing.assert_close(x, ((pixels / 255 - mean) / std).permute(0, 3, 1, 2))
        assert torch.equal(files.MEAN, 255 * mean)

    def test_layout(self, tmp_path):
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

    def test_tiny_imagenet_as_it_is_unpacked(self, tmp_path):
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
    def test_errors_name_the_file(self, tmp_path, spoil, text):
        root = write_folder(tmp_path / "images", (8, 8))
        spoil(root)
        with pytest.raises(DataError, match=text):
            data.folder(root)

    def test_a_part_of_a_class_that_cannot_be_read_is_not_left_out(self, tmp_path, monkeypatch):
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

    def test_no_classes(self, tmp_path):
        (tmp_path / "train").mkdir()
        (tmp_path / "val").mkdir()
        with pytest.raises(DataError, match=r"/train has no class folders\."):
            data.folder(tmp_path)


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


class TestIdx:
    @pytest.mark.parametrize(("end", "dash"), [("", "-"), (".gz", "-"), ("", ".")])
    def test_round_trip(self, tmp_path, end, dash):
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
    def test_errors_name_the_file(self, tmp_path, name, change, text):
        write_idx(tmp_path)
        path = tmp_path / name
        if change is None:
            path.unlink()
        else:
            path.write_bytes(change(path.read_bytes()) if callable(change) else change)
        with pytest.raises(DataError, match=text):
            data.idx(tmp_path)

    @pytest.mark.parametrize("spoil", [lambda c: c[:-9], lambda c: b"no gzip", lambda c: c[:12] + b"\xff\xff" + c[14:]])
    def test_damaged_compression(self, tmp_path, spoil):
        write_idx(tmp_path, ".gz")
        path = tmp_path / "train-images-idx3-ubyte.gz"
        path.write_bytes(spoil(path.read_bytes()))
        with pytest.raises(DataError, match=r"Cannot read \S+train-images-idx3-ubyte\.gz: "):
            data.idx(tmp_path)

    def test_missing_folder(self):
        with pytest.raises(DataError, match=r"The folder \S*nowhere does not exist\."):
            data.idx(Path("nowhere"))


class TestBuiltin:
    def test_digits(self):
        pytest.importorskip("sklearn")
        dataset = data.digits()
        assert (len(dataset.train), len(dataset.val)) == (1347, 450)
        assert dataset.classes == tuple("0123456789")
        shares = dataset.val.labels.bincount() / (dataset.val.labels.bincount() + dataset.train.labels.bincount())
        assert (shares - 0.25).abs().max() < 0.005
        x = dataset.train.images.flatten(1)
        assert x.max() == 16
        x, _ = next(iter(dataset.train.loader(batch=1347, train=False)))
        assert x.shape == (1347, *dataset.shape)
        assert abs(x.mean().item()) < 1e-4
        assert abs(x.std().item() - 1) < 1e-3
        assert dataset.train.augment == Shift(1, flip=False)

    def test_synthetic_can_be_learnt(self):
        dataset = data.synthetic(classes=7, shape=(3, 12, 10), images=70)
        x, y = next(iter(dataset.train.loader(batch=70, train=True)))
        centres = torch.stack([x[y == label].mean(0) for label in range(7)]).flatten(1)
        x, y = next(iter(dataset.val.loader(batch=17, train=False)))
        assert len(y) == 17
        assert torch.equal(torch.cdist(x.flatten(1), centres).argmin(1), y)

    def test_synthetic_depends_on_the_seed_alone(self):
        first = data.synthetic(images=8).train.images
        torch.rand(1)
        assert torch.equal(data.synthetic(images=8).train.images, first)
        assert not torch.equal(data.synthetic(images=8, seed=1).train.images, first)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("workers", [0, 2])
def test_gpu_gives_what_the_cpu_gives(kind, workers):
    """Small images are augmented there, large ones come through pinned memory."""
    here = list(kind.train.loader(batch=4, train=True))
    there = list(kind.train.loader(batch=4, train=True, device="cuda", workers=workers))
    assert all(x.is_cuda and y.is_cuda for x, y in there)
    for (x, y), (x_, y_) in zip(here, there, strict=True):
        torch.testing.assert_close(x_.cpu(), x, atol=1e-5, rtol=1e-5)
        assert torch.equal(y_.cpu(), y)


@pytest.mark.parametrize("box", [(0, 0, 61, 47), (3, 5, 60, 20), (10, 10, 11, 40), (0, 0, 8, 8)])
@pytest.mark.parametrize("size", [16, 24])
def test_torch_resizes_as_pillow_does(box, size):
    noise = torch.randint(256, (47, 61, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    image = Image.fromarray(noise.numpy())
    expected = images._pixels(image.crop(box).resize((size, size), Image.Resampling.BILINEAR))
    assert (images._resize(image, box, size).int() - expected.int()).abs().max() <= 1
