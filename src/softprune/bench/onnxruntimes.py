"""onnxruntime: fp32, and int8 with weights scaled by output channel."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from softprune.bench.runtimes import Call, Runtime, Work, quiet

_INPUT = "x"


@dataclass(frozen=True)
class OnnxFloat(Runtime):
    """Exported by torch, in fp32."""

    name: str = "onnxruntime fp32"
    packages: ClassVar = ("onnx", "onnxruntime", "onnxscript")

    def convert(self, work: Work) -> Callable[[int], Call]:
        with tempfile.TemporaryDirectory() as folder:
            return _opened(_export(work, Path(folder)), work.example)


@dataclass(frozen=True)
class OnnxInt8(Runtime):
    """The same with nodes that quantize: u8 activations with ranges from the samples, s8 weights."""

    name: str = "onnxruntime int8"
    packages: ClassVar = OnnxFloat.packages

    def convert(self, work: Work) -> Callable[[int], Call]:
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

        with tempfile.TemporaryDirectory() as folder, quiet():
            exported = _export(work, Path(folder))
            folded, quantized = (exported.with_stem(stem) for stem in ("folded", "quantized"))
            quant_pre_process(exported, folded, skip_symbolic_shape=True)  # shapes are known
            quantization.quantize_static(
                folded,
                quantized,
                _Samples(work.calibration()),
                quant_format=quantization.QuantFormat.QDQ,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                per_channel=True,
            )
            return _opened(quantized, work.example)


class _Samples:
    """What onnxruntime calls a CalibrationDataReader, which asks for nothing but this."""

    def __init__(self, batches: list[Tensor]) -> None:
        self._batches = iter(batches)

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self._batches, None)
        return None if batch is None else {_INPUT: batch.numpy()}


def _export(work: Work, folder: Path) -> Path:
    path = folder / "model.onnx"
    with quiet():
        torch.onnx.export(
            *(work.model, (work.example,), path),
            input_names=[_INPUT],
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return path


def _opened(path: Path, example: Tensor) -> Callable[[int], Call]:
    import onnxruntime

    contents, inputs = path.read_bytes(), {_INPUT: example.numpy()}

    def start(threads: int) -> Call:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.force_spinning_stop", "1")  # others have a turn
        session = onnxruntime.InferenceSession(contents, options, providers=["CPUExecutionProvider"])
        return lambda: torch.from_numpy(session.run(None, inputs)[0])

    return start
