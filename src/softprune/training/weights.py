"""Model files: safetensors, which hold tensors and nothing that could be executed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from softprune.errors import CheckpointError
from softprune.training.checkpoint import load


def save(network: nn.Module, path: Path, metadata: Mapping[str, str]) -> None:
    """The network's weights and buffers under their ordinary names, written atomically."""
    beside = path.with_name(f".{path.name}")
    save_file({name: t.contiguous().cpu() for name, t in network.state_dict().items()}, beside, dict(metadata))
    os.replace(beside, path)


def read(path: Path) -> dict[str, Tensor]:
    """Weights by name, from a model file or a checkpoint of a run."""
    if path.suffix == ".ckpt":
        tensors = load(path)["state_dict"]
        return {name.removeprefix("network."): tensor for name, tensor in tensors.items()}
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a safetensors file, or is damaged: {error}") from error


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, "pt") as file:
        return file.metadata() or {}
