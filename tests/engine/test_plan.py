"""Whole networks: any batch, threads, calls at once, forks, what torch runs between."""

from __future__ import annotations

import multiprocessing
import threading
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine_networks import Builder, bottleneck_net, quantize, run_floats, scale_for, with_batch
from softprune.engine import graph, integers, run_integers
from softprune.engine.compiled import Compiled
from softprune.engine.graph import Activation
from softprune.engine.lower import Torch
from softprune.engine.plan import Plan
from softprune.engine.quantized import Quantized, whole_layer
from softprune.errors import ArgumentError


def residual_net(size: int = 48, batch: int = 1) -> Quantized:
    torch.manual_seed(0)
    net = bottleneck_net(batch, size, 0.7, depths=(2, 1, 1, 1), width=8)
    return quantize(net, torch.randn(batch, 3, size, size))


def floats(op: graph.Operation, *inputs: Tensor) -> Tensor:
    return run_floats(op, list(inputs))


def wanted(net: Quantized, x: Tensor) -> list[Tensor]:
    shaped = replace(net, graph=with_batch(net.graph, len(x)))
    values = run_integers.run(shaped, x, fallback=floats)
    return [integers.dequantize(values[n], net.scales[n]) if n in net.scales else values[n] for n in net.graph.outputs]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_residual_network_for_any_batch(threads: int) -> None:
    net = residual_net()
    plan = Plan(net, floats, threads)
    for batch in (1, 2, 5, 16, 17, 1):
        x = torch.randn(batch, 3, 48, 48)
        assert torch.equal(plan(x)[0], wanted(net, x)[0]), batch


def test_batches_share_vectors_where_pictures_are_small() -> None:
    plan = Plan(residual_net(), floats)
    (section,) = plan.prepare(16)
    assert isinstance(section, Compiled)
    assert sorted({draft.loop.images for draft in section.drafts}) == [1, 4, 16]
    assert len(section.regions) == 3


def test_a_gate_is_read_by_steps_for_fewer_images() -> None:
    torch.manual_seed(1)
    net = Builder((1, 8, 28, 28))
    y = net.conv("x", 16, 3, padding=(1,) * 4, activation=Activation.RELU)
    gate = net.conv(net.add(graph.GlobalMean("squeeze", (y,))), 16, activation=Activation.SIGMOID)
    y = net.conv(net.add(graph.Multiply("gated", (y, gate))), 8, 3, stride=(2, 2), activation=Activation.RELU)
    y = net.add(graph.Flatten("flat", (net.add(graph.GlobalMean("mean", (y,))),)))
    quantized = quantize(net.graph(net.linear(y, 5)), torch.randn(1, 8, 28, 28))
    plan = Plan(quantized, floats, 2)
    for batch in (1, 3, 16, 20):
        x = torch.randn(batch, 8, 28, 28)
        assert torch.equal(plan(x)[0], wanted(quantized, x)[0]), batch


def test_torch_runs_what_kernels_do_not() -> None:
    torch.manual_seed(2)
    net = Builder((2, 6, 24))
    q = net.linear("x", 24, activation=Activation.GELU)
    y = net.add(graph.Softmax("soft", (q,), -1))
    out = net.linear(net.linear(q, 24, residual="x"), 10)
    x = torch.randn(2, 6, 24)
    quantized = quantize(net.graph(y, out), x)
    plan = Plan(quantized, floats)
    kinds = [type(section) for section in plan.prepare(2)]
    assert kinds == [Compiled, Torch, Compiled]
    for found, right in zip(plan(x), wanted(quantized, x), strict=True):
        assert torch.equal(found, right)


