"""Somebody's own Lightning modules, and the loop that they replace."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import softprune as sp
from oracles import batch, loss_of, network

EPOCH, EPOCHS = 6, 2
STEPS = EPOCH * EPOCHS


class Module(lightning.LightningModule):
    """Somebody's own, without a word about pruning."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.fail_at: int | None = None

    def training_step(self, item, index):
        if self.global_step == self.fail_at:
            raise RuntimeError("Out of memory.")
        return loss_of(self.network, index)  # resumed, Lightning counts on in the epoch but gives its first items again

    def configure_optimizers(self):
        return torch.optim.AdamW(self.network.parameters(), lr=0.03)


class Own(Module):
    """Builds its own pruner, with a trained threshold."""

    def configure_optimizers(self):
        params = sp.select(self.network)
        threshold = sp.STR(params, init=-2.0)
        optimizer = torch.optim.AdamW([*self.network.parameters(), *threshold.parameters()], lr=0.03)
        self.pruner = sp.Pruner(params, optimizer, threshold=threshold)
        return optimizer


class Late(Module):
    """Builds its own pruner after the callback's ``on_fit_start``."""

    def on_fit_start(self):
        self.pruner = sp.Pruner(sp.select(self.network), self.optimizers(), threshold=sp.SLATS(0.2, STEPS))


class Two(Module):
    automatic_optimization = False

    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (self.network[0], self.network[2])]


class Endless(IterableDataset):
    def __iter__(self):
        return map(batch, range(10**6))


def slats(params, steps):
    return sp.SLATS(0.2, steps)


def trainer(tmp_path, *callbacks, **options):
    options = {"max_epochs": EPOCHS, "logger": False, "enable_checkpointing": False, **options}
    return lightning.Trainer(
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=list(callbacks),
        **options,
    )


def batches():
    return DataLoader([batch(step) for step in range(EPOCH)], batch_size=None)


def fitted(tmp_path, callback, module=None, checkpoint=None, **options):
    module = module or Module()
    trainer(tmp_path, callback, **options).fit(module, batches(), ckpt_path=checkpoint)
    return module


def plain(accumulate: int = 1, method: str = "slats") -> tuple[sp.Pruner, nn.Module]:
    """The loop that a user would write."""
    model = network()
    params = sp.select(model)
    threshold = sp.STR(params, init=-2.0) if method == "str" else sp.SLATS(0.2, STEPS // accumulate)
    trained = threshold.parameters() if isinstance(threshold, sp.STR) else ()
    optimizer = torch.optim.AdamW([*model.parameters(), *trained], lr=0.03)
    pruner = sp.Pruner(params, optimizer, threshold=threshold)
    for step in range(STEPS):
        (loss_of(model, step % EPOCH) / accumulate).backward()
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    return pruner, model
