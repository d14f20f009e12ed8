"""A graph run by torch: precisions, batches, and a look at what lies inside."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import Tensor, nn

from engine_models import C2f, Gated, TwoHeads, apart, outputs, settled, tokens
from softprune.engine.export import graph
from softprune.engine.fold import fold
from softprune.engine.graph import Graph, Pool
from softprune.engine.opaque import Call, Program, Slot
from softprune.engine.run_torch import before, compute, run, to
from softprune.errors import ArgumentError

NETWORKS = [(C2f, (1, 3, 8, 8)), (Gated, (1, 3, 9, 9)), (tokens, (1, 5, 16))]


@pytest.mark.parametrize(("make", "shape"), NETWORKS)
def test_float32_and_float64(make: type[nn.Module], shape: tuple[int, ...]) -> None:
    model = settled(make())
    small = fold(graph(model, torch.randn(shape)))
    x = torch.randn(4, *shape[1:])
    assert apart(small, model, x) < 1e-5
    exact = to(small, torch.float64)
    (got,) = run(exact, x.double())
    (want,) = outputs(model.double(), x.double())
    assert got.dtype == torch.float64
    assert float((got - want).abs().max()) < 1e-5  # of the folded weights, which are float32
    unfolded = to(graph(model.float(), torch.randn(shape)), torch.float64)
    assert float((run(unfolded, x.double())[0] - want).abs().max()) < 1e-10


def test_every_value_is_seen_once() -> None:
    model = TwoHeads()
    small = fold(graph(model, (torch.randn(1, 6), torch.randn(1, 6))))
    seen: dict[str, Tensor] = {}

    def look(name: str, value: Tensor) -> None:
        assert name not in seen
        seen[name] = value

    x, y = torch.randn(2, 6), torch.randn(2, 6)
    got = run(small, x, y, see=look)
    assert set(seen) == {*small.shapes, *(before(o.name) for o in small.operations)}
    assert torch.equal(seen[small.outputs[1]], got[1])
    assert torch.equal(torch.relu(seen[before(small.outputs[1])]), got[1])
    assert seen["x"] is x


def test_a_look_may_change_a_value() -> None:
    small = graph(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.randn(1, 2))
    (got,) = run(small, torch.randn(3, 2), see=lambda name, x: torch.full_like(x, 7.0) if name == "0" else None)
    assert got.tolist() == [[7.0, 7.0]] * 3


def test_values_that_nobody_reads_again_are_let_go() -> None:
    alive: list[int] = []
    known: list[weakref.ref[Tensor]] = []

    def look(name: str, value: Tensor) -> None:
        known.append(weakref.ref(value))
        alive.append(sum(ref() is not None for ref in known))

    run(
        graph(nn.Sequential(*(nn.Conv2d(2, 2, 1) for _ in range(9))), torch.randn(1, 2, 3, 3)),
        torch.randn(1, 2, 3, 3),
        see=look,
    )
    assert max(alive) <= 6


def test_too_few_inputs() -> None:
    with pytest.raises(ArgumentError, match="This network takes 1 tensors"):
        run(graph(nn.Linear(2, 2), torch.randn(1, 2)), torch.randn(1, 2), torch.randn(1, 2))


@pytest.mark.parametrize("largest", [True, False])
def test_a_pool_with_four_sides(largest: bool) -> None:
    x = torch.arange(9.0).view(1, 1, 3, 3) - 20
    y = compute(Pool("y", ("x",), largest, (2, 2), (2, 2), (1, 0, 0, 1), counts_padding=False), x)
    expected = [[[-17.0, -15.0], [-14.0, -12.0]]] if largest else [[[-18.5, -17.0], [-14.0, -12.5]]]
    assert y.tolist() == [expected]


def test_a_program_in_another_precision() -> None:
    aten = torch.ops.aten
    made = Call(aten.ones.default, ([2],), {"dtype": torch.float32})
    program = Program(1, (torch.ones(2),), (made, Call(aten.add.Tensor, (Slot(2), Slot(1)), {})), Slot(3))
    assert program(torch.zeros(1)).dtype == torch.float32
    assert program.to(torch.float64)(torch.zeros(1)).dtype == torch.float64


def test_an_empty_graph_gives_its_input() -> None:
    x = torch.randn(2, 3)
    assert run(Graph(("x",), (), ("x",), {"x": (2, 3)}), x)[0] is x
