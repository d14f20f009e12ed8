"""The processes of a launch: who speaks for all, and how they end."""

from __future__ import annotations

import os

import torch


def first_process() -> bool:
    """Whether this is the first process of a launch, by torchrun, by Lightning or by Slurm, on the first node."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def part() -> None:
    """The processes of a launch end together: threads that still talk to another process abort one that exits."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
