"""What tests of runs share."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from lightning.pytorch import Callback
from safetensors.torch import load_file

from softprune.training.run import Outcome, Run


def train(run: Run, callbacks: Sequence[Callback] = ()) -> Outcome:
    return run.train(say=lambda _: None, callbacks=callbacks)


def same_weights(a: Path, b: Path) -> bool:
    first, second = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class At(Callback):
    """Does something when the run reaches a step."""

    def __init__(self, step: int, do: Callable[[], None]) -> None:
        self.step, self.do = step, do

    def on_train_batch_start(self, trainer, module, batch, index):
        if trainer.global_step == self.step:
            self.do()
