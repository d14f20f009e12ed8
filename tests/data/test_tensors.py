"""Small images on the device: their moments, and no augmentation."""

import torch

from softprune.data.tensors import TensorSplit, moments


def test_without_augmentation_training_sees_the_images_themselves(small):
    plain = TensorSplit(small.train.images, small.train.labels, small.train.mean, small.train.std)
    x, y = next(iter(plain.loader(batch=13, train=True)))
    expected = next(iter(plain.loader(batch=13, train=False)))[0]
    assert torch.equal(x[y.argsort()], expected)


def test_moments():
    pixels = torch.randint(256, (1500, 3, 4, 4), dtype=torch.uint8)
    pixels[:, 2] = 7
    mean, std = moments(pixels)
    expected = torch.std_mean(pixels.double(), (0, 2, 3), correction=0)
    torch.testing.assert_close(mean, expected[1].float())
    torch.testing.assert_close(std, torch.tensor([*expected[0][:2].tolist(), 1.0]))
