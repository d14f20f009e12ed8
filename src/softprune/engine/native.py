"""The kernels' library, bound by ctypes: structures as in native/steps.h, memory that is aligned, runs."""

from __future__ import annotations

import ctypes as ct
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from softprune.engine import build
from softprune.engine.grids import MOST
from softprune.errors import ArgumentError

KINDS = (
    "sparse8", "depthwise8", "maxpool8", "globalmean8", "add8", "multiply8", "table8", "input8", "output8",
    "sparse16", "maxpool16", "globalmean16", "add16", "input16", "output16",
    "sparse32", "maxpool32", "globalmean32", "act32", "input32", "output32",
    "few8", "bytes32", "floats8", "norm32", "attention32",
)  # fmt: skip


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class Place(ct.Structure):
    _fields_ = _fields(ct.c_int64, "offset group panel thread") + _fields(ct.c_int32, "buffer vectors")


class Move(ct.Structure):
    _fields_ = (
        *_fields(ct.c_int32, "to mode"),
        ("from_", ct.c_int64),
        ("mask", ct.c_uint32),
        ("index", ct.c_int32),
    )


class Window(ct.Structure):
    _fields_ = [("base", ct.c_int64), *_fields(ct.c_int32, "first last")]


class Part(ct.Structure):
    _fields_ = _fields(ct.c_int64, "entry length") + _fields(ct.c_int32, "first last")


class Step(ct.Structure):
    _fields_ = (
        *_fields(
            ct.c_int32, "kind panels parts chain inputs outputs packed fill taps images width paired slices steps"
        ),
        *_fields(ct.c_int32, "residual low high other"),
        *_fields(Place, "x y r scratch"),
        *_fields(ct.c_void_p, "counts windows moves indices last rows lengths entries bias shift tap multiplier"),
        *_fields(ct.c_void_p, "real table"),
        *_fields(ct.c_int64, "image channel"),
        ("walk", (ct.c_uint8 * (MOST + 1)) * (MOST + 1)),
    )


class Region(ct.Structure):
    _fields_ = _fields(ct.c_int32, "first last groups by_group")


class Library:
    """One variant, loaded."""

    def __init__(self, path: str) -> None:
        self._lib = lib = ct.CDLL(path)
        lib.variant.restype = ct.c_char_p
        lib.run.argtypes = [ct.c_void_p, ct.c_int, ct.c_void_p, ct.c_void_p, ct.c_void_p]
        lib.run.restype = None
        lib.time_steps.argtypes = [ct.c_void_p, ct.c_int, ct.c_void_p, ct.c_void_p, ct.c_int, ct.c_void_p]
        lib.time_steps.restype = None
        lib.peak.argtypes, lib.peak.restype = [ct.c_int], ct.c_double
        lib.prefer_large_pages.argtypes = [ct.c_void_p, ct.c_size_t]
        lib.prefer_large_pages.restype = None
        lib.pool_new.restype = ct.c_void_p
        lib.pool_free.argtypes = [ct.c_void_p]
        lib.pool_free.restype = None
        if lib.step_size() != ct.sizeof(Step):
            raise RuntimeError("The kernels' library has other structures than this module.")
        self.name: str = lib.variant().decode()
        self.widest: int = lib.widest()

    def run(self, regions: Any, steps: Any, buffers: Any, pool: int | None = None) -> None:
        self._lib.run(regions, len(regions), steps, buffers, pool)

    def time(self, regions: Any, steps: Any, buffers: Any, runs: int) -> list[float]:
        """The least CPU time of each step in seconds; a chain's stands at its first step, the others have 1e9."""
        least = (ct.c_double * len(steps))()
        self._lib.time_steps(regions, len(regions), steps, buffers, runs, least)
        return list(least)

    @cached_property
    def peaks(self) -> dict[int, float]:
        """Entries times vectors a second at best, in 8, 16 and 32 bits."""
        return {bits: float(self._lib.peak(bits)) for bits in (8, 16, 32)}

    def prefer_large_pages(self, address: int, size: int) -> None:
        self._lib.prefer_large_pages(address, size)

    def pool(self, threads: int) -> int | None:
        return self._lib.pool_new(threads) or None

    def free(self, pool: int) -> None:
        self._lib.pool_free(pool)


@cache
def load(name: str | None = None) -> Library:
    """The fastest variant that runs here and that the compiler knows, or the one of this name."""
    variants = [v for v in build.available() if name in (None, v.name)]
    if not variants:
        names = ", ".join(v.name for v in build.available())
        raise ArgumentError(f"The kernels' variant must be one that this machine runs: {names}. Got {name!r}.")
    for variant in variants[:-1]:
        try:
            return Library(str(build.library(variant)))
        except build.CompilerError:
            continue
    return Library(str(build.library(variants[-1])))


class Threads:
    """Threads of one engine, made at the first run, and again in a process that was forked."""

    def __init__(self, library: Library, count: int) -> None:
        self._library, self.count = library, count
        self._owner = -1
        self._pool: int | None = None
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self) -> Iterator[int | None]:
        """The pool, or None: the caller's thread alone, which is also for whom comes while another has the pool."""
        if self.count == 1:
            yield None
            return
        if self._owner != os.getpid():
            self._renew()
        lock = self._lock
        if not lock.acquire(blocking=False):
            yield None
            return
        try:
            yield self._pool
        finally:
            lock.release()

    def _renew(self) -> None:
        with _RENEWING:
            if self._owner != os.getpid():
                self._lock = threading.Lock()  # after a fork the old one may be held by nobody
                self._pool = self._library.pool(self.count)
                self._owner = os.getpid()
                if self._pool is not None:
                    weakref.finalize(self, _free, self._library, self._pool, self._owner)


_RENEWING = threading.Lock()


def _after_fork() -> None:
    global _RENEWING
    _RENEWING = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _free(library: Library, pool: int, owner: int) -> None:
    if owner == os.getpid():
        library.free(pool)


PAGE = 1 << 21  # a large one


def aligned(library: Library, size: int) -> Tensor:
    """Bytes that begin at a large page."""
    raw = torch.empty(size + 2 * PAGE, dtype=torch.uint8)
    skip = -raw.data_ptr() % PAGE
    library.prefer_large_pages(raw.data_ptr() + skip, -(-size // PAGE) * PAGE)
    return raw[skip : skip + size]


class Arena:
    """Large pages for what stays: fetching ahead ends at the end of a page."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._chunk = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def put(self, data: Tensor) -> Tensor:
        """A copy."""
        size = data.numel() * data.element_size()
        if self._used + size > len(self._chunk):
            self._chunk, self._used = aligned(self._library, -(-max(size, 4 * PAGE) // PAGE) * PAGE), 0
        place = self._chunk[self._used : self._used + size].view(data.dtype)
        self._used = -(-(self._used + size) // 64) * 64
        return place.copy_(data.flatten())


def array(kind: type[ct.Structure], rows: Sequence[tuple[int, ...]]) -> Any:
    """A ctypes array of structures; never empty, so that it has an address."""
    return (kind * max(1, len(rows)))(*[kind(*row) for row in rows])
