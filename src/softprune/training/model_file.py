"""Model files: safetensors, which hold tensors and nothing that could be executed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from softprune.errors import CheckpointError
from softprune.training.files import replacing


def gather(network: nn.Module) -> dict[str, Tensor]:
    """The network's weights and buffers under their ordinary names, whole; every process of a run must call it."""
    whole: dict[str, Any] = get_model_state_dict(
        network, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    return {name: tensor.contiguous() for name, tensor in whole.items()}


def write(tensors: dict[str, Tensor], path: Path, metadata: Mapping[str, str]) -> None:
    """Write a model file, atomically, and the same bytes for the same contents: safetensors would order the metadata
    anew each time."""
    data = save(tensors, dict(metadata))
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at multiples of 8
    with replacing(path) as beside, beside.open("wb") as file:
        for part in (len(text).to_bytes(8, "little"), text, memoryview(data)[8 + size :]):
            file.write(part)


def read(path: Path) -> dict[str, Tensor]:
    """Weights by name, from a model file or a checkpoint of a run."""
    if path.suffix == ".ckpt":
        from softprune.training.checkpoint import load  # which imports Lightning

        tensors = load(path).get("state_dict")
        if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
            raise CheckpointError(f"{path} holds no weights. Choose a checkpoint that `softprune train` wrote.")
        return {name.removeprefix("network."): tensor for name, tensor in tensors.items()}
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a safetensors file, or is damaged: {str(error).rstrip('.')}. If a run wrote it, delete the "
            "run's report.json, and `softprune train --resume` writes both again."
        ) from error
