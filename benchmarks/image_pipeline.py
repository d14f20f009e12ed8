"""Images per second of the ImageNet training pipeline: JPEG file to normalised batch, a core and all cores.

    python benchmarks/image_pipeline.py                 # a table
    python benchmarks/image_pipeline.py --out results.json

The images are made up: 500 × 375 pixels, JPEG quality 90, with structure at every scale (about 100 KB, as ImageNet's).
Pipelines read the same files in turn, and a ratio is the median over rounds of softprune's speed over another's in the
same round, so slow drifts of the machine cancel:

    softprune       Loader with workers: bytes to the device, normalised there; torchvision decodes, where it imports
    Pillow          the same without torchvision
    GPU             files to the GPU, decoded, cut, resized and normalised there
    files           read, their headers too, and handed over: what the GPU's pipeline asks of the host
    torchvision     ImageFolder, RandomResizedCrop, RandomHorizontalFlip; bytes to the device, normalised there
    reference       the same with ToTensor and Normalize in the workers, as pytorch/examples has it

``images/s/core`` divides by the workers. The main process copies and normalises: with a GPU that is little; without
one it takes a share of the cores. ``0`` workers: the main process does everything, in one thread, and the time is its
CPU time, which other programs on the machine disturb least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from unittest import mock

import torch
from PIL import Image
from torch import Tensor, nn

from softprune.data import decode, files, folder, gpu
from softprune.data.encoded import Encoded, Encoding
from softprune.data.files import MEAN, STD
from softprune.data.order import Order
from softprune.data.pictures import Pictures

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CORES = len(os.sched_getaffinity(0))
Batches = Iterator[tuple[Tensor, Tensor]]


def make_images(root: Path, count: int, width: int = 500, height: int = 375) -> int:
    """Write ``count`` images in 8 classes, and one to validate; the mean size of a file."""
    draw = torch.Generator().manual_seed(0)
    textures = torch.zeros(8, 3, height, width)
    for octave in range(2, 9):  # amplitudes fall with frequency, as in photographs
        coarse = torch.randn(8, 3, 2**octave, 2**octave, generator=draw)
        textures += nn.functional.interpolate(coarse, size=(height, width), mode="bicubic") / 1.15**octave
    textures /= textures.std()
    size = 0
    for i in range(count):
        a, b, down, right = torch.randint(8 * width, (4,), generator=draw).tolist()
        picture = textures[a % 8] + textures[b % 8].roll((down, right), (1, 2))
        pixels = (128 + 40 * picture).clamp_(0, 255).byte().permute(1, 2, 0)
        path = root / "train" / f"class{i % 8}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(pixels.numpy())
        image.save(path, quality=90)
        size += path.stat().st_size
    (root / "val" / "class0").mkdir(parents=True)
    image.save(root / "val" / "class0" / "0.jpg", quality=90)
    return size // count


def softprune_batches(root: Path, batch: int, workers: int, on_gpu: bool = False) -> Batches:
    loader = folder(root, on_gpu=on_gpu).train.loader(batch=batch, train=True, workers=workers, device=DEVICE)
    while True:
        yield from loader


def pillow_batches(root: Path, batch: int, workers: int) -> Batches:
    with mock.patch.object(decode, "torchvision", return_value=None):
        yield from softprune_batches(root, batch, workers)


def file_batches(root: Path, batch: int, workers: int) -> Iterator[Encoded]:
    split = folder(root).train
    order = Order(len(split), batch, train=True)
    yield from files.loaded(Encoding(Pictures(split.listing, split.size, 0, True)), order.batches(), workers)


def torchvision_batches(root: Path, batch: int, workers: int, in_worker: bool) -> Batches:
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    if in_worker:
        steps += [transforms.ToTensor(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    else:
        steps.append(transforms.PILToTensor())
    pin = DEVICE.type == "cuda"
    images = datasets.ImageFolder(root / "train", transforms.Compose(steps))
    # One epoch without an end: workers wait at the end of each, and epochs of so few images are over at once.
    endless = torch.utils.data.RandomSampler(images, replacement=True, num_samples=1 << 40)
    loader = torch.utils.data.DataLoader(images, batch_size=batch, sampler=endless, num_workers=workers, pin_memory=pin)
    mean, std = (t[:, None, None].to(DEVICE) for t in (MEAN, STD))
    for pixels, labels in loader:
        pixels = pixels.to(DEVICE, non_blocking=pin)
        yield pixels if in_worker else pixels.float().sub_(mean).div_(std), labels.to(DEVICE, non_blocking=pin)


def speed(batches: Iterator[object], batch: int, workers: int, count: int) -> float:
    """Images per second, after what was prefetched while the workers started."""
    clock = time.perf_counter if workers else time.process_time
    for _ in islice(batches, max(1, 2 * workers)):
        pass
    start = clock()
    for _ in islice(batches, count):
        pass
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return count * batch / (clock() - start)


def pipelines() -> dict[str, Callable[[Path, int, int], Iterator[object]]]:
    found: dict[str, Callable[[Path, int, int], Iterator[object]]] = {"softprune": softprune_batches}
    found["files"] = file_batches
    if (reason := gpu.unable(DEVICE)) is None:
        found["GPU"] = lambda *a: softprune_batches(*a, on_gpu=True)
    else:
        print(f"No images are decoded on a GPU: {reason}.")
    if decode.torchvision() is not None:
        found["Pillow"] = pillow_batches
        found["torchvision"] = lambda *a: torchvision_batches(*a, in_worker=False)
        found["reference"] = lambda *a: torchvision_batches(*a, in_worker=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="also write the rows to this JSON file")
    parser.add_argument("--images", type=int, default=1024, help="files; they are read again and again")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--count", type=int, default=16, help="batches for each worker in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=sorted({0, 1, CORES}))
    options = parser.parse_args()
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "no GPU"
    rows = []
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        size = make_images(Path(temporary), options.images)
        print(f"{CORES} cores, {name}, torch {torch.__version__}; files of {size / 1000:.0f} KB")
        print(f"{'workers':>7}  {'pipeline':12}  {'images/s':>9}  {'images/s/core':>13}  {'softprune is':>12}")
        ways = pipelines()
        for workers in options.workers:
            speeds: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(options.rounds):
                for way, make in ways.items():
                    batches = make(Path(temporary), options.batch, workers)
                    speeds[way].append(speed(batches, options.batch, workers, options.count * max(1, workers)))
                    del batches  # and its workers
            for way, values in speeds.items():
                ratio = statistics.median(ours / v for ours, v in zip(speeds["softprune"], values, strict=True))
                row = {"workers": workers, "pipeline": way, "images/s": statistics.median(values), "ratio": ratio}
                row["images/s/core"] = row["images/s"] / max(1, workers)
                rows.append(row)
                print(
                    f"{workers:>7}  {way:12}  {row['images/s']:9.0f}  {row['images/s/core']:13.0f}  {ratio:10.2f} ×",
                    flush=True,
                )
    if options.out:
        about = {"device": name, "cores": CORES, "torch": torch.__version__, "bytes a file": size}
        options.out.write_text(json.dumps({**about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
