"""A small network from its tensors alone."""

import pytest
import torch
from torch import Tensor, nn

from softprune.errors import ArgumentError
from softprune.models.mobilenet import mobilenet_v1_cifar
from softprune.models.small import digits_resnet
from softprune.models.transformer import Attention
from softprune.models.vit import vit_digits
from softprune.removal import shrink
from softprune.removal.load import load_small


def dead_channels(model: nn.Module, seed: int = 0) -> nn.Module:
    """Half of the channels of every norm, and of the rows of perceptrons, are zero, after some statistics."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(generator=generator)
                dead = torch.rand(module.num_features, generator=generator) < 0.5
                module.weight[dead] = module.bias[dead] = 0
    return model


def dead_heads(model: nn.Module) -> nn.Module:
    """The second head of every attention, and every other neuron."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, Attention):
                width = module.project.in_features // module.heads
                rows = module.qkv.weight.unflatten(0, (3, module.heads, width))
                rows[:, 1] = 0
                module.qkv.bias.unflatten(0, (3, module.heads, width))[:, 1] = 0
            if isinstance(module, nn.Sequential) and isinstance(module[0], nn.Linear):
                module[0].weight[::2] = module[0].bias[::2] = 0
    return model


@pytest.mark.parametrize(
    ("build", "kill", "shape"),
    [
        (digits_resnet, dead_channels, (1, 1, 8, 8)),
        (mobilenet_v1_cifar, dead_channels, (1, 3, 16, 16)),
        (vit_digits, dead_heads, (1, 1, 8, 8)),
    ],
    ids=["residual", "depthwise", "heads"],
)
def test_what_was_made_smaller_is_loaded_from_its_tensors(build, kill, shape):
    torch.manual_seed(0)
    model, x = kill(build()).eval(), torch.randn(3, *shape[1:])
    small = shrink(model, x[:1]).model
    other = build().eval()
    loaded = load_small(other, small.state_dict())
    assert torch.equal(loaded(x), small(x))
    assert sum(p.numel() for p in loaded.parameters()) < 0.9 * sum(p.numel() for p in model.parameters())
    assert str(loaded) == str(small)  # every layer knows its sizes
    assert other(x).shape == loaded(x).shape  # and the network that was given is whole


def test_fewer_heads_are_heads_of_the_same_size():
    small = shrink(dead_heads(vit_digits()).eval(), torch.randn(1, 1, 8, 8)).model
    loaded = load_small(vit_digits(), small.state_dict())
    assert [m.heads for m in loaded.modules() if isinstance(m, Attention)] == [3] * 4


def test_constants_of_the_dead_may_have_become_a_bias():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2, bias=False))
    with torch.no_grad():
        model[0].weight[:3] = 0
        model[0].bias.fill_(1.0)
    x = torch.randn(5, 4)
    small = shrink(model, x).model
    assert "2.bias" in small.state_dict()
    torch.testing.assert_close(load_small(model, small.state_dict())(x), model(x))


def test_the_result_has_the_dtype_of_the_model():
    tensors = {"weight": torch.ones(2, 3), "bias": torch.ones(2)}
    assert load_small(nn.Linear(4, 2).double(), tensors)(torch.ones(1, 3).double()).tolist() == [[4.0, 4.0]]


class Turned(nn.Module):
    """Heads that no layer of it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = 4
        self.query = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.query(x)


@pytest.mark.parametrize(
    ("model", "tensors", "sentence"),
    [
        (nn.Linear(4, 2), {"weight": torch.ones(2, 3)}, "has no bias"),
        (nn.Linear(4, 2), {"weight": torch.ones(2, 5), "bias": torch.ones(2)}, "cannot have come from"),
        (nn.Linear(4, 2), {"weight": torch.ones(2), "bias": torch.ones(2)}, "cannot have come from"),
        (nn.ReLU(), {"weight": torch.ones(2)}, "which this one does not know"),
        (nn.Linear(4, 2, bias=False), {"weight": torch.ones(2, 4), "a.b": torch.ones(2)}, "does not know"),
        (Turned(), {"query.weight": torch.ones(6, 8), "query.bias": torch.ones(6)}, "Cannot tell how many heads"),
    ],
)
def test_tensors_of_another_network_are_refused(model, tensors, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        load_small(model, tensors)
