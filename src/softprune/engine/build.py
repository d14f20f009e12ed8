"""The kernels' library: built at first use by the machine's C compiler, kept in a cache.

A variant is the same source with other instructions. The cache's key holds the sources, the compiler and its flags, so
that nothing stale is ever loaded; a library is written beside its place and renamed, so that two processes may build
at once.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from softprune.errors import UserError

SOURCES = Path(__file__).parent / "native"
FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-pthread")


class CompilerError(UserError, RuntimeError):
    """No compiler, or one that does not build the kernels."""


@dataclass(frozen=True)
class Variant:
    """``needs``: what the processor must say that it has."""

    name: str
    machine: tuple[str, ...]
    needs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


_X86, _ARM = ("x86_64", "AMD64"), ("aarch64", "arm64")
_AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq")
_VNNI = (*_AVX512, "avx512_vnni")
_VBMI = (*_VNNI, "avx512vbmi")
VARIANTS = (  # the fastest first
    Variant("avx512vbmi", _X86, _VBMI, tuple("-m" + name.replace("_", "") for name in _VBMI)),
    Variant("avx512vnni", _X86, _VNNI, tuple("-m" + name.replace("_", "") for name in _VNNI)),
    Variant("avxvnni", _X86, ("avx2", "fma", "avx_vnni"), ("-mavx2", "-mfma", "-mavxvnni")),
    Variant("avx512", _X86, _AVX512, tuple("-m" + name for name in _AVX512)),
    Variant("avx2", _X86, ("avx2", "fma"), ("-mavx2", "-mfma")),
    Variant("i8mm", _ARM, ("asimddp", "i8mm"), ("-march=armv8.2-a+dotprod+i8mm",)),
    Variant("neon", _ARM, ("asimddp",), ("-march=armv8.2-a+dotprod",)),
    Variant("plain", (*_X86, *_ARM, platform.machine())),
)


@cache
def features() -> frozenset[str]:
    """What the processor has, in the words of Linux."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:  # an Apple
        return frozenset({"asimddp"} if sys.platform == "darwin" and platform.machine() == "arm64" else ())
    lines = [line.partition(":")[2] for line in text.splitlines() if line.lower().startswith(("flags", "features"))]
    return frozenset(lines[0].split()) if lines else frozenset()


def available() -> list[Variant]:
    """Those that run here, the fastest first."""
    has = features()
    return [v for v in VARIANTS if platform.machine() in v.machine and has.issuperset(v.needs)]


def compiler() -> str:
    """The path of a C compiler: that of $CC, cc, gcc or clang."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return found
    raise CompilerError(
        "The engine's kernels need a C compiler, and there is none (cc, gcc, clang, or the one that $CC names). "
        "Install one, such as Debian's package gcc; until then networks run in torch."
    )


def folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "softprune"


@cache
def _version(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout


def _key(path: str, flags: tuple[str, ...]) -> str:
    text = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        text.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    text.update("\0".join((path, _version(path), *flags, platform.machine())).encode())
    return text.hexdigest()[:20]


def library(variant: Variant, extra: tuple[str, ...] = ()) -> Path:
    """The built library; ``extra`` flags come last."""
    path = compiler()
    flags = (*FLAGS, *variant.flags, *extra)
    place = folder() / f"kernels-{variant.name}-{_key(path, flags)}.so"
    if place.exists():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as work:
            built = Path(work) / place.name
            sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
            command = [path, *flags, "-o", str(built), *sources, "-lm"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                said = (result.stderr.strip().splitlines() or ["nothing"])[0]
                raise CompilerError(f"{path} does not build the engine's kernels ({variant.name}). It says: {said}")
            built.replace(place)
    except OSError as error:
        raise CompilerError(
            f"The engine's kernels cannot be built in {place.parent}: {error}. Set XDG_CACHE_HOME to a folder that "
            "can be written."
        ) from error
    return place
