"""OpenVINO: fp32, and int8 by nncf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from softprune.bench.runtimes import Call, Runtime, Work, quiet


@dataclass(frozen=True)
class OpenVinoFloat(Runtime):
    """Converted from the module; bf16, which is its default where the CPU has it, is turned off."""

    name: str = "OpenVINO fp32"
    packages: ClassVar = ("openvino",)

    def convert(self, work: Work) -> Callable[[int], Call]:
        return _opened(_converted(work), work.example, {"INFERENCE_PRECISION_HINT": "f32"})


@dataclass(frozen=True)
class OpenVinoInt8(Runtime):
    """Quantized after training, with ranges from the samples; layers that nncf leaves alone keep the CPU's default."""

    name: str = "OpenVINO int8"
    packages: ClassVar = ("openvino", "nncf")

    def convert(self, work: Work) -> Callable[[int], Call]:
        import nncf

        batches = [batch.numpy() for batch in work.calibration()]
        converted = _converted(work)
        with quiet():
            quantized = nncf.quantize(converted, nncf.Dataset(batches), subset_size=len(batches))
        return _opened(quantized, work.example, {})


def _converted(work: Work) -> Any:
    import openvino

    with quiet():
        return openvino.convert_model(work.model, example_input=work.example, input=list(work.example.shape))


def _opened(model: Any, example: Tensor, options: dict[str, str]) -> Callable[[int], Call]:
    """Threads stay where ``on_threads`` put them. If OpenVINO pins one of its own there, the call waits for it, and a
    small network takes several times as long on a busy core."""
    import openvino

    def start(threads: int) -> Call:
        own = {"INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False, "PERFORMANCE_HINT": "LATENCY"}
        request = openvino.Core().compile_model(model, "CPU", own | options).create_infer_request()
        request.set_input_tensor(openvino.Tensor(example.numpy(), shared_memory=True))

        def call() -> Tensor:
            request.infer()
            return torch.from_numpy(request.get_output_tensor(0).data)

        return call

    return start
