"""Runtimes compute what torch computes; those that need a package say which."""

import logging
import sys
import warnings

import pytest
import torch
from torch import nn

from softprune import engine
from softprune.bench.comparison import RIVALS, distance
from softprune.bench.runtimes import Engine, TorchCompiled, TorchEager, Work, quiet
from softprune.errors import ArgumentError


def convolutions() -> nn.Module:
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2), nn.ReLU()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 3 * 3, 4)).eval()


def attention() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)).eval()


WORKS = {
    "images": lambda: Work.of(convolutions(), torch.randn(24, 3, 8, 8), 2),
    "tokens": lambda: Work.of(attention(), torch.randn(24, 5, 16), 2),
}


@pytest.mark.parametrize("make", WORKS.values(), ids=WORKS)
def test_torch_eager_computes_the_same_and_leaves_the_model_as_it_is(make):
    work = make()
    before = {name: (p.clone(), p.stride()) for name, p in work.model.named_parameters()}
    y = TorchEager().convert(work)(1)()
    torch.testing.assert_close(y, work.model(work.example).detach(), atol=1e-5, rtol=1e-5)
    assert not y.requires_grad
    for name, p in work.model.named_parameters():
        assert torch.equal(p, before[name][0])
        assert p.stride() == before[name][1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("runtime", RIVALS, ids=lambda runtime: runtime.name)
@pytest.mark.parametrize("make", WORKS.values(), ids=WORKS)
def test_rivals_compute_the_same(runtime, make):
    assert runtime.missing() is None, runtime.missing()
    work = make()
    y = work.model(work.example)
    start = runtime.convert(work)
    for threads in (1, 2):
        call = start(threads)
        assert distance(call(), y) < (0.1 if "int8" in runtime.name else 1e-5)
        assert torch.equal(call(), call().clone())
    if "int8" in runtime.name:
        assert distance(call(), y) > 1e-4  # it is quantized


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("runtime", RIVALS[1:], ids=lambda runtime: runtime.name)
def test_a_call_takes_what_the_example_holds_then(runtime):
    work = WORKS["images"]()
    call = runtime.convert(work)(1)
    call()
    work.example.copy_(torch.randn(work.example.shape))
    assert distance(call(), work.model(work.example)) < (0.1 if "int8" in runtime.name else 1e-5)


def test_every_rival_has_a_name_of_its_own():
    runtimes = (TorchEager(), *RIVALS, Engine("int8"), Engine("fp32"))
    assert len({runtime.name for runtime in runtimes}) == len(runtimes)


def test_a_runtime_says_what_is_not_installed():
    class Nowhere(TorchCompiled):
        packages = ("torch", "no_such_package", "nor_this_one")

    assert TorchCompiled().missing() is None
    assert Nowhere().missing() == "no_such_package and nor_this_one not installed: `pip install 'softprune[bench]'`"


def test_the_engine_is_told_what_to_compile(monkeypatch):
    asked = {}

    def compiled(model, example, **options):
        asked.update(options, example=example)
        return model

    monkeypatch.setattr(engine, "compile", compiled, raising=False)
    work = WORKS["images"]()
    assert Engine("int16").missing() is None
    y = Engine("int16").convert(work)(2)()
    assert asked["precision"] == "int16"
    assert asked["threads"] == 2
    assert asked["example"] is work.example
    assert [len(batch) for batch in asked["calibration"]] == [2] * 11
    torch.testing.assert_close(y, work.model(work.example))


def test_the_timed_batch_is_not_among_the_samples_if_there_are_enough():
    samples = torch.arange(10.0)[:, None]
    work = Work.of(nn.Identity(), samples, 4)
    assert work.example.flatten().tolist() == [0, 1, 2, 3]
    assert [batch.flatten().tolist() for batch in work.calibration()] == [[4, 5, 6, 7], [8, 9, 4, 5]]
    few = Work.of(nn.Identity(), samples[:3], 4)
    assert few.example.flatten().tolist() == [0, 1, 2, 0]
    assert [batch.flatten().tolist() for batch in few.calibration()] == [[0, 1, 2, 0]]


@pytest.mark.parametrize("samples", [torch.zeros(4, 3, 9, 9), torch.zeros(0, 3, 8, 8)])
def test_samples_must_be_like_the_example(samples):
    with pytest.raises(ArgumentError, match=r"`Work\(samples=...\)` must be like the example, 2 × 3 × 8 × 8. Got"):
        Work(convolutions(), torch.zeros(2, 3, 8, 8), samples)


def test_converters_are_silent_and_the_rest_is_not(capsys, caplog):
    def convert() -> None:
        print("chatter")
        print("chatter", file=sys.stderr)
        logging.getLogger("converter").warning("chatter")
        warnings.warn("chatter", stacklevel=1)
        raise KeyError

    with pytest.raises(KeyError), quiet():
        convert()
    logging.getLogger("converter").warning("words")
    print("words")
    assert capsys.readouterr().out == "words\n"
    assert caplog.messages == ["words"]
