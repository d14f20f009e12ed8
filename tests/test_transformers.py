"""PruningCallback of the Hugging Face Trainer: the plain loop's numbers, a report, resumed runs."""

import os
import shutil

import pytest
import torch
import transformers
from torch import nn

import softprune as sp
from oracles import assert_same, loss_of
from softprune.errors import ArgumentTypeError
from softprune.transformers import PruningCallback
from trainer_runs import HALF, NO_DROPOUT, STEPS, ForTrainer, gpt2, one_of_two, trained, trainer

pytestmark = pytest.mark.filterwarnings("ignore")  # the Trainer's advice


def slats(params, steps):
    return sp.SLATS(0.2, steps)


def plain(accumulate: int, clip: float) -> nn.Module:
    """The loop that a user would write, with the Trainer's AdamW and learning rates."""
    model = ForTrainer()
    params = sp.select(model)
    steps = STEPS // accumulate
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.03, weight_decay=0.0, fused=True)
    scheduler = transformers.get_scheduler("cosine", optimizer, num_warmup_steps=2, num_training_steps=steps)
    sp.Pruner(params, optimizer, threshold=sp.SLATS(0.2, steps))
    for step in range(STEPS):
        (loss_of(model.body, step) / accumulate).backward()
        if (step + 1) % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    return model


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("given", ["build", "threshold"])
def test_it_gives_the_plain_run(tmp_path, given, accumulate):
    steps = STEPS // accumulate
    callback = PruningCallback(build=slats) if given == "build" else PruningCallback(sp.SLATS(0.2, steps))
    options = {"gradient_accumulation_steps": accumulate, "max_grad_norm": 0.1, "optim": "adamw_torch_fused"}
    model = trained(tmp_path, callback, model=ForTrainer(), max_steps=steps, **options)
    assert callback.pruner.step == steps
    assert_same(model, plain(accumulate, clip=0.1))
    assert callback.report.zeros > 0


def test_a_target_is_enough(tmp_path, capsys):
    """The model is plain and exactly sparse then, also as it is saved; embeddings and the head are left alone."""
    callback = PruningCallback(target=0.8)
    run = trainer(tmp_path, callback, model=gpt2(tie_word_embeddings=False))
    run.train()
    assert callback.report.sparsity == pytest.approx(0.8, abs=1e-3)
    assert callback.report.left_alone.keys() == {"embeddings", "the head", "biases", "norms"}
    assert str(callback.report) in capsys.readouterr().out
    assert callback.pruner.theta == {}
    run.save_model(tmp_path / "final")
    saved = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "final")
    assert sp.summarize(saved).zeros == callback.report.zeros
    assert not any((p == 0).any() for p in (saved.lm_head.weight, saved.transformer.wte.weight))


@pytest.mark.parametrize("given", ["a grouping", "a function"])
def test_heads_that_die_resume_bit_for_bit(tmp_path, given):
    """Biases are pruned with their heads, though ``select`` leaves them out: a checkpoint has them too."""

    def heads(model: nn.Module) -> sp.Heads:
        return sp.Heads(model, {"input_ids": torch.zeros(1, 8, dtype=torch.int64)})

    def run(resume: bool = False) -> tuple[nn.Module, PruningCallback]:
        model = gpt2(**NO_DROPOUT, n_head=4)
        callback = PruningCallback(target=0.1, groups=heads(model) if given == "a grouping" else heads, verbose=False)
        return trained(tmp_path, callback, resume=resume, model=model), callback

    whole, callback = run()
    assert "transformer.h.0.attn.c_attn.bias" in callback.pruner.params
    assert (callback.report.groups, callback.report.dead) == (8, 2)
    shutil.rmtree(tmp_path / f"checkpoint-{STEPS}")
    assert_same(run(resume=True)[0], whole)


