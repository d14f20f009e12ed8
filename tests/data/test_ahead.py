"""Decoding ahead: in order, not further than promised, and ended with the loader; which devices can."""

import threading
from itertools import count

import pytest
import torch

from pictures import write_folder
from softprune import data
from softprune.data import gpu
from softprune.data.gpu import AHEAD, ahead
from softprune.errors import ConfigError, DataError

CPU = torch.device("cpu")


class Doubled:
    """In the place of ``gpu.Decoder``."""

    def __init__(self, work=lambda n: 2 * n):
        self.work = work

    def __call__(self, batch):
        return self.work(batch)

    def handed_over(self, batch):
        return batch


def test_everything_once_and_in_order():
    assert list(ahead(range(10), Doubled())) == list(range(0, 20, 2))
    assert list(ahead([], Doubled())) == []


def test_not_further_than_promised():
    asked = 0

    def batches():
        nonlocal asked
        for n in count():
            asked = n + 1
            yield n

    stream = ahead(batches(), Doubled())
    for given in range(1, 6):
        next(stream)
        assert given <= asked <= given + AHEAD
    stream.close()
    assert 5 <= asked <= 5 + AHEAD


def test_a_problem_comes_in_its_place():
    def work(n):
        if n == 3:
            raise DataError("the third")
        return n

    stream = ahead(range(10), Doubled(work))
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match="the third"):
        next(stream)


def test_the_thread_ends_with_the_stream():
    before = threading.active_count()
    stream = ahead(range(10), Doubled())
    next(stream)
    assert threading.active_count() == before + 1
    stream.close()
    assert threading.active_count() == before


def test_a_cpu_cannot(tmp_path):
    assert gpu.unable(CPU) == "the device is cpu"
    root = write_folder(tmp_path, (80, 70), suffix="jpg")
    with pytest.raises(ConfigError, match=r"^Cannot decode images on the GPU\. This is because the device is cpu\."):
        data.folder(root, size=24, on_gpu=True).train.loader(batch=2, train=True)
    for on_gpu in (None, False):
        split = data.folder(root, size=24, on_gpu=on_gpu).train
        assert split.decoder(CPU) in ("Pillow", "torchvision on the CPU")
        assert next(iter(split.loader(batch=2, train=True)))[0].shape == (2, 3, 24, 24)


@pytest.mark.parametrize(
    ("on_gpu", "reason", "there"),
    [(None, None, True), (None, "there is none", False), (True, None, True), (False, None, False)],
)
def test_a_gpu_that_can_decodes_unless_told_otherwise(tmp_path, monkeypatch, on_gpu, reason, there):
    monkeypatch.setattr(gpu, "unable", lambda device: reason)
    split = data.folder(write_folder(tmp_path, (80, 70), suffix="jpg"), size=24, on_gpu=on_gpu).train
    assert (split.decoder(CPU) == "torchvision on the GPU") == there


def test_images_in_memory_are_decoded_already(tmp_path):
    assert data.folder(write_folder(tmp_path, (32, 32))).train.decoder(CPU) is None


def test_nobody_decodes_jpeg_files_where_there_are_none(tmp_path):
    assert data.folder(write_folder(tmp_path, (80, 70), suffix="png"), size=24).train.decoder(CPU) is None
