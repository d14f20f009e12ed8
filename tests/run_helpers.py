"""What tests of runs share."""

from collections.abc import Callable, Sequence

from lightning.pytorch import Callback

from softprune.training.run import Outcome, Run


def train(run: Run, callbacks: Sequence[Callback] = ()) -> Outcome:
    return run.train(say=lambda _: None, callbacks=callbacks)


class At(Callback):
    """Does something when the run reaches a step."""

    def __init__(self, step: int, do: Callable[[], None]) -> None:
        self.step, self.do = step, do

    def on_train_batch_start(self, trainer, module, batch, index):
        if trainer.global_step == self.step:
            self.do()
