"""Any module that torch can export becomes a graph, with operations where there are some."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from engine_models import C2f, Gated, Strange, TwoHeads, apart, kinds, outputs, settled, tokens
from softprune import models
from softprune.engine.export import graph
from softprune.engine.graph import Activation, Apply, Convolution, Graph, Linear, Opaque, Pool
from softprune.engine.run_torch import run
from softprune.errors import ArgumentError, ArgumentTypeError

# The network, the shape of its input, and the operations that torch must not be left with.
ZOO: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, int]]] = {
    "resnet50": (models.resnet50, (1, 3, 32, 32), {"Convolution": 53, "Linear": 1, "Pool": 1, "Opaque": 0, "Add": 16}),
    "mobilenet": (models.mobilenet_v1, (1, 3, 32, 32), {"Convolution": 27, "Linear": 1, "Opaque": 0}),
    "resnet18_cifar": (models.resnet18_cifar, (2, 3, 16, 16), {"Convolution": 20, "Opaque": 0}),
    "resnet20": (models.resnet20, (1, 3, 8, 8), {"Convolution": 19, "Opaque": 2}),
    "digits": (models.digits_resnet, (1, 1, 8, 8), {"Convolution": 9, "Opaque": 0}),
    "mlp": (models.mlp, (3, 1, 16, 16), {"Linear": 3, "Pool": 1, "Flatten": 1, "Opaque": 0}),
    "vit": (models.vit_digits, (1, 1, 8, 8), {"Linear": 17, "Norm": 9, "Opaque": 4 + 2, "Convolution": 1}),
    "encoder": (tokens, (1, 5, 16), {"Linear": 8}),
    "c2f": (C2f, (1, 3, 8, 8), {"Convolution": 4, "Add": 2, "Concat": 1}),
    "gated": (Gated, (1, 3, 9, 9), {"Convolution": 3, "Multiply": 1, "GlobalMean": 2, "Flatten": 1, "Opaque": 0}),
    "strange": (Strange, (1, 2, 6, 5), {"Convolution": 1, "Affine": 2}),
}


SLOW = ("resnet50", "mobilenet", "resnet18_cifar", "resnet20", "encoder")  # test_fold.py has some of them too


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in ZOO])
def test_zoo(name: str) -> None:
    make, shape, expected = ZOO[name]
    model = settled(make()).double()
    exported = graph(model, torch.randn(shape, dtype=torch.float64))
    for batch in (1, 3):
        x = torch.randn(batch, *shape[1:], dtype=torch.float64)
        assert apart(exported, model, x) < 1e-10
    found = kinds(exported)
    assert {kind: found.count(kind) for kind in expected} == expected
    assert exported.batch is None


def test_text() -> None:
    model = models.GPT(20, 16, layers=2, width=16, heads=2).double()
    exported = graph(model, torch.randint(0, 20, (1, 7)))
    assert apart(exported, model, torch.randint(0, 20, (4, 7))) < 1e-10
    assert kinds(exported).count("Linear") == 2 * 4 + 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Bert", "Llama"])
def test_hugging_face(kind: str) -> None:
    import transformers

    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = getattr(transformers, f"{kind}Config")(**sizes, intermediate_size=32, use_cache=False)
    model = getattr(transformers, f"{kind}Model")(config)
    ids, mask = torch.randint(0, 30, (1, 6)), torch.ones(1, 6, dtype=torch.long)
    exported = graph(model, {"input_ids": ids, "attention_mask": mask})
    ids, mask = torch.randint(0, 30, (3, 6)), torch.tensor([[1] * 6, [1] * 6, [1] * 4 + [0] * 2])
    with torch.no_grad():
        want = model.eval()(input_ids=ids, attention_mask=mask).last_hidden_state
    assert torch.allclose(run(exported, ids, mask)[0], want, atol=1e-5)
    assert kinds(exported).count("Linear") == (13 if kind == "Bert" else 14)


def test_two_inputs_two_outputs_and_one_layer_twice() -> None:
    model = TwoHeads()
    exported = graph(model, (torch.randn(1, 6), torch.randn(1, 6)))
    assert len(exported.inputs) == len(exported.outputs) == 2
    assert apart(exported, model, torch.randn(5, 6), torch.randn(5, 6)) < 1e-5
    first, second = (o for o in exported.operations if isinstance(o, Linear) and o.weight.shape == (6, 6))
    assert first.weight is second.weight
    assert [first.name, second.name] == ["shared", "shared_2"]


class Numbers(nn.Module):
    """Constants are outputs too, as is an input, and one value twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.layer(x)
        return y, x, y, self.layer.weight.exp(), torch.ones(2)


