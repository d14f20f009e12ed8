"""The engine as its users meet it: outputs near the model's, any batch, many threads, sentences for mistakes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

import softprune as sp
from engine_models import C2f, Gated, settled
from softprune.engine import build
from softprune.errors import ArgumentError, DataError


def classifier() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    sparse(model)
    return settled(model).eval()


@torch.no_grad()
def sparse(model: nn.Module, share: float = 0.8) -> None:
    for p in model.parameters():
        if p.dim() > 1:
            p *= torch.rand_like(p) > share


def images(count: int) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def relative(y: Tensor, want: Tensor) -> float:
    return float((y - want).norm() / want.norm())


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return classifier()


@pytest.fixture(scope="module", params=["int8", "int16", "fp32"])
def engine(request, model) -> sp.engine.Engine:
    return sp.engine.compile(model, images(1), images(64), request.param, threads=1)


TOLERANCE = {"int8": 0.05, "int16": 0.01, "fp32": 1e-5}


@pytest.mark.parametrize("batch", [1, 2, 16, 19])
def test_outputs_are_those_of_the_model(engine, model, batch):
    x = images(batch)
    assert engine.native
    assert relative(engine(x), model(x).detach()) < TOLERANCE[engine.precision]


def test_a_picture_comes_out_the_same_in_any_batch(engine):
    x = images(17)
    together = engine(x)
    for i in (0, 8, 16):
        assert torch.allclose(engine(x[i : i + 1])[0], together[i], rtol=1e-5, atol=1e-6)


def test_threads_share_the_work_and_change_nothing(engine, model):
    other = sp.engine.compile(model, images(1), images(64), engine.precision, threads=3)
    for batch in (1, 5):
        assert torch.allclose(other(images(batch)), engine(images(batch)), rtol=1e-5, atol=1e-6)


def test_many_threads_may_call_at_once(engine):
    want = [engine(images(n)) for n in range(1, 5)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: engine(images(n % 4 + 1)), range(40)))
    assert all(torch.equal(y, want[n % 4]) for n, y in enumerate(found))


def _in_child(engine: sp.engine.Engine, answers: multiprocessing.SimpleQueue) -> None:
    answers.put(engine(images(2)).tolist())


def test_a_fork_may_call_it(model):
    engine = sp.engine.compile(model, images(1), images(64), "int8", threads=2)
    want = engine(images(2))
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads
        child = fork.Process(target=_in_child, args=(engine, answers))
        child.start()
    assert torch.equal(torch.tensor(answers.get()), want)
    child.join()
    assert torch.equal(engine(images(2)), want)


def test_numpy_comes_in_and_goes_out(engine):
    x = images(3)
    y = engine(x.numpy())
    assert type(y).__module__ == "numpy"
    assert torch.equal(torch.from_numpy(y), engine(x))


def test_auto_takes_what_is_near_enough(model):
    exact = sp.engine.compile(model, images(1), images(64), tolerance=1e-4, threads=1)
    rough = sp.engine.compile(model, images(1), images(64), tolerance=0.5, threads=1)
    assert exact.precision == "fp32"
    assert rough.explain().seconds <= 2 * exact.explain().seconds
    assert sp.engine.compile(model, images(1)).precision == "fp32"


@pytest.mark.parametrize("kind", [C2f, Gated])
def test_what_no_kernel_has_runs_in_torch(kind):
    model = settled(kind()).eval()
    engine = sp.engine.compile(model, images(1), images(64), "int8", threads=1)
    assert relative(engine(images(4)), model(images(4)).detach()) < 0.1


@pytest.mark.parametrize(
    "kind", [nn.Upsample(scale_factor=2), nn.PixelShuffle(2), nn.PReLU()], ids=["up", "shuffle", "prelu"]
)
@pytest.mark.parametrize("sides", [1, (1, 0, 2, 1)])
def test_a_layer_pads_what_torch_made(kind, sides):
    inner = 4 if isinstance(kind, nn.PixelShuffle) else 16
    model = nn.Sequential(nn.Conv2d(3, 16, 3), kind, nn.ZeroPad2d(sides), nn.Conv2d(inner, 4, 3)).eval()
    engine = sp.engine.compile(model, images(1), images(64), "int8", threads=1)
    assert relative(engine(images(4)), model(images(4)).detach()) < 0.1


class Summarised(nn.Module):
    """Logits, some of them ruled out, and a number that all of a batch have together."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layers(x)
        return y.masked_fill(torch.tensor([True, False, False, True]), -torch.inf), y.mean()


