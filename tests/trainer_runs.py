"""Small runs of the Hugging Face Trainer: a GPT-2 that learns to count, made from a config."""

import os
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.utils.data import IterableDataset

from oracles import batch, network
from softprune.transformers import PruningCallback

STEPS, HALF = 12, 6
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


class Batches(IterableDataset):
    """In their order."""

    def __iter__(self):
        return ({"x": x, "y": y} for x, y in map(batch, range(STEPS)))


class ForTrainer(nn.Module):
    """Somebody's own network, with the signature that the Trainer wants."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def forward(self, x, y):
        return {"loss": nn.functional.mse_loss(self.body(x), y)}


def gpt2(**changes: Any) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**{**sizes, "bos_token_id": 0, "eos_token_id": 0, **changes})
    )


def counting(size: int = 100) -> list[dict[str, torch.Tensor]]:
    """Eight numbers in a row, from a random one on."""
    first = torch.randint(32, (size,), generator=torch.Generator().manual_seed(0))
    return [{"input_ids": (row := (torch.arange(8) + n) % 32), "labels": row} for n in first]


def trainer(
    out: Path,
    *callbacks: transformers.TrainerCallback,
    model: nn.Module | None = None,
    metrics: Any = None,
    **options: Any,
) -> transformers.Trainer:
    transformers.set_seed(0)
    own = isinstance(model, ForTrainer)
    data = Batches() if own else counting()
    arguments = {
        "max_steps": STEPS,
        "per_device_train_batch_size": 1 if own else 8,
        "learning_rate": 0.03 if own else 3e-3,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 2,
        "save_steps": HALF,
        "logging_steps": 4,
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": [],
    }
    return transformers.Trainer(
        model or gpt2(),
        transformers.TrainingArguments(out, **{**arguments, **options}),
        train_dataset=data,
        eval_dataset=None if own else data[:8],
        data_collator=(lambda items: items[0]) if own else None,
        compute_metrics=metrics,
        callbacks=list(callbacks),
    )


def trained(out: Path, callback: PruningCallback, resume: bool | str = False, **options: Any) -> nn.Module:
    run = trainer(out, callback, **options)
    run.train(resume_from_checkpoint=resume)
    return run.model


def one_of_two(rank: int, out: Path) -> None:
    """What a process does that ``torchrun`` has started."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29517"
    )
    callback = PruningCallback(target=0.8)
    model = trained(
        out / "two",
        callback,
        model=gpt2(**NO_DROPOUT),
        per_device_train_batch_size=4,
        ddp_backend="gloo",
    )
    torch.save((model.state_dict(), callback.report.to_dict()), out / f"outcome-{rank}.pt")
    torch.distributed.destroy_process_group()
