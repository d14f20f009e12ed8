"""Images that need no files."""

import sys

import pytest
import torch

from softprune import data
from softprune.data.augment import Shift
from softprune.errors import ConfigError, UserError


def test_digits():
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


def test_synthetic_can_be_learnt():
    dataset = data.synthetic(classes=7, shape=(3, 12, 10), images=70)
    x, y = next(iter(dataset.train.loader(batch=70, train=True)))
    centres = torch.stack([x[y == label].mean(0) for label in range(7)]).flatten(1)
    x, y = next(iter(dataset.val.loader(batch=17, train=False)))
    assert len(y) == 17
    assert torch.equal(torch.cdist(x.flatten(1), centres).argmin(1), y)


def test_synthetic_depends_on_the_seed_alone():
    first = data.synthetic(images=8).train.images
    torch.rand(1)
    assert torch.equal(data.synthetic(images=8).train.images, first)
    assert not torch.equal(data.synthetic(images=8, seed=1).train.images, first)


@pytest.mark.parametrize("arguments", [{"classes": 0}, {"images": 0}, {"shape": (3, 0, 3)}, {"shape": (8, 8)}])
def test_synthetic_refuses(arguments):
    with pytest.raises(ConfigError, match="at least one class, one image and a shape"):
        data.synthetic(**arguments)


def test_package_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"`digits\(\)` needs scikit-learn.*pip install 'softprune\[train\]'"):
        data.digits()
    with pytest.raises(UserError, match=r"`folder\(\)` needs Pillow"):
        data.folder(tmp_path)
