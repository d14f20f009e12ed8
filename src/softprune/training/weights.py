"""Model files: safetensors, which hold tensors and nothing that could be executed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from softprune.errors import CheckpointError
from softprune.training.atomic import replacing
from softprune.training.checkpoint import load


def gather(network: nn.Module) -> dict[str, Tensor]:
    """The network's weights and buffers under their ordinary names, whole; every process of a run must call it."""
    whole: dict[str, Any] = get_model_state_dict(
        network, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    return {name: tensor.contiguous() for name, tensor in whole.items()}


def save(tensors: dict[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Write a model file, atomically."""
    with replacing(path) as beside:
        beside.touch()
        mode = beside.stat().st_mode
        try:
            save_file(tensors, beside, dict(metadata))
        except SafetensorError as error:
            raise CheckpointError(f"Cannot write {path}: {error}. Make room, and go on with `--resume`.") from error
        beside.chmod(mode)  # as other files have it: save_file makes one that is the owner's alone


def read(path: Path) -> dict[str, Tensor]:
    """Weights by name, from a model file or a checkpoint of a run."""
    if path.suffix == ".ckpt":
        tensors = load(path).get("state_dict")
        if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
            raise CheckpointError(f"{path} holds no weights.")
        return {name.removeprefix("network."): tensor for name, tensor in tensors.items()}
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is not a safetensors file, or is damaged: {error}") from error