def test_outputs_that_are_no_results() -> None:
    model = Numbers()
    got, want = run(graph(model, torch.randn(1, 3)), x := torch.randn(4, 3)), outputs(model, x)
    assert len(got) == 5
    for a, b in zip(got, want, strict=True):
        assert torch.allclose(a, b)


def one(module: nn.Module, shape: tuple[int, ...] = (1, 4, 11, 9)) -> Graph:
    """Its graph, which computes the same at another batch."""
    module = settled(module).double()
    exported = graph(module, torch.randn(shape, dtype=torch.float64))
    assert apart(exported, module, torch.randn(3, *shape[1:], dtype=torch.float64)) < 1e-10
    return exported


class Each(nn.Module):
    """All of them on the same input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer(x) for layer in self.layers)


def makers(graph: Graph) -> list[str]:
    """The kinds of the operations that make the outputs."""
    kind = {operation.name: type(operation).__name__ for operation in graph.operations}
    return [kind[name] for name in graph.outputs]


def test_convolutions() -> None:
    layers = Each(
        nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        nn.Conv2d(4, 4, 3, groups=4, padding="same"),
        nn.Conv2d(4, 4, (2, 4), padding="same", bias=False),
        nn.Conv2d(4, 4, 3, padding="valid"),
        nn.Sequential(nn.ZeroPad2d((1, 2, 0, 3)), nn.Conv2d(4, 2, 3, padding=1)),
    )
    assert kinds(one(layers)) == ["Convolution"] * 5


def test_pools() -> None:
    layers = Each(
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d((3, 2), (2, 3), ceil_mode=True),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.AvgPool2d(3, 2, 1),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.AdaptiveMaxPool2d(1),
        nn.Sequential(nn.ConstantPad2d(1, float("-inf")), nn.MaxPool2d(3, 2)),
    )
    assert kinds(one(layers)) == ["Pool"] * 7


def test_torch_runs_the_rest() -> None:
    layers = Each(
        nn.ConvTranspose2d(4, 2, 3),
        nn.MaxPool2d(2, dilation=2),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.AdaptiveAvgPool2d(4),
        nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 3, 3), nn.BatchNorm1d(3)),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4, affine=True),
        nn.Sequential(nn.ELU(), nn.Hardtanh(-1, 1)),
    )
    assert kinds(one(layers)) == ["Opaque"] * 8


def test_paddings_that_are_not_part_of_what_follows() -> None:
    layers = Each(
        nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(3)),
        nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular"),
        nn.Sequential(nn.ConstantPad2d(1, 2.0), nn.Conv2d(4, 2, 3)),
        nn.Sequential(nn.ZeroPad2d(-1), nn.Conv2d(4, 2, 3)),
    )
    padded = one(layers)
    assert sorted(kinds(padded)) == ["Convolution"] * 3 + ["Opaque"] * 4 + ["Pool"]
    assert makers(padded) == ["Pool", "Convolution", "Convolution", "Convolution"]


ACTIVATIONS = {
    nn.ReLU(inplace=True): Activation.RELU,
    nn.ReLU6(): Activation.RELU6,
    nn.Hardtanh(0, 6): Activation.RELU6,
    nn.GELU(): Activation.GELU,
    nn.GELU("tanh"): Activation.GELU_TANH,
    nn.SiLU(): Activation.SILU,
    nn.Hardswish(): Activation.HARDSWISH,
    nn.Hardsigmoid(): Activation.HARDSIGMOID,
    nn.Sigmoid(): Activation.SIGMOID,
    nn.Tanh(): Activation.TANH,
}


def test_activations_after_a_layer() -> None:
    found = one(Each(*(nn.Sequential(nn.Conv2d(4, 4, 1), activation) for activation in ACTIVATIONS)))
    assert [o.activation for o in found.operations if isinstance(o, Apply)] == list(ACTIVATIONS.values())
    assert kinds(one(nn.Sequential(nn.Conv2d(4, 4, 1), nn.Softmax(1)))) == ["Convolution", "Softmax"]


@pytest.mark.parametrize(
    ("make", "shape"), [(models.digits_resnet, (1, 1, 8, 8)), pytest.param(tokens, (1, 5, 16), marks=pytest.mark.slow)]
)
def test_the_core_operations_of_aten_do_as_well(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    """Other versions of torch take a module apart into smaller calls."""
    whole = kinds(one(make(), shape))
    decompose = ExportedProgram.run_decompositions
    monkeypatch.setattr(ExportedProgram, "run_decompositions", lambda program, table: decompose(program))
    parts = kinds(one(make(), shape))
    for kind in ("Convolution", "Linear", "Pool", "GlobalMean"):
        assert parts.count(kind) == whole.count(kind)


def test_the_first_dimension_of_every_layer_is_a_multiple_of_the_batch() -> None:
    """torch's attention has tokens first; the kernels count on the batch."""
    model = tokens()
    exported = graph(model, torch.randn(2, 5, 16))
    batches: dict[str, int] = {}
    run(exported, torch.randn(6, 5, 16), see=lambda name, x: batches.update({name: len(x)}))
    layers = [o for o in exported.operations if isinstance(o, Linear)]
    assert len(layers) == 8
    for name in (name for layer in layers for name in (layer.name, *layer.inputs)):
        assert batches[name] == 3 * exported.shapes[name][0]


