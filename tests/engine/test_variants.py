"""Variants of the vectors agree, those for ARM under emulation."""

from __future__ import annotations

import ctypes as ct
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine_networks import bottleneck_net, quantize, quantize16
from softprune.engine import build, native, run_integers
from softprune.engine.build import Variant
from softprune.engine.compiled import Compiled
from softprune.engine.lower import Native, sections
from softprune.engine.quantized import Quantized

HERE = Path(__file__).parent
CROSS, EMULATOR = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
ARM = [v for v in build.VARIANTS if v.name in ("i8mm", "neon")]
POINTERS = [name for name, kind in native.Step._fields_ if kind is ct.c_void_p]


def compile_and_run(variant: Variant, folder: Path, source: str, *others: Path, arguments: tuple[str, ...] = ()) -> str:
    arm = variant in ARM
    if arm and not (CROSS and EMULATOR):
        pytest.fail("ARM needs a cross compiler and an emulator: Debian's gcc-aarch64-linux-gnu and qemu-user.")
    program = folder / f"{Path(source).stem}-{variant.name}"
    flags = ["-O2", "-std=gnu11", "-ffp-contract=off", "-pthread", *(["-static"] if arm else []), *variant.flags]
    command = [str(CROSS) if arm else build.compiler(), *flags, "-I", str(build.SOURCES), "-o", str(program)]
    subprocess.run([*command, str(HERE / source), *map(str, others), "-lm"], check=True, capture_output=True)
    start = [str(EMULATOR), "-cpu", "max"] if arm else []
    ran = subprocess.run([*start, str(program), *arguments], check=True, capture_output=True, text=True)
    return ran.stdout


@cache
def right() -> str:
    folder = build.folder()
    folder.mkdir(parents=True, exist_ok=True)
    return compile_and_run(build.VARIANTS[-1], folder, "vec_check.c")


@pytest.mark.parametrize("variant", build.available()[:-1], ids=lambda v: v.name)
def test_vectors_of_this_machine(variant: Variant, tmp_path: Path) -> None:
    assert len(right().splitlines()) == 40
    assert compile_and_run(variant, tmp_path, "vec_check.c") == right()


@pytest.mark.slow
@pytest.mark.parametrize("variant", ARM, ids=lambda v: v.name)
def test_vectors_of_arm(variant: Variant, tmp_path: Path) -> None:
    assert compile_and_run(variant, tmp_path, "vec_check.c") == right()


class Image:
    """A plan in one piece of memory, pointers as offsets."""

    def __init__(self) -> None:
        self.memory = bytearray(64)
        self.pointers: list[int] = []

    def put(self, data: bytes) -> int:
        self.memory += bytes(-len(self.memory) % 64)
        self.memory += data
        return len(self.memory) - len(data)


def raw(data: object) -> tuple[int, bytes]:
    if isinstance(data, Tensor):
        return data.data_ptr(), bytes(data.contiguous().flatten().view(torch.uint8).tolist())
    return ct.addressof(data), bytes(data)  # type: ignore[arg-type, call-overload]


def dump(compiled: Compiled, x: Tensor, out: Tensor, path: Path) -> None:
    image = Image()
    kept = [*compiled._keep, *(part for pair in compiled._chosen.values() for part in pair[:1])]
    kept += [data for _, entries in compiled._chosen.values() for data in (entries.words, entries.lengths)]
    blobs = {address: image.put(data + bytes(64)) for address, data in map(raw, kept)}
    steps = (native.Step * len(compiled.steps)).from_buffer_copy(compiled.steps)
    inside: list[tuple[int, int]] = []
    for i, step in enumerate(steps):
        for name in POINTERS:
            if address := getattr(step, name):
                setattr(step, name, blobs[address])
                inside.append((i, getattr(native.Step, name).offset))
    places = [image.put(bytes(compiled._region_array)), image.put(bytes(steps))]
    image.pointers += [places[1] + i * ct.sizeof(native.Step) + offset for i, offset in inside]
    arrays = [image.put(bytes(compiled.size + 64)), image.put(raw(x)[1]), image.put(bytes(out.numel() * 4))]
    places.append(image.put(struct.pack("<3q", *arrays)))
    image.pointers += [places[2] + 8 * i for i in range(3)]
    image.memory[:24] = struct.pack("<3q", *places)
    head = (len(image.memory), len(image.pointers), len(compiled.regions), 3, arrays[2], out.numel() * 4)
    path.write_bytes(
        struct.pack("<6q", *head) + image.memory + struct.pack(f"<{len(image.pointers)}q", *image.pointers)
    )


def network(shorts: bool) -> tuple[Quantized, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(3, 3, 40, 40)
    made = bottleneck_net(3, 40, 0.6, depths=(1, 1, 1), width=8)
    return (quantize16 if shorts else quantize)(made, x), x


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("shorts", [False, True], ids=["int8", "int16"])
@pytest.mark.parametrize("variant", [*ARM, build.VARIANTS[-1]], ids=lambda v: v.name)
def test_networks_of_arm(variant: Variant, shorts: bool, tmp_path: Path) -> None:
    """A plan for vectors of 4 at most, as all variants but the fastest have them, run by another processor."""
    net, x = network(shorts)
    (section,) = sections(net, len(x))
    assert isinstance(section, Native)
    compiled = Compiled(section, native.load("plain"))
    out = torch.zeros(3, 1000)
    dump(compiled, x, out, tmp_path / "plan")
    sources = sorted(build.SOURCES.glob("*.c"))
    compile_and_run(
        variant, tmp_path, "plan_run.c", *sources, arguments=(str(tmp_path / "plan"), str(tmp_path / "out"))
    )
    found = torch.frombuffer(bytearray((tmp_path / "out").read_bytes()), dtype=torch.float32).view(3, 1000)
    wanted = run_integers.run(net, x)["fc"]
    assert torch.equal(found, wanted if not shorts else wanted.float() * torch.tensor(net.scales["fc"].scale))