@pytest.mark.parametrize("precision", ["auto", "int8", "int16", "fp32"])
def test_outputs_may_be_infinite_and_one_number(precision):
    model, x = Summarised().eval(), torch.randn(64, 16)
    engine = sp.engine.compile(model, x[:1], x, precision, threads=1)
    for y, want in zip(engine(x[:7]), model(x[:7]), strict=True):
        torch.testing.assert_close(y, want.detach(), rtol=0.1, atol=0.02)


class Pair(nn.Module):
    """Compares the first half of a batch with the second, whose size torch.export takes for fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        a, b = torch.relu(self.layer(x)).chunk(2, 0)
        return a * b


@pytest.mark.parametrize("compiler", [True, False])
def test_a_batch_that_the_network_fixes_is_the_only_one(compiler, monkeypatch):
    model, x = Pair().eval(), torch.randn(6, 8)
    if not compiler:
        without_compiler(monkeypatch)
    with nullcontext() if compiler else pytest.warns(UserWarning, match="need a C compiler"):
        engine = sp.engine.compile(model, x[:2], threads=1)
    torch.testing.assert_close(engine(x[:2]), model(x[:2]).detach())
    for count in (1, 4):
        with pytest.raises(ArgumentError, match=rf"for batches of 2 alone.* Got {count}\."):
            engine(x[:count])


class Loose(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.layer(inputs[0]) / inputs[0].shape[0]


@pytest.mark.parametrize("model", [Loose(), nn.DataParallel(Loose())], ids=["args", "DataParallel"])
def test_a_forward_with_any_arguments_takes_any_batch(model):
    engine, x = sp.engine.compile(model.eval(), torch.randn(2, 8), threads=1), torch.randn(5, 8)
    torch.testing.assert_close(engine(x), model(x).detach())


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layer(x, src_key_padding_mask=mask)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_mask_may_be_an_input(precision, tmp_path):
    model, x = Masked().eval(), torch.randn(64, 5, 16)
    mask = torch.arange(5) >= torch.randint(2, 6, (64, 1))
    engine = sp.engine.compile(model, (x[:1], mask[:1]), (x, mask), precision, threads=1)
    assert relative(engine(x[:7], mask[:7]), model(x[:7], mask[:7]).detach()) < 0.05
    engine.save(tmp_path / "engine")
    assert torch.equal(sp.engine.load(tmp_path / "engine", threads=1)(x, mask), engine(x, mask)) or precision == "fp32"


def test_no_precision_is_near_enough_but_fp32(model):
    assert sp.engine.compile(model, images(1), images(64), tolerance=0, threads=1).precision == "fp32"


def test_tokens():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0).eval()
    sparse(layer)
    x = torch.randn(40, 7, 32)
    engine = sp.engine.compile(layer, x[:1], x, "int8", threads=1)
    assert relative(engine(x[:3]), layer(x[:3]).detach()) < 0.05
    assert sum(len(part.names) for part in engine.explain().layers if part.where == "int8") >= 4


def test_the_model_is_left_as_it_was(model):
    model.train()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    sp.engine.compile(model, images(1), images(64), "int8", threads=1)
    assert model.training
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    model.eval()


def test_an_explanation_tells_every_layer(engine, model):
    told = engine.explain(images(2))
    names = [name for layer in told.layers for name in layer.names]
    assert {"0", "4", "9"} <= set(names)
    first = next(layer for layer in told.layers if "4" in layer.names)
    weight = model[4].weight
    if first.names == ("4",):
        assert first.zeros == pytest.approx(float((weight == 0).float().mean()))
    assert all(layer.seconds > 0 for layer in told.layers)
    assert f"{engine.precision} (" in str(told)


def test_errors_are_those_of_every_value(model):
    engine = sp.engine.compile(model, images(1), images(64), "int8", threads=1)
    errors = engine.error(images(8))
    assert errors.output == pytest.approx(relative(engine(images(8)), model(images(8)).detach()), rel=1e-3)
    assert all(0 <= error < 0.1 for error in errors.values.values())
    assert list(errors.values) == ["input", *(op.name for op in engine.graph.operations)]
    assert "9" in str(errors)


def test_errors_of_a_transformer_are_those_of_every_value_too():
    torch.manual_seed(0)
    model = settled(nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24), nn.Linear(24, 24))).eval()
    x = torch.randn(64, 5, 24)
    engine = sp.engine.compile(model, x[:1], x, "int8", threads=1)
    assert list(engine.error(x[:8]).values) == [*engine.graph.inputs, *(op.name for op in engine.graph.operations)]


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise build.CompilerError("The engine's kernels need a C compiler.")

    monkeypatch.setattr("softprune.engine.native.load", lambda name=None: none())


def test_without_a_compiler_torch_runs(model, monkeypatch):
    without_compiler(monkeypatch)
    with pytest.warns(UserWarning, match="need a C compiler"):
        engine = sp.engine.compile(model, images(1), images(64), "int8")
    assert not engine.native
    assert relative(engine(images(3)), model(images(3)).detach()) < 1e-5
    assert "torch" in str(engine.explain())


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (images(2)[:, :2], r"shape \(N, 3, 16, 16\)"),
        (images(2)[0], r"shape \(N, 3, 16, 16\)"),
        (images(2)[:0], "N >= 1"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(engine, x, match):
    with pytest.raises(ArgumentError, match=match):
        engine(x)


def test_numbers_that_are_none_do_not_harm(engine, model):
    x = images(3)
    x[1, 0, 3, 3] = torch.nan
    x[2] = torch.inf
    y = engine(x)
    assert torch.allclose(y[0], engine(x[:1])[0], rtol=1e-5, atol=1e-6)


def test_other_types_are_turned_into_floats(engine):
    x = (images(2) * 10).round()
    assert torch.allclose(engine(x.to(torch.int32)), engine(x), rtol=1e-6)
    assert torch.allclose(engine(x.double()), engine(x), rtol=1e-6)
    assert torch.allclose(engine(x.to(memory_format=torch.channels_last)), engine(x), rtol=1e-6)


def test_floats_of_any_kind_are_for_what_torch_runs_too():
    model, x = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 2, 3)).eval(), torch.randn(64, 3, 8)
    engine = sp.engine.compile(model, x[:1], x.double().numpy(), "int8", threads=1)
    assert torch.equal(engine(x.double()), engine(x))
    assert torch.equal(torch.from_numpy(engine(x.double().numpy())), engine(x))
    assert torch.equal(engine(x.long()), engine(x.long().float()))


@pytest.mark.parametrize("spread", [copy.deepcopy, pickle.dumps])
def test_who_copies_it_is_told_to_save_it(engine, spread):
    with pytest.raises(TypeError, match=r"Write `engine\.save\(path\)`"):
        spread(engine)


def test_bad_arguments_are_refused_in_sentences(model):
    with pytest.raises(ArgumentError, match=r"must be one of 'auto', 'int8'.* Got 'int9'\. Did you mean 'int"):
        sp.engine.compile(model, images(1), precision="int9")
    with pytest.raises(ArgumentError, match="needs to see the values"):
        sp.engine.compile(model, images(1), precision="int8")
    with pytest.raises(ArgumentError, match="threads"):
        sp.engine.compile(model, images(1), threads=0)
    with pytest.raises(ArgumentError, match="tolerance"):
        sp.engine.compile(model, images(1), tolerance=-1)
    with pytest.raises(DataError, match="calibration data has"):
        sp.engine.compile(model, images(1), torch.zeros(4, 3, 8, 8), "int8")
    with pytest.raises(ArgumentError, match=r"`0\.weight` is in float64: write `\.float\(\)`"):
        sp.engine.compile(classifier().double(), images(1))
    with pytest.raises(ArgumentError, match="`input 0` is in float64"):
        sp.engine.compile(model, images(1).double())
    with pytest.raises(ArgumentError, match="at least one sample"):
        sp.engine.compile(model, images(1)[:0])
