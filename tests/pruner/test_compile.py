"""torch.compile of the model, of the step, or of both: the numbers of the eager run."""

import shutil

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import softprune as sp
from oracles import STEPS, Run, assert_same, loss_of, stop

NEEDS_A_COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs a C++ compiler")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def train(run: Run, forward, step) -> None:
    for number in range(STEPS):
        run.optimizer.zero_grad()
        loss_of(forward, number).backward()
        step()


def assert_close(one: Run, other: Run, tolerance: float) -> None:
    for (name, a), (_, b) in zip(one.numbers(), other.numbers(), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kind", ["linear", "conv"])
@pytest.mark.parametrize("method", ["slats", "str"])
def test_a_compiled_model_trains_as_the_eager_one(kind, method):
    run, eager = Run.of("momentum", method, kind), Run.of("momentum", method, kind)
    train(run, torch.compile(run.model, backend="aot_eager"), run.optimizer.step)
    train(eager, eager.model, eager.optimizer.step)
    assert_close(run, eager, 1e-12)
    assert (run.model[-1].weight == 0).any()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=[pytest.mark.slow, NEEDS_A_COMPILER])])
def test_generated_code_reads_the_sparse_weights_and_is_not_generated_again(backend):
    run, eager = Run.of("momentum"), Run.of("momentum")
    compiled = torch.compile(run.model, backend=backend)
    loss_of(compiled, 0).backward()
    run.optimizer.zero_grad()
    with torch.compiler.set_stance("fail_on_recompile"):
        train(run, compiled, run.optimizer.step)
    train(eager, eager.model, eager.optimizer.step)
    assert_close(run, eager, 1e-12)


def test_a_pruner_takes_the_compiled_model():
    run = Run.of("sgd")
    stop(run.pruner)
    compiled = torch.compile(run.model, backend="aot_eager")
    pruner = sp.Pruner(sp.select(compiled), run.optimizer, threshold=sp.Constant(0.1))
    train(run, compiled, run.optimizer.step)
    assert list(pruner.params) == ["0.weight", "2.weight"]
    assert sp.summarize(compiled).zeros == sp.summarize(pruner).zeros > 0


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("method", ["lats", "str"])
def test_a_compiled_step_runs_the_hooks(method):
    run, eager = Run.of("momentum", method), Run.of("momentum", method)
    train(run, run.model, torch.compile(lambda: run.optimizer.step(), backend="aot_eager"))
    train(eager, eager.model, eager.optimizer.step)
    assert run.pruner.step == STEPS
    assert_close(run, eager, 1e-12)


def test_a_model_compiled_before_the_pruner_was_built_and_after_it_is_gone():
    run, eager = Run.of("sgd"), Run.of("sgd")
    forwards = torch.compile(run.model, backend="aot_eager"), eager.model
    for r, forward in zip((run, eager), forwards, strict=True):
        stop(r.pruner)
        loss_of(forward, 0)
        with sp.Pruner(sp.select(r.model), r.optimizer, threshold=sp.Constant(0.1)) as r.pruner:
            train(r, forward, r.optimizer.step)
        train(r, forward, r.optimizer.step)
    assert_same(run, eager)


def test_a_compiled_step_is_compiled_once():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Linear(1.0, 20))
    compiled = CompileCounter()
    step = torch.compile(optimizer.step, backend=compiled)
    for _ in range(20):
        model(torch.ones(2, 4)).sum().backward()
        step()
    assert pruner.threshold == {"weight": 1.0}
    assert compiled.frame_count <= 3
