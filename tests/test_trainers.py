"""Accelerate and the Hugging Face Trainer own the loop, and say no word about pruning."""

import warnings

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import STEPS, assert_same, batch, loss_of, network
from small_gpt import GPT, text_loss

HALF = STEPS // 2


def plain(method: str) -> sp.Pruner:
    """The loop that a user would write."""
    model = network()
    optimizer, pruner = build(model, method)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return pruner


def build(model: nn.Module, method: str) -> tuple[torch.optim.Optimizer, sp.Pruner]:
    params = sp.select(model)
    threshold = sp.STR(params, init=-2.0) if method == "str" else sp.SLATS(0.2, STEPS)
    trained = threshold.parameters() if isinstance(threshold, sp.STR) else ()
    optimizer = torch.optim.AdamW([*model.parameters(), *trained], lr=0.03)
    return optimizer, sp.Pruner(params, optimizer, threshold=threshold)


@pytest.mark.parametrize("method", ["slats", "str"])
def test_accelerate_saves_and_resumes(tmp_path, method):
    accelerate = pytest.importorskip("accelerate")

    def prepared():
        model = network()
        optimizer, pruner = build(model, method)
        accelerator = accelerate.Accelerator(cpu=True)
        return accelerator, pruner, *accelerator.prepare(model, optimizer)

    def train(accelerator, model, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, step))
            optimizer.step()

    accelerator, pruner, model, optimizer = prepared()
    train(accelerator, model, optimizer, range(HALF))
    accelerator.save_state(tmp_path)
    accelerator, pruner, model, optimizer = prepared()
    accelerator.load_state(tmp_path)
    assert pruner.step == HALF
    train(accelerator, model, optimizer, range(HALF, STEPS))
    assert_same(pruner, plain(method))
    assert pruner.sparsity() > 0


def test_accelerate_trains_a_gpt_with_accumulation_clipping_and_a_scheduler(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    steps, micro = 20, 2

    def run(resume: bool) -> sp.Pruner:
        model = GPT(tied=False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=micro)
        model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
        threshold = sp.TargetSparsity(0.3, steps, lr_scheduler=schedule)
        pruner = sp.Pruner(sp.select(model), optimizer, threshold=threshold)
        if resume:
            accelerator.load_state(tmp_path)
        for step in range(pruner.step * micro, steps * micro):
            with accelerator.accumulate(model):
                accelerator.backward(text_loss(model, step))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            if step + 1 == steps * micro // 2 and not resume:
                accelerator.save_state(tmp_path)
        return pruner

    whole, resumed = run(resume=False), run(resume=True)
    assert whole.step == steps
    assert whole.sparsity() == pytest.approx(0.3, abs=1e-3)
    assert "head.weight" not in whole.params
    assert_same(resumed, whole)


class ForTrainer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = network()

    def forward(self, x, y):
        return {"loss": nn.functional.mse_loss(self.body(x), y)}


def test_the_hugging_face_trainer_saves_and_resumes(tmp_path):
    transformers = pytest.importorskip("transformers")
    data = [{"x": x, "y": y} for x, y in map(batch, range(STEPS))]

    def trainer(steps: int):
        model = ForTrainer()
        optimizer, pruner = build(model.body, "slats")
        arguments = transformers.TrainingArguments(
            output_dir=tmp_path,
            max_steps=steps,
            per_device_train_batch_size=1,
            save_steps=HALF,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            logging_strategy="no",
            train_sampling_strategy="sequential",
            max_grad_norm=0.0,
            data_seed=0,
        )
        constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        return (
            transformers.Trainer(
                model,
                arguments,
                train_dataset=data,
                data_collator=lambda items: items[0],
                optimizers=(optimizer, constant),
            ),
            pruner,
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the Trainer's advice
        whole, reference = trainer(STEPS)
        whole.train()
        resumed, pruner = trainer(STEPS)
        resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{HALF}"))
    assert pruner.step == STEPS
    assert_same(pruner, reference)
    assert_same(pruner, plain("slats"))
    assert pruner.sparsity() > 0
