"""The processes of a launch: who speaks for all, how they end, and that no other launch is where they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from softprune.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def first_process() -> bool:
    """Whether this is the first process of a launch, by torchrun, by Lightning or by Slurm, on the first node."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold ``path``, a file of the run, for this launch; refuse where another one does. A process that dies lets go."""
    if not first_process() or fcntl is None:
        yield
        return
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"Another process trains in {path.parent}. Wait until it is done, or stop it.") from None
        except OSError:
            pass  # a file system without locks
        yield


def part() -> None:
    """The processes of a launch end together: threads that still talk to another process abort one that exits."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
