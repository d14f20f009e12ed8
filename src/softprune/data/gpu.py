"""JPEG files decoded by the GPU that needs them, on a stream of its own and ahead of the network.

Workers read files; a thread of this process decodes. The GPU holds the batches that are ready, one that is made and one
in use, and of pictures that are decoded and not yet cut at most ``encoded.MOST`` pixels, 3 bytes each.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from io import BytesIO

import torch
from torch import Tensor

from softprune.data import resample
from softprune.data.decode import torchvision
from softprune.data.encoded import Encoded, Encoding, Part
from softprune.data.split import Batch
from softprune.errors import DataError

try:
    import triton
except ImportError:  # a CPU build of torch brings no Triton
    triton = None

_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"

AHEAD = 2
"""Batches that are ready or under way when one is handed over."""


@cache
def unable(device: torch.device) -> str | None:
    """Why this device cannot decode; None if it can."""
    if device.type != "cuda":
        return f"the device is {device.type}"
    if torchvision() is None:
        return "torchvision is not installed, or does not fit this torch"
    if triton is None:
        return "Triton is not installed"
    from PIL import Image

    Image.new("RGB", (16, 16)).save(file := BytesIO(), "JPEG")
    try:
        _decode([torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)], device)
    except RuntimeError as error:
        return f"torchvision cannot: {str(error).splitlines()[0]}"
    return None


def ahead(batches: Iterable[Encoded], decoder: Decoder) -> Iterator[Batch]:
    """What the decoder makes of the batches, some of them before they are asked for."""
    stream = iter(batches)  # here, so that workers are this thread's
    thread = ThreadPoolExecutor(1, "softprune-decode")

    def one() -> Batch | None:
        batch = next(stream, None)
        return None if batch is None else decoder(batch)

    waiting: deque[Future[Batch | None]] = deque()
    try:
        while True:
            while len(waiting) <= AHEAD:
                waiting.append(thread.submit(one))
            if (made := waiting.popleft().result()) is None:
                return
            yield decoder.handed_over(made)
    finally:
        thread.shutdown(cancel_futures=True)


class Decoder:
    """Files of a batch -> images, normalised, and labels, on the device.

    The thread that calls it shares one interpreter with the network's: it makes few calls of torch, each of which lets
    the other thread in, and none for a single picture.
    """

    def __init__(self, encoding: Encoding, device: torch.device, mean: Tensor, std: Tensor) -> None:
        if _QUEUES not in os.environ:
            warnings.warn(
                "Decoding on the GPU is slow, since it waits for the network in the same queues. Set the environment "
                f"variable {_QUEUES}=32 before the program starts, as the command `softprune` does for itself.",
                stacklevel=4,
            )
        self.encoding, self.device = encoding, device
        self.mean, self.std = mean.to(device), std.to(device)
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, batch: Encoded, refused: frozenset[int] = frozenset()) -> Batch:
        """Complete when it returns: this thread waits for the GPU, and no other does.

        Args:
            batch: as workers read it.
            refused: its images of which it is known that they are not for the GPU.
        """
        if batch.problem:
            raise DataError(batch.problem)
        size, begin = self.encoding.pictures.size, 0
        with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
            images = torch.empty(len(batch.labels), size, size, 3, device=self.device)
            lengths = [length for part in batch.parts for length in part.lengths]
            files = iter(() if batch.files is None else batch.files.split([n for n in lengths if n]))  # type: ignore[no-untyped-call]
            pixels = iter(() if batch.pixels is None else batch.pixels.to(self.device).permute(0, 3, 1, 2))
            for part in batch.parts:
                end = begin + len(part.lengths)
                encoded = [next(files) for length in part.lengths if length]
                decoded = self._decoded(encoded)
                pictures = [next(decoded) if length else next(pixels) for length in part.lengths]
                if bad := _refused(pictures, part):
                    refused |= {batch.indices[begin + i] for i in bad}
                    return self(self.encoding.encode(batch.epoch, batch.indices, refused), refused)
                resample.batch(pictures, part.plan, size, self.mean, self.std, images[begin:end])
                self._wait()  # the memory of these pictures is for the next ones
                begin = end
            labels = torch.tensor(batch.labels, dtype=torch.int64).to(self.device)
            self._wait()
        return images.permute(0, 3, 1, 2), labels

    def handed_over(self, batch: Batch) -> Batch:
        """To the stream that this thread uses."""
        for tensor in batch:
            tensor.record_stream(torch.cuda.current_stream(self.device))
        return batch

    def _decoded(self, files: list[Tensor]) -> Iterator[Tensor]:
        """3 × H × W of each file; an empty tensor for those that the GPU refuses."""
        try:
            return iter(_decode(files, self.device) if files else [])
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # it does not say which
            return iter([self._alone(file) for file in files])

    def _alone(self, file: Tensor) -> Tensor:
        try:
            return _decode([file], self.device)[0]
        except RuntimeError:
            return torch.empty(0)

    def _wait(self) -> None:
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(self.stream)
        event.synchronize()


def _refused(pictures: list[Tensor], part: Part) -> list[int]:
    """Those of another size than their files say, or of none."""
    pairs = enumerate(zip(pictures, part.sizes, strict=True))
    return [i for i, (picture, size) in pairs if picture.shape[1:] != size]


def _decode(files: list[Tensor], device: torch.device) -> list[Tensor]:
    io = torchvision()
    assert io is not None
    found: list[Tensor] = io.decode_jpeg(files, io.ImageReadMode.RGB, device=str(device))
    return found
