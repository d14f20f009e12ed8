"""The processes of a launch: what they find in their environment, who speaks for all of them, and how they end."""

from __future__ import annotations

import os
from collections.abc import Callable

from softprune.errors import ConfigError

_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")


def first_process() -> bool:
    """Whether this is the first process of a launch, by torchrun, by Lightning or by Slurm, on the first node."""
    return all(os.environ.get(name, "0") == "0" for name in _RANKS)


def processes() -> int:
    """How many processes torchrun, Lightning or Slurm launched; 1 where nobody launched any."""
    return max(_number("WORLD_SIZE"), _number("SLURM_STEP_NUM_TASKS"))


def _launched() -> bool:
    """Whether anything says that there may be other processes."""
    return processes() > 1 or "MASTER_ADDR" in os.environ or "SLURM_NTASKS" in os.environ


def forget_leftovers(say: Callable[[str], None]) -> None:
    """Drop ranks that another program left in the environment, where nobody launched several processes: a lone process
    of rank 1 would leave folder and report to a first one that does not exist."""
    if _launched():
        return
    for name in _RANKS:
        if os.environ.get(name, "0") != "0":
            say(f"{name}={os.environ.pop(name)} is ignored: WORLD_SIZE does not say that there are several processes.")


def open_queues() -> None:
    """As many queues to a GPU as CUDA has, unless somebody chose. With its 8 the streams of a JPEG decoder share some
    with the network, and wait until all is done that the network has asked for (docs/benchmarks.md).

    To be called before anybody asks CUDA for anything, be it only whether it is there.
    """
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


def check_nodes(nodes: int) -> None:
    """Refuse several nodes that nobody launches: Lightning would wait for them."""
    if nodes > 1 and not _launched():
        raise ConfigError(
            f"`nodes={nodes}` needs a launcher that starts the command on every node. Use torchrun or Slurm, or set "
            "MASTER_ADDR and NODE_RANK."
        )


def check_processes(used: int) -> None:
    """Refuse processes that the run would not use: each would train alone, all in one folder."""
    launched = _number("WORLD_SIZE")
    if launched > 1 and launched != used:
        raise ConfigError(
            f"{launched} processes were launched, and the run uses {used}. Write `devices=` as the processes of a "
            "node, and `nodes=` as the nodes."
        )


def leave_group() -> None:
    """Barrier, then destroy the process group; a rank that exits early aborts the others."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def _number(variable: str) -> int:
    text = os.environ.get(variable, "1")
    if not text.isdecimal():
        raise ConfigError(f"The environment variable {variable} must be a whole number. Got {text!r}.")
    return int(text)