def test_groups_must_be_groups(tmp_path):
    with pytest.raises(ArgumentTypeError, match="must be a grouping, such as"):
        trained(tmp_path, PruningCallback(target=0.5, groups=lambda model: 4))


def test_the_report_may_stay_unprinted(tmp_path, capsys):
    trained(tmp_path, PruningCallback(target=0.5, verbose=False), logging_strategy="no")
    assert "pruned parameters" not in capsys.readouterr().out


def test_patterns_choose_what_is_pruned(tmp_path):
    callback = PruningCallback(sp.Constant(0.01), include=["*.mlp.*"], exclude=["*.1.*"])
    trained(tmp_path, callback)
    assert list(callback.pruner.params) == ["transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_proj.weight"]


def test_prox_and_gradient_reach_the_pruner(tmp_path):
    callback = PruningCallback(sp.Constant(0.01), prox=sp.SoftThreshold(), gradient=sp.subgradient)
    trained(tmp_path, callback)
    assert (callback.pruner.prox, callback.pruner.gradient) == (sp.SoftThreshold(), sp.subgradient)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_reaches_the_target(tmp_path, precision):
    callback = PruningCallback(target=0.8)
    trained(tmp_path, callback, **{precision: True})
    assert callback.report.sparsity == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("optim", ["adamw_torch", "sgd", "adafactor"])
def test_a_resumed_run_ends_with_the_same_weights(tmp_path, optim):
    """Dropout and shuffled data included; plain SGD keeps no state besides the hidden weights."""
    whole, resumed = PruningCallback(target=0.8), PruningCallback(target=0.8)
    model = trained(tmp_path, whole, optim=optim)
    shutil.rmtree(tmp_path / f"checkpoint-{STEPS}")
    again = trained(tmp_path, resumed, optim=optim, resume=True)
    assert_same(again, model)
    assert resumed.report == whole.report
    assert whole.report.sparsity == pytest.approx(0.8, abs=1e-3)


class Fails(transformers.TrainerCallback):
    at = HALF + 2

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.at:
            self.at = None
            raise KeyboardInterrupt


def test_a_run_that_failed_is_resumed_or_begun_anew_in_the_same_process(tmp_path):
    """As in a notebook: the Trainer keeps model and optimizer, and the pruner is still on them."""
    whole = trained(tmp_path / "whole", PruningCallback(target=0.8))
    callback = PruningCallback(target=0.8)
    run = trainer(tmp_path, callback, Fails())
    with pytest.raises(KeyboardInterrupt):
        run.train()
    failed = callback.pruner
    run.train(resume_from_checkpoint=True)
    assert failed.theta == {}
    assert_same(run.model, whole)
    assert callback.report.step == STEPS

    run = trainer(tmp_path, callback, Fails())
    with pytest.raises(KeyboardInterrupt):
        run.train()
    run.train()
    assert callback.report.step == STEPS
    assert callback.report.sparsity == pytest.approx(0.8, abs=1e-3)


def test_training_twice_prunes_anew(tmp_path):
    callback = PruningCallback(target=0.5)
    run = trainer(tmp_path, callback)
    run.train()
    first = callback.pruner
    callback.target = 0.8
    run.train()
    assert callback.pruner is not first
    assert callback.report.step == STEPS
    assert callback.report.sparsity == pytest.approx(0.8, abs=1e-3)


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    """DDP, with half of each batch for each; the order of sums differs, and nothing else."""
    alone = PruningCallback(target=0.8)
    model = trained(tmp_path, alone, model=gpt2(**NO_DROPOUT))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.multiprocessing.spawn(one_of_two, args=(tmp_path,), nprocs=2)
    for rank in range(2):
        weights, report = torch.load(tmp_path / f"outcome-{rank}.pt", weights_only=True)
        torch.testing.assert_close(weights, model.state_dict(), rtol=1e-4, atol=1e-5)
        assert report["zeros"] == pytest.approx(alone.report.zeros, abs=5)
        assert report["step"] == STEPS
