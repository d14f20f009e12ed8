"""What only a CUDA device can tell. Run with `pytest -m gpu`."""

import pytest
import torch
from torch import nn

import softprune as sp
from softprune import recipes
from softprune.kernels import shrink as multi_tensor
from softprune.kernels.pairs import Pairs
from softprune.models import sew_digits, sew_resnet18_cifar
from softprune.pruner.hidden import Hidden
from softprune.spiking.neurons import IF, LIF
from softprune.thresholds.quantile import Cell, survivors, thresholds
from softprune.training.run import Run
from test_quantile import DISTRIBUTIONS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def reference(theta: torch.Tensor, d: float, k: float = 0.0) -> torch.Tensor:
    exact = theta.double()
    return ((1 - k) * exact.sign() * (exact.abs() - d).clamp(min=0) + k * exact).to(theta.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_one_launch_over_many_tensors(dtype):
    sizes = [(1,), (7,), (64, 3, 7, 7), (100_003,), (0,), (256, 64, 3, 3)]
    thetas = [torch.randn(size, device="cuda", dtype=dtype) for size in sizes]
    thetas[-1] = thetas[-1].to(memory_format=torch.channels_last)
    ws = [torch.full_like(theta, float("nan")) for theta in thetas]
    ds = [torch.tensor(0.1 * (i + 1), dtype=dtype).item() for i in range(len(sizes))]
    multi_tensor.soft_threshold(Pairs(ws, thetas), ds)
    for w, theta, d in zip(ws, thetas, ds, strict=True):
        tolerance = {torch.bfloat16: 2**-8, torch.float16: 2**-10}.get(dtype, 1e-7 if dtype is torch.float32 else 1e-15)
        torch.testing.assert_close(w, reference(theta, d), rtol=tolerance, atol=tolerance)
        assert torch.equal(w == 0, theta.abs() <= d)
    vector = torch.tensor(ds, device="cuda")
    again = [torch.empty_like(w) for w in ws]
    multi_tensor.soft_threshold(Pairs(again, thetas), vector)
    for a, w in zip(again, ws, strict=True):
        torch.testing.assert_close(a, w, rtol=2**-7, atol=1e-6)
    blends = torch.linspace(0, 1, len(ds), device="cuda")
    multi_tensor.soft_threshold(Pairs(again, thetas), vector, blends)
    for w, theta, d, k in zip(again, thetas, ds, blends.tolist(), strict=True):
        torch.testing.assert_close(w, reference(theta, d, k), rtol=4 * tolerance, atol=4 * max(tolerance, 1e-7))


@pytest.mark.parametrize("blend", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_gpu_rounds_as_the_cpu_does(dtype, blend):
    """Else θ would be taken for set from outside, for some weights, when a model moves from one to the other."""
    theta = torch.randn(10_000, dtype=dtype)
    d = theta.abs().double().sort().values[::100].tolist()
    for i, level in enumerate(x * (1 + e) for x in d for e in (-1e-4, 0.0, 1e-4)):
        columns = [[level], [i / len(d) / 3]][: 1 + blend]
        w, moved = torch.empty_like(theta), torch.empty_like(theta, device="cuda")
        multi_tensor.soft_threshold(Pairs([w], [theta]), *columns)
        multi_tensor.soft_threshold(Pairs([moved], [theta.cuda()]), *columns)
        assert torch.equal(moved.cpu(), w)


def test_unaligned_strided_and_special_values():
    flat = torch.randn(1000, device="cuda")
    theta, w = flat[1:998], torch.empty(1001, device="cuda")[3:1000]
    multi_tensor.soft_threshold(Pairs([w], [theta]), [0.5])
    torch.testing.assert_close(w, reference(theta, 0.5))
    theta = torch.randn(8, 16, device="cuda")
    w = torch.zeros(8, 32, device="cuda")[:, ::2]  # not dense: the plain path
    multi_tensor.soft_threshold(Pairs([w], [theta]), [0.5])
    torch.testing.assert_close(w, reference(theta, 0.5))
    theta = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0], device="cuda")
    w = torch.empty_like(theta)
    multi_tensor.soft_threshold(Pairs([w], [theta]), [0.0])
    torch.testing.assert_close(w, theta, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_quantiles_are_those_of_the_cpu(name, dtype):
    """Several cells, caps, a tensor that is left out, one that is empty: all of it in one launch for each pass."""
    values = DISTRIBUTIONS[name].to(dtype)
    parts = [values[:1000], values[1000:1001], values[1001:1001], values[1001:3001].reshape(50, 40), values[3001:]]
    cells = [Cell((0, 1, 2), (1.0, 1.0, 1.0), 0.4), Cell((3,), (2.0,), 0.3)]
    caps = [parts[0].float().abs().median().item(), *[float("inf")] * 4]
    found = {}
    for device in ("cpu", "cuda"):
        hidden = Hidden({str(i): nn.Parameter(part.to(device)) for i, part in enumerate(parts)})
        assert hidden.pairs.launchable == (device == "cuda")
        d = thresholds(hidden, cells, caps)
        found[device] = d, survivors(hidden, [d[0], d[0], d[0], d[1], 0.5])
    assert found["cpu"] == found["cuda"]


def train(device: str, method: str, steps: int = 20, fused: bool = False, **step_arguments) -> sp.Pruner:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)).to(device)
    x, y = torch.randn(32, 3, 8, 8).to(device), torch.randint(10, (32,)).to(device)
    params = sp.select(model)
    threshold = {
        "slats": sp.SLATS(0.05, steps),
        "lats": sp.LATS(0.1),
        "str": sp.STR(params, init=-4.0),
        "gpo": sp.GPO(params, init=-4.0),
    }[method]
    groups = [{"params": [model[0].weight, model[0].bias]}, {"params": model[3].parameters(), "lr": 0.05}]
    if isinstance(threshold, sp.Trainable):
        groups.append({"params": threshold.parameters(), "weight_decay": 0.01})
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, fused=fused)
    pruner = sp.Pruner(params, optimizer, threshold=threshold)
    for step in range(steps):
        if step == 3:
            torch.cuda.set_sync_debug_mode("error" if device == "cuda" else "default")
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.set_sync_debug_mode("default")
    return pruner


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("method", ["slats", "lats", "str", "gpo"])
def test_the_gpu_follows_the_cpu_and_no_step_waits_for_it(method, fused):
    on_cpu, on_gpu = train("cpu", method), train("cuda", method, fused=fused)
    assert on_cpu.sparsity() == pytest.approx(on_gpu.sparsity(), abs=0.01)
    for name, p in on_cpu.params.items():
        torch.testing.assert_close(on_gpu.params[name].cpu(), p, rtol=1e-2, atol=2e-3)


