import pytest
import torch

from pictures import write_folder
from softprune import data
from softprune.data.augment import Shift
from softprune.data.tensors import pair
from softprune.data.windows import TextSplit


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


@pytest.fixture(scope="module")
def text():
    """13 windows of 8 bytes an epoch, 5 to validate with."""
    letters = torch.arange(200, dtype=torch.uint8)
    return data.Dataset(TextSplit(letters, 8, 13), TextSplit(letters[:50], 8, 5), tuple("abc"), (8,))


@pytest.fixture(params=["small", "large"])
def images(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["small", "large", "text"])
def kind(request):
    return request.getfixturevalue(request.param)
