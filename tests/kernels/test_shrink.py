"""The soft threshold of many tensors at once, against one tensor at a time."""

import pytest
import torch

from oracles import shrink as reference
from softprune.kernels import shrink
from softprune.kernels.pairs import Pairs

SHAPES = [(3, 4), (5,), (2, 2, 2), (0, 3)]


def tensors() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in SHAPES]


def levels(kind: str, thetas: list[torch.Tensor]):
    match kind:
        case "numbers":
            return [0.1, 0.5, 0.0, 1.0]
        case "a vector":
            return torch.tensor([0.1, 0.5, 0.0, 1.0], dtype=torch.float64)
        case "one for each weight":
            return [torch.rand_like(theta) for theta in thetas]


@pytest.mark.parametrize("kind", ["numbers", "a vector", "one for each weight"])
def test_every_tensor_is_shrunk_by_its_own_level(kind):
    thetas = tensors()
    column = levels(kind, thetas)
    ws = [torch.empty_like(theta) for theta in thetas]
    shrink.soft_threshold(Pairs(ws, thetas), column)
    for w, theta, d in zip(ws, thetas, column, strict=True):
        torch.testing.assert_close(w, reference(theta, d), rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", ["numbers", "one for each weight"])
def test_gradients_of_what_is_pruned_are_dropped(kind):
    thetas = tensors()
    column = levels(kind, thetas)
    grads = [torch.ones_like(theta) for theta in thetas]
    assert shrink.subgradient(Pairs(grads, thetas), column, overwrite=True) == []  # nothing to train
    for grad, theta, d in zip(grads, thetas, column, strict=True):
        assert torch.equal(grad, (theta.abs() > d).double())


def test_a_vector_of_thresholds_gets_its_gradient():
    thetas = tensors()
    column = levels("a vector", thetas)
    grads = [torch.ones_like(theta) for theta in thetas]
    (sums,) = shrink.subgradient(Pairs(grads, thetas), column, overwrite=False)
    leaf = column.clone().requires_grad_()
    sum(reference(theta, d).sum() for theta, d in zip(thetas, leaf, strict=True)).backward()
    torch.testing.assert_close(sums, leaf.grad, rtol=0, atol=1e-12)
    assert all((grad == 1).all() for grad in grads)