def test_windows_of_a_picture_have_a_batch_of_their_own() -> None:
    torch.manual_seed(3)
    net = Builder((2, 8, 4))
    first = net.linear("x", 4)
    shape = (4, 4, 4)
    cut = graph.Opaque("cut", (first,), "cut into two", lambda t: t.reshape(2 * len(t), -1, t.shape[-1]))
    net.operations.append(cut)
    net.shapes["cut"] = shape
    last = net.linear("cut", 12)
    x = torch.randn(2, 8, 4)
    values = {"x": x, first: run_floats(net.operations[0], [x])}
    values["cut"] = cut.run(values[first])
    scales = {name: scale_for(value) for name, value in values.items()}
    layers = {}
    for op, given, out in ((net.operations[0], "x", scales[first]), (net.operations[2], "cut", None)):
        rows = op.weight.abs().amax(1).clamp_min(1e-6) / 127
        layers[op.name] = whole_layer(op.weight, op.bias, rows, scales[given], out)
    quantized = Quantized(net.graph(last), scales, layers)

    def fallback(op: graph.Operation, *given: Tensor) -> Tensor:
        return op.run(*given)

    plan = Plan(quantized, fallback)
    for batch in (2, 6):
        assert plan(torch.randn(batch, 8, 4))[0].shape == (2 * batch, 4, 12)


def test_calls_at_once() -> None:
    net = residual_net(24)
    plans = [Plan(net, floats, threads) for threads in (1, 2)]
    xs = [torch.randn(1 + i % 3, 3, 24, 24) for i in range(6)]
    right = [wanted(net, x)[0] for x in xs]
    wrong: list[int] = []

    def call(i: int) -> None:
        for _ in range(20):
            if not torch.equal(plans[i % 2](xs[i])[0], right[i]):
                wrong.append(i)

    workers = [threading.Thread(target=call, args=(i,)) for i in range(len(xs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def _child(plan: Plan, x: Tensor, queue: multiprocessing.Queue[float]) -> None:
    torch.set_num_threads(1)
    queue.put(float(plan(x)[0].double().sum()))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    net = residual_net(24)
    plan = Plan(net, floats, 2)
    x = torch.randn(1, 3, 24, 24)
    right = float(plan(x)[0].double().sum())
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[float] = context.Queue()
    child = context.Process(target=_child, args=(plan, x, queue))
    child.start()
    assert queue.get(timeout=60) == right
    child.join(60)
    assert child.exitcode == 0
    assert float(plan(x)[0].double().sum()) == right


def test_times_name_every_operation() -> None:
    net = residual_net(24)
    plan = Plan(net, floats)
    times = plan.times(torch.randn(1, 3, 24, 24), runs=2)
    named = {name for key in times for name in key.split(" + ")}
    assert {op.name for op in net.graph.operations} - named == {"flat"}
    assert all(0 < t < 1 for t in times.values())
    x = torch.randn(2, 3, 24, 24)
    single = Plan(net, floats, chains=False)
    assert set(single.times(x, runs=2)) == named
    assert torch.equal(single(x)[0], plan(x)[0])


def test_notes_say_what_was_decided() -> None:
    net = residual_net(24)
    (section,) = Plan(net, floats).prepare(1)
    assert isinstance(section, Compiled)
    notes = {note.operation: note for note in section.notes() if note.choice}
    assert set(notes) == set(net.layers)
    for name, layer in net.layers.items():
        blocks = layer.weight.view(len(layer.weight), -1, 4, *layer.weight.shape[2:]) if name != "conv1" else None
        if blocks is not None:
            assert notes[name].blocks == int((blocks != 0).any(2).sum())
        assert 0 < notes[name].limit < 1
    assert all(1e4 < peak < 1e12 for peak in section.library.peaks.values())


@pytest.mark.parametrize(
    ("shape", "said"),
    [((3, 48, 48), "shape"), ((1, 3, 48, 47), "shape"), ((0, 3, 48, 48), "N >= 1"), ((1, 48, 48, 3), "shape")],
)
def test_other_shapes_are_refused(shape: tuple[int, ...], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        Plan(residual_net(), floats)(torch.zeros(shape))


def test_other_layouts_and_types_are_taken() -> None:
    net = residual_net(24)
    plan = Plan(net, floats)
    x = torch.randn(2, 3, 24, 24)
    right = plan(x)[0]
    assert torch.equal(plan(x.to(memory_format=torch.channels_last))[0], right)
    assert torch.equal(plan(x.double())[0], right)
    assert torch.equal(plan(x.transpose(2, 3).contiguous().transpose(2, 3).requires_grad_())[0], right)


def test_the_number_of_inputs_is_checked() -> None:
    with pytest.raises(ArgumentError, match="takes 1 tensors"):
        Plan(residual_net(24), floats)()
