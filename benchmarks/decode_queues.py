"""How long decoding takes beside a busy GPU, with few queues to it and with many: CUDA_DEVICE_MAX_CONNECTIONS.

    python benchmarks/decode_queues.py    # an NVIDIA GPU, and torchvision with CUDA

CUDA's streams share 8 queues unless the environment says otherwise when a program first asks for a GPU, and what is
in one queue waits for what came before. nvJPEG has 14 streams. Here the default stream sleeps for some 100 ms, as if a
network had work for so long, and another stream decodes 256 files of 500 × 375 pixels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from io import BytesIO

import torch
from PIL import Image

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
SLEEPS, CYCLES = 50, 3_600_000


def measure() -> tuple[float, float]:
    """Milliseconds that decoding takes alone and beside."""
    from torchvision.io import ImageReadMode, decode_jpeg

    Image.effect_noise((500, 375), 50).convert("RGB").save(file := BytesIO(), "JPEG", quality=90)
    files = [torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)] * 256
    stream = torch.cuda.Stream()

    def decode() -> float:
        begin = time.perf_counter()
        with torch.cuda.stream(stream):
            decode_jpeg(files, ImageReadMode.RGB, device="cuda")
            stream.synchronize()
        return 1000 * (time.perf_counter() - begin)

    alone = [decode() for _ in range(5)][-1]
    torch.cuda.synchronize()
    for _ in range(SLEEPS):
        torch.cuda._sleep(CYCLES)
    return alone, decode()


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("Error: this needs an NVIDIA GPU.")
    if "--measure" in sys.argv:
        print("{:10.1f} ms alone {:10.1f} ms beside".format(*measure()))
        return
    print(torch.cuda.get_device_name())
    for queues in ("8", "32"):
        command = [sys.executable, __file__, "--measure"]
        done = subprocess.run(command, env={**os.environ, QUEUES: queues}, capture_output=True, text=True, check=True)
        print(f"{queues:>3} queues {done.stdout.strip()}")


if __name__ == "__main__":
    main()
