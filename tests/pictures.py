"""Images written to files, for tests of data."""

from __future__ import annotations

import torch
from PIL import Image


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


def pixels_of(image):
    return torch.tensor(list(image.tobytes())).view(image.height, image.width, 3).int()