def test_what_torch_runs_is_merged() -> None:
    encoder = graph(tokens(), torch.randn(1, 5, 16))
    assert kinds(encoder).count("Opaque") <= 2 * 4 + 1
    programs = [o for o in encoder.operations if isinstance(o, Opaque)]
    assert any("scaled_dot_product_attention" in program.what for program in programs)


def test_dropout_and_copies_are_nothing() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Linear(3, 3), nn.Dropout(), nn.Identity(), nn.Linear(3, 2))
    assert [o.name for o in graph(model, torch.randn(1, 3)).operations] == ["1", "4"]


def test_masked_weights_are_constants() -> None:
    from torch.nn.utils import prune

    model = nn.Sequential(nn.Linear(8, 8))
    prune.l1_unstructured(model[0], "weight", 0.5)
    (layer,) = graph(model, torch.randn(1, 8)).operations
    assert isinstance(layer, Linear)
    assert int((layer.weight == 0).sum()) == 32


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(), nn.Flatten(), nn.Linear(2, 2))
    model[1].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    exported = graph(model, torch.randn(1, 1, 3, 3))
    assert [module.training for module in model] == [True, False, True, True, True]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    (layer,) = (o for o in exported.operations if isinstance(o, Linear))
    with torch.no_grad():
        model[4].weight.zero_()
    assert layer.weight.any()


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(2, 6) + 1


def test_a_module_that_fixes_the_batch() -> None:
    exported = graph(Fixed(), torch.randn(2, 6))
    assert exported.batch == 2
    assert run(exported, torch.zeros(2, 6))[0].tolist() == [[1.0] * 6] * 2


class Undecided(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = nn.Buffer(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x + self.count


@pytest.mark.parametrize(
    ("model", "example", "words"),
    [
        (Undecided(), torch.ones(1, 2), "Cannot compile `Undecided`. This is because torch.export cannot record it"),
        (Counting(), torch.ones(1, 2), "it writes to its buffer `count` in every call"),
        (nn.Linear(2, 2).half(), torch.ones(1, 2), "`weight` is torch.float16: write `.float()` first"),
        (nn.Linear(2, 2, device="meta"), torch.ones(1, 2), "`weight` is on meta: write `.cpu()` first"),
        (nn.Linear(2, 2), torch.ones(1, 2).bfloat16(), "`input 0` is torch.bfloat16"),
        (nn.Linear(2, 2), torch.eye(2).to_sparse(), "`input 0` is torch.sparse_coo"),
    ],
)
def test_refusals(model: nn.Module, example: Tensor, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        graph(model, example)
    assert words in str(caught.value)


def test_no_tensors() -> None:
    with pytest.raises(ArgumentTypeError, match="takes one tensor"):
        graph(nn.Linear(2, 2), 3)  # type: ignore[arg-type]


def test_shapes_are_those_of_the_example() -> None:
    exported = graph(nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)), torch.zeros(1, 3, 8, 6))
    assert exported.shapes == {"input": (1, 3, 8, 6), "0": (1, 4, 6, 4), "1": (1, 4, 3, 2)}
    convolution, pool = exported.operations
    assert isinstance(convolution, Convolution)
    assert isinstance(pool, Pool)
    assert pool.inputs == ("0",)