def test_one_buffer_of_theta_and_nothing_else():
    model = nn.Linear(4096, 4096, bias=False, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = torch.cuda.memory_allocated()
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.SLATS(0.1, 10))
    for _ in range(3):
        model(torch.randn(8, 4096, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    weight = model.weight.numel() * 4
    assert weight <= torch.cuda.memory_allocated() - before <= 1.01 * weight + 2**20
    pruner.detach()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before <= 2**20


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_gradscaler_skips_does_not_count(fused):
    model = nn.Linear(16, 16, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Linear(1.0, 10))
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    for step in range(4):
        loss = model(torch.randn(4, 16, device="cuda")).square().mean()
        scaler.scale(loss * (float("inf") if step == 2 else 1.0)).backward()
        before = model.weight.clone()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert torch.equal(before, model.weight) == (step == 2)
    assert pruner.step == 3
    assert pruner.threshold == pytest.approx(0.3)


def test_cudnn_keeps_its_flat_lstm_weights():
    model = nn.LSTM(32, 64, num_layers=2, device="cuda")
    address = model.weight_hh_l0.data_ptr()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.SLATS(0.05, 10))
    for _ in range(10):
        model(torch.randn(5, 3, 32, device="cuda"))[0].square().mean().backward()  # a warning would be an error
        optimizer.step()
        optimizer.zero_grad()
    assert model.weight_hh_l0.data_ptr() == address
    assert 0.1 < pruner.sparsity() < 1.0


def test_compiled_with_cuda_graphs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    twin = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    twin.load_state_dict(model.state_dict())
    x = torch.randn(16, 32, device="cuda")
    for module, forward in ((model, torch.compile(model, mode="reduce-overhead")), (twin, twin)):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        with sp.Pruner(sp.select(module), optimizer, threshold=sp.SLATS(0.1, 12)):
            for _ in range(12):
                forward(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    torch.testing.assert_close(model[0].weight, twin[0].weight, rtol=1e-3, atol=1e-4)


def test_the_model_may_move_after_the_pruner_is_built():
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Linear(0.5, 10))
    for device in ("cpu", "cuda", "cpu"):
        model.to(device)
        model(torch.randn(4, 8, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert pruner.theta["weight"].device.type == device
    assert pruner.step == 3


@pytest.mark.parametrize("make", [sp.STR, sp.GPO])
def test_trained_thresholds_stay_where_they_are_when_the_model_moves(make):
    model = nn.Linear(8, 8).cuda()
    params = sp.select(model)
    threshold = make(params, init=-3.0)
    optimizer = torch.optim.SGD([*model.parameters(), *threshold.parameters()], lr=0.1)
    pruner = sp.Pruner(params, optimizer, threshold=threshold)
    for device in ("cuda", "cpu", "cuda", "cpu"):
        model.to(device)
        model(torch.randn(4, 8, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.state_dict()
        assert pruner.theta["weight"].device.type == device
    assert threshold.s.is_cuda
    model.cuda()
    optimizer.zero_grad()
    optimizer.step()  # nothing to learn, but θ is on the GPU again
    model.cpu()
    sparsity = pruner.sparsity()
    assert sp.summarize(pruner).sparsity == sparsity > 0
    pruner.detach()
    assert (model.weight == 0).float().mean().item() == pytest.approx(sparsity)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.parametrize("method", ["dense", "slats", "lats", "pgh-0", "str", "str-gs", "gpo", "target"])
def test_the_command_trains_every_method(method, tmp_path):
    recipe, more = ("slats", ["target=0.9"]) if method == "target" else (method, [])
    config = recipes.get(f"digits/{recipe}").config.override([*more, "epochs=2", "precision=bf16-mixed"])
    outcome = Run.create(tmp_path / "run", config).train(say=lambda _: None, progress=False)
    assert outcome.accuracy > 0.1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("blend", [False, True])
def test_subgradient_in_one_launch(dtype, overwrite, blend):
    sizes = [(1,), (100_003,), (0,), (256, 64, 3, 3)]
    thetas = [torch.randn(size, device="cuda", dtype=dtype) for size in sizes]
    grads = [torch.randn(size, device="cuda", dtype=dtype) for size in sizes]
    table = [[0.125, 0.5, 1.0, 2.0], [0.75, 0.5, 0.25, 0.125]][: 1 + blend]
    columns = [torch.tensor(x, device="cuda", dtype=torch.promote_types(dtype, torch.float32)) for x in table]
    exact = [torch.tensor(x, device="cuda", dtype=torch.float64, requires_grad=True) for x in table]
    expected = []
    for i, (theta, grad) in enumerate(zip(thetas, grads, strict=True)):
        leaf = theta.double().requires_grad_()
        prox, levels = (sp.Blend() if blend else sp.SoftThreshold()), [column[i] for column in exact]
        prox(leaf, *levels).backward(grad.double())
        expected.append(leaf.grad.to(dtype) if overwrite else grad.clone())
    sums = multi_tensor.subgradient(Pairs(grads, thetas), *columns, overwrite=overwrite)
    for found, column in zip(sums, exact, strict=True):
        torch.testing.assert_close(found.double(), column.grad, rtol=1e-3, atol=1e-2)
    for grad, e in zip(grads, expected, strict=True):
        if blend and overwrite:  # k·g here, g − (1 − k)·g by torch
            torch.testing.assert_close(grad, e, rtol=1e-6, atol=1e-6)
        else:
            assert torch.equal(grad, e)
    numbers = multi_tensor.subgradient(Pairs(grads, thetas), *table, overwrite=False)
    assert numbers == []


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
    Run.create(tmp_path / "run", config).train(say=lambda _: None, progress=True)
    assert sum(waits) < 100  # seven at each of eleven validations, and none at the 210 steps


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("threshold", [sp.SLATS(0.1, 4), sp.TargetSparsity(0.5, 4)])
@pytest.mark.parametrize("devices", [("cuda:1", "cuda:1"), ("cuda:0", "cuda:1")])
def test_the_current_device_is_not_the_models(threshold, devices):
    model = nn.ModuleList(nn.Linear(64, 64).to(device) for device in devices)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sp.Pruner(sp.select(model), optimizer, threshold=threshold) as pruner:
        for _ in range(4):
            for layer in model:
                layer(torch.randn(4, 64, device=layer.weight.device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert 0 < pruner.sparsity() < 1
