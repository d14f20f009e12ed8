"""Steps that must not wait for the GPU."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def no_waiting(really: bool = True) -> Iterator[None]:
    """What waits for the GPU inside raises an error; afterwards, whatever happens, it may wait again."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        if really:
            torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if really:
            torch.cuda.set_sync_debug_mode("default")
