"""Libraries that own the loop: Lightning, Accelerate and the Hugging Face Trainer say no word about pruning."""

import warnings

import pytest
import torch
from torch import nn

import softprune as sp
from oracles import STEPS, batch, loss_of, network

HALF = STEPS // 2


def plain(method: str, epoch: int = STEPS) -> sp.Pruner:
    """The loop that a user would write, over epochs of so many batches."""
    model = network()
    optimizer, pruner = build(model, method)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step % epoch).backward()
        optimizer.step()
    return pruner


def build(model: nn.Module, method: str) -> tuple[torch.optim.Optimizer, sp.Pruner]:
    params = sp.select(model)
    threshold = sp.STR(params, init=-2.0) if method == "str" else sp.SLATS(0.2, STEPS)
    trained = threshold.parameters() if isinstance(threshold, sp.STR) else ()
    optimizer = torch.optim.AdamW([*model.parameters(), *trained], lr=0.03)
    return optimizer, sp.Pruner(params, optimizer, threshold=threshold)


def assert_same(one: sp.Pruner, other: sp.Pruner) -> None:
    assert (one.step, one.threshold) == (other.step, other.threshold)
    for name, p in one.params.items():
        assert torch.equal(p, other.params[name])
        assert torch.equal(one.theta[name], other.theta[name])
        assert (p == 0).any()


def lightning_module(method: str, where: str):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = network()

        def training_step(self, item, index):
            x, y = item
            return nn.functional.mse_loss(self.model(x), y)

        def configure_optimizers(self):
            if where == "configure_optimizers":
                optimizer, self.pruner = build(self.model, method)
                return optimizer
            return torch.optim.AdamW(self.model.parameters(), lr=0.03)

        def on_fit_start(self):
            if where == "on_fit_start":
                self.pruner = sp.Pruner(sp.select(self.model), self.optimizers(), threshold=sp.SLATS(0.2, STEPS))

    return Module()


def fit(module, tmp_path, epochs: int = 2, checkpoint=None):
    lightning = pytest.importorskip("lightning")
    loader = torch.utils.data.DataLoader([batch(step) for step in range(HALF)], batch_size=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and logging
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
        )
        trainer.fit(module, loader, ckpt_path=checkpoint)
    return trainer


@pytest.mark.parametrize(
    ("method", "where"), [("slats", "configure_optimizers"), ("str", "configure_optimizers"), ("slats", "on_fit_start")]
)
def test_lightning_gives_the_plain_run(tmp_path, method, where):
    module = lightning_module(method, where)
    fit(module, tmp_path)
    assert_same(module.pruner, plain(method, epoch=HALF))


@pytest.mark.parametrize("where", ["configure_optimizers", "on_fit_start"])
def test_lightning_resumes_from_its_own_checkpoint(tmp_path, where):
    module = lightning_module("slats", where)
    fit(module, tmp_path, epochs=1).save_checkpoint(tmp_path / "half.ckpt")
    assert module.pruner.step == HALF
    resumed = lightning_module("slats", where)
    fit(resumed, tmp_path, checkpoint=tmp_path / "half.ckpt")
    assert_same(resumed.pruner, plain("slats", epoch=HALF))


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


def test_a_pruner_finds_the_optimizer_inside_a_wrapper():
    accelerate = pytest.importorskip("accelerate")
    model = network()
    optimizer = accelerate.Accelerator(cpu=True).prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.SLATS(0.2, STEPS))
    loss_of(model, 0).backward()
    optimizer.step()
    assert pruner.step == 1
    assert pruner.optimizer is optimizer.optimizer


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("kind", ["cosine", "one cycle"])
def test_accelerate_steps_its_scheduler_once_for_each_process(monkeypatch, kind, split):
    """Two of them, as far as the scheduler can tell."""
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = STEPS if split else 2 * STEPS
    scheduler = {
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        "one cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps - (not split)),
    }[kind]()
    accelerator = accelerate.Accelerator(cpu=True, step_scheduler_with_optimizer=True)
    accelerator.dataloader_config.split_batches = split
    optimizer, scheduler = accelerator.prepare(optimizer, scheduler)
    monkeypatch.setattr(AcceleratorState(), "num_processes", 2)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.LATS.from_final(0.3, scheduler, STEPS))
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        scheduler.step()
    assert pruner.threshold == pytest.approx(0.3)


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
