"""Images decoded on the GPU are those of the CPU, but for the decoder's rounding."""

import os
import signal
import subprocess
import sys
from io import BytesIO

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from pictures import picture, write
from softprune import data
from softprune.data import decode, encoded, gpu
from softprune.data.files import STD
from softprune.errors import DataError
from softprune.training.launch import open_queues

CUDA = torch.device("cuda", 0)
open_queues()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu.unable(CUDA) is not None, reason=f"cannot decode: {gpu.unable(CUDA)}"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),  # Python 3.12
]


def photo(i):
    """With structure at every scale, as photographs have."""
    draw = torch.Generator().manual_seed(i)
    width, height = 150 + 37 * (i % 7), 120 + 53 * (i % 5)
    waves = [
        torch.nn.functional.interpolate(
            torch.randn(1, 3, 2**k, 2**k, generator=draw), size=(height, width), mode="bicubic"
        )
        / 1.2**k
        for k in range(2, 7)
    ]
    pixels = (128 + 25 * sum(waves)[0]).clamp(0, 255).byte().permute(1, 2, 0)
    return Image.fromarray(pixels.numpy())


KINDS = [{}, {"subsampling": 0}, {"subsampling": 1}, {"progressive": True}, {"quality": 60}, {"quality": 95}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Usual JPEG files of many sizes and kinds."""
    root = tmp_path_factory.mktemp("photos")
    for i in range(24):
        write(root / "train" / f"class{i % 3}" / f"{i:02}.jpg", photo(i), **KINDS[i % len(KINDS)])
    for i in range(6):
        write(root / "val" / f"class{i % 3}" / f"{i}.jpg", photo(i), quality=90)
    return root


def batches(root, on_gpu, size=64, train=True, split="train", workers=0, **more):
    part = getattr(data.folder(root, size=size, on_gpu=on_gpu), split)
    return part.loader(batch=8, train=train, workers=workers, device=CUDA, **more)


def grey_levels(one, other):
    """Mean absolute difference."""
    return float(((one - other).abs() * STD.to(CUDA)[:, None, None]).mean())


@pytest.mark.parametrize("train", [True, False])
def test_given_the_same_pixels_batches_are_equal_to_the_last_bit(folder, train, monkeypatch):
    """Which cut, which weights, which rounding, mirrored or not, normalised: all but the decoder."""

    def on_cpu(files, device):
        images = [Image.open(BytesIO(bytes(file.tolist()))) for file in files]
        return [decode._pixels(image).permute(2, 0, 1).to(device) for image in images]

    monkeypatch.setattr(gpu, "_decode", on_cpu)
    monkeypatch.setattr(decode, "torchvision", lambda: None)
    for size in (24, 64, 224):
        pairs = zip(batches(folder, True, size, train), batches(folder, False, size, train), strict=True)
        for (x, y), (u, v) in pairs:
            assert torch.equal(y, v)
            assert x.is_contiguous(memory_format=torch.channels_last)
            assert x.dtype == u.dtype
            difference = ((x - u).abs() * STD.to(CUDA)[:, None, None]).round()
            if train:
                assert torch.equal(x, u)
            else:  # Pillow 13 resizes the columns of high pictures first
                assert difference.max() <= 1
                assert difference.mean() < 0.01


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_decoders_differ_by_rounding(folder, train, workers):
    split = "train" if train else "val"
    both = zip(
        batches(folder, True, 64, train, split, workers), batches(folder, False, 64, train, split, workers), strict=True
    )
    for (x, y), (u, v) in both:
        assert torch.equal(y, v)
        assert grey_levels(x, u) < 1.0
        assert ((x - u).abs() * STD.to(CUDA)[:, None, None]).max() < 40


def test_torchvision_on_the_cpu_makes_the_pixels_of_pillow(folder, monkeypatch):
    ours = [x for x, _ in batches(folder, False)]
    monkeypatch.setattr(decode, "torchvision", lambda: None)
    for x, (u, _) in zip(ours, batches(folder, False), strict=True):
        assert torch.equal(x, u)


def odd(root):
    """One image of each kind that a folder may have. Colours are not subsampled, so that all decoders agree."""
    draw, full = picture(200, 150), {"subsampling": 0}
    write(root / "a" / "png.png", draw)
    write(root / "a" / "gif.gif", draw)
    write(root / "a" / "webp.webp", draw)
    write(root / "a" / "palette.png", picture(200, 150, "P"))
    write(root / "a" / "alpha.png", picture(200, 150, "RGBA"))
    write(root / "b" / "grey.jpg", picture(200, 150, "L"))
    write(root / "b" / "cmyk.jpg", picture(200, 150, "CMYK"))
    write(root / "b" / "rgb.jpg", draw, keep_rgb=True)
    write(root / "b" / "progressive.jpg", draw, progressive=True, **full)
    write(root / "b" / "progressive_grey.jpg", picture(200, 150, "L"), progressive=True)
    write(root / "c" / "large.jpg", picture(2000, 1500), **full)
    write(root / "c" / "long.jpg", picture(3000, 40), **full)
    write(root / "c" / "one.jpg", picture(1, 1), **full)
    write(root / "c" / "tiny.jpg", picture(3, 2), **full)
    turned = Image.Exif()
    turned[0x0112] = 6
    write(root / "c" / "turned.jpg", draw, exif=turned, **full)
    content = write(root / "d" / "damaged.jpg", draw, **full).read_bytes()
    middle = len(content) * 2 // 3
    (root / "d" / "damaged.jpg").write_bytes(content[:middle] + b"\x12" * 20 + content[middle + 20 :])
    return root


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
def test_a_folder_with_one_image_of_each_odd_kind(tmp_path, train):
    odd(tmp_path / "train")
    for name in "abcd":
        write(tmp_path / "val" / name / "0.jpg", picture(20, 20))
    loaders = [
        data.folder(tmp_path, size=32, on_gpu=on_gpu).train.loader(batch=16, train=train, device=CUDA)
        for on_gpu in (True, False)
    ]
    (_, order), ((x, y), (u, v)) = next(loaders[0].order.batches()), [next(iter(loader)) for loader in loaders]
    assert torch.equal(y, v)
    damaged = order.tolist().index(15)  # every decoder has its own idea of what is missing
    same = [i for i in range(16) if i != damaged]
    if train:
        assert torch.equal(x[same], u[same])
    else:
        assert grey_levels(x[same], u[same]) < 0.01
    assert x[damaged].isfinite().all()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("content", [b"", b"hello", "cut", "png"])
def test_a_file_that_nobody_reads_is_named(folder, tmp_path, workers, content):
    whole = (folder / "train" / "class0" / "00.jpg").read_bytes()
    png = write(tmp_path / "a.png", picture(90, 90)).read_bytes()
    content = {"cut": whole[: len(whole) // 2], "png": png[:40]}.get(content, content)
    for part in ("train", "val"):
        for i in range(9):
            write(tmp_path / part / "class0" / f"{i}.jpg", picture(90, 90))
    (tmp_path / "train" / "class0" / "4.jpg").write_bytes(content)
    with pytest.raises(DataError, match=r"^Cannot read the image \S*/train/class0/4\.jpg: [^\n]+\.$"):
        list(batches(tmp_path, True, workers=workers, train=False))


@pytest.mark.parametrize("names", [["class1/04"], ["class0/00", "class1/04", "class1/10"]])
def test_what_the_gpu_refuses_is_for_the_cpu(folder, monkeypatch, names):
    """One file makes the call for all of them fail; it does not say which. Files of other parts come later."""
    real = gpu._decode
    refused = [(folder / "train" / f"{name}.jpg").read_bytes() for name in names]

    def fussy(files, device):
        if any(bytes(file.tolist()) in refused for file in files):
            raise RuntimeError("nvJPEG failed")
        return real(files, device)

    expected = [x for x, _ in batches(folder, True)]
    monkeypatch.setattr(gpu, "_decode", fussy)
    monkeypatch.setattr(encoded, "MOST", 2 * 372 * 332)
    found = [x for x, _ in batches(folder, True)]
    same = [torch.equal(a, b) for x, u in zip(found, expected, strict=True) for a, b in zip(x, u, strict=True)]
    assert same.count(False) == len(names)
    assert all(grey_levels(x, u) < 0.5 for x, u in zip(found, expected, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_bit_by_bit(folder, workers):
    loader = batches(folder, True, workers=workers)
    stream = (batch for _ in range(3) for batch in loader)
    for _ in range(4):
        next(stream)
    state = loader.state_dict()
    rest = [x for x, _ in stream]
    again = batches(folder, True, workers=workers)
    again.load_state_dict(state)
    assert state == {"epoch": 1, "batch": 1}
    assert len(rest) == 5
    for x, (u, _) in zip(rest, (batch for _ in range(2) for batch in again), strict=True):
        assert torch.equal(x, u)


def test_two_processes_see_what_one_sees(folder):
    parts = [batches(folder, True, rank=rank, world=2) for rank in range(2)]
    for (x, y), *halves in zip(batches(folder, True), *parts, strict=True):
        assert torch.equal(x, torch.cat([u for u, _ in halves]))
        assert torch.equal(y, torch.cat([v for _, v in halves]))


def test_memory_is_bounded(folder, monkeypatch):
    """Batches ahead, one that is made, one in use; pictures that are decoded in parts."""
    one = 8 * 3 * 224 * 224 * 4
    monkeypatch.setattr(encoded, "MOST", 2 * 372 * 332)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(4):
        for x, _ in batches(folder, True, 224):
            assert x.shape == (8, 3, 224, 224)
    assert torch.cuda.max_memory_allocated() - before < (gpu.AHEAD + 3) * one + 20 * encoded.MOST
    del x
    assert torch.cuda.memory_allocated() - before < one


BUSY = """
import sys
import torch
from softprune import data
from softprune.data.encoded import Encoding
from softprune.data.gpu import Decoder
from softprune.data.pictures import Pictures
images = data.folder(sys.argv[1], size=64, on_gpu=True).train
encoding = Encoding(Pictures(images.listing, 64, 0, train=False))
decoder = Decoder(encoding, torch.device("cuda", 0), images.mean, images.std)
batch = encoding.encode(0, 10 * list(range(24))).pin_memory()
for _ in range(3):  # from now on it allocates nothing
    decoder(batch)
torch.cuda.synchronize()
for _ in range(500):
    torch.cuda._sleep(10_000_000)  # some seconds in all
network = torch.cuda.Event()
network.record()
decoder(batch)
print("waited" if network.query() else "went on")
"""


@pytest.mark.parametrize(("queues", "outcome"), [("32", "went on"), ("1", "waited")])
def test_with_queues_of_its_own_decoding_does_not_wait_for_the_network(folder, queues, outcome):
    environment = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": queues}
    done = subprocess.run(
        [sys.executable, "-c", BUSY, folder], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == outcome


def test_who_forgets_the_queues_is_told(folder, monkeypatch):
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS")
    with pytest.warns(UserWarning, match="variable CUDA_DEVICE_MAX_CONNECTIONS=32"):
        batches(folder, True)


SCRIPT = """
import sys
from pathlib import Path
import torch
from softprune import recipes
from softprune.training.run import Run
torch.use_deterministic_algorithms(True, warn_only=True)
folder, *settings = sys.argv[1:]
config = recipes.get("cifar10/slats").config.override(settings)
run = Run.create(Path(folder), config) if settings else Run.open(Path(folder))
run.train()
"""


def test_killed_in_the_middle_of_an_epoch_it_ends_as_it_would_have(folder, tmp_path):
    settings = ["image_size=32", "batch=8", "epochs=12", "warmup=0", "workers=2", "compile=false", "decode=gpu"]
    settings += ["checkpoint_minutes=0", f"data={folder}"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    begin = {
        "args": [sys.executable, "-W", "ignore", "-c", SCRIPT],
        "env": {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
    }

    def command(*words):
        return {**begin, "args": [*begin["args"], *map(str, words)]}

    subprocess.run(**command(whole, *settings), check=True)
    process = subprocess.Popen(**command(killed, *settings))
    log = killed / "history.jsonl"
    while not log.exists() or len(log.read_text().splitlines()) < 13:
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "report.json").exists()
    subprocess.run(**command(killed), check=True)
    one, other = (load_file(path / "model.safetensors") for path in (whole, killed))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "JPEG files were decoded by torchvision on the GPU." in (whole / "report.md").read_text()
