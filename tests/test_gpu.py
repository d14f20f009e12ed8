"""The command and spiking networks on a CUDA device. Run with `pytest -m gpu`."""

import pytest
import torch
from torch import nn

import softprune as sp
from softprune import recipes
from softprune.spiking.neurons import IF, LIF
from softprune.spiking.sew import sew_digits, sew_resnet18_cifar
from softprune.training.run import Run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),
]


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.parametrize("method", ["dense", "slats", "lats", "pgh-0", "str", "str-gs", "gpo", "target"])
def test_the_command_trains_every_method(method, tmp_path):
    recipe, more = ("slats", ["target=0.9"]) if method == "target" else (method, [])
    config = recipes.get(f"digits/{recipe}").config.override([*more, "epochs=2", "precision=bf16-mixed"])
    outcome = Run.create(tmp_path / "run", config).train(say=lambda _: None)
    assert outcome.accuracy > 0.1


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [IF, LIF])
def test_neurons_fire_the_same_as_a_kernel_and_compiled(make, dtype):
    x = (2 * torch.randn(4 * 8, 16, 12, 12)).to(dtype).to(memory_format=torch.channels_last).view(4, 8, 16, 12, 12)
    weights = torch.randn_like(x)

    def fire(neurons: nn.Module, device: str) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = x.detach().to(device).requires_grad_()  # detached, since to("cpu") is x itself
        spikes = neurons(leaf)
        spikes.backward(weights.to(device))
        return spikes.detach().cpu(), leaf.grad.float().cpu()

    torch._dynamo.reset()
    spikes, gradient = fire(make(), "cpu")
    for neurons in (make(), torch.compile(make(), fullgraph=True)):
        theirs, slope = fire(neurons, "cuda")
        assert (theirs != spikes).float().mean() < 1e-4
        torch.testing.assert_close(slope, gradient, rtol=2e-2 if dtype is torch.bfloat16 else 1e-4, atol=1e-2)


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "shape"), [(sew_digits, (32, 1, 8, 8)), (sew_resnet18_cifar, (256, 3, 32, 32))], ids=["digits", "cifar10"]
)
def test_a_spiking_network_is_measured_after_compiled_training(make, shape):
    torch._dynamo.reset()
    network = make().cuda().to(memory_format=torch.channels_last)
    network.compile()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    x, y = torch.randn(shape, device="cuda"), torch.randint(10, shape[:1], device="cuda")
    x = x.to(memory_format=torch.channels_last)
    with sp.Pruner(sp.select(network), optimizer, threshold=sp.SLATS(0.01, 10)):
        for _ in range(10):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(network(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    network.eval()
    with network.observer() as meter, torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
        network(x)
    activity = meter.result()
    assert activity.images == len(x)
    assert 0 < activity.rate < 1
    assert 0 < activity.pruned < activity.dense
    assert [layer.name for layer in activity.operations if not layer.spikes] == ["conv1", "fc"]


def test_lightning_does_not_wait_for_the_device_at_every_step(tmp_path, monkeypatch):
    waits, item = [], torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda self: waits.append(self.is_cuda) or item(self))
    config = recipes.get("digits/slats").config.override(["epochs=10"])
    Run.create(tmp_path / "run", config).train(say=lambda _: None, progress="bar")
    assert sum(waits) < 100  # seven at each of eleven validations, and none at the 210 steps
