"""A pruner on a CUDA device: the numbers of the CPU, one buffer, and no waiting. Run with `pytest -m gpu`."""

import gc
import math

import pytest
import torch
from torch import nn

import softprune as sp
from waiting import no_waiting

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty"),
]


def train(device: str, method: str, steps: int = 20, fused: bool = False, **step_arguments) -> sp.Pruner:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)).to(device)
    x, y = torch.randn(32, 3, 8, 8).to(device), torch.randint(10, (32,)).to(device)
    params = sp.select(model)
    threshold = {
        "slats": sp.SLATS(0.05, steps),
        "lats": sp.LATS(0.1),
        "power": sp.LATS(0.1),
        "str": sp.STR(params, init=-4.0),
        "gpo": sp.GPO(params, init=-4.0),
    }[method]
    groups = [{"params": [model[0].weight, model[0].bias]}, {"params": model[3].parameters(), "lr": 0.05}]
    if isinstance(threshold, sp.Trainable):
        groups.append({"params": threshold.parameters(), "weight_decay": 0.01})
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, fused=fused)
    prox = sp.PowerThreshold(3.0) if method == "power" else None
    pruner = sp.Pruner(params, optimizer, threshold=threshold, prox=prox)
    for step in range(steps):
        with no_waiting(device == "cuda" and step >= 3):
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return pruner


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("method", ["slats", "lats", "power", "str", "gpo"])
def test_the_gpu_follows_the_cpu_and_no_step_waits_for_it(method, fused):
    on_cpu, on_gpu = train("cpu", method), train("cuda", method, fused=fused)
    assert on_cpu.sparsity() == pytest.approx(on_gpu.sparsity(), abs=0.01)
    for name, p in on_cpu.params.items():
        torch.testing.assert_close(on_gpu.params[name].cpu(), p, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("kind", [sp.TargetSparsity, sp.GradualSparsity])
@pytest.mark.parametrize("p", [1.0, 3.0, math.inf])
def test_a_target_is_reached_and_held(kind, p):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    aim = kind(0.9, 300, arrive=0.5)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=aim, prox=sp.PowerThreshold(p))
    worst = 0.0
    for step in range(400):
        x = torch.randn(64, 256, device="cuda")
        nn.functional.mse_loss(model(x), x.roll(1, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step >= 149:
            worst = max(worst, abs(pruner.sparsity() - 0.9))
        if step + 1 in (aim.arrival, aim.steps):  # where it looks at the weights
            assert pruner.sparsity() == pytest.approx(0.9, abs=1e-5)
    assert worst < 2e-3
    pruner.detach()
    assert pruner.sparsity() == pytest.approx(0.9, abs=1.1e-3)


@pytest.mark.parametrize("kind", [sp.TargetSparsity, sp.GradualSparsity])
def test_between_two_looks_nothing_waits_for_the_device(kind):
    model = nn.Linear(256, 256, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sp.Pruner(sp.select(model), optimizer, threshold=kind(0.9, 400, refresh=100))
    for step in range(60):
        with no_waiting(step >= 10):
            model(torch.randn(8, 256, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def test_zeros_are_kept_without_waiting():
    torch.manual_seed(0)
    model = nn.Linear(512, 512, device="cuda")
    zeros = torch.rand(512, 512, device="cuda") < 0.9
    model.weight.data[zeros] = 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sp.Pruner(sp.select(model), optimizer, threshold=sp.KeepZeros())
    for step in range(10):
        torch.cuda.set_sync_debug_mode("error" if step == 3 else "default")
        model(torch.randn(8, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(model.weight == 0, zeros)


def test_one_buffer_of_theta_and_nothing_else():
    model = nn.Linear(4096, 4096, bias=False, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gc.collect()  # of tests before this one
    before = torch.cuda.memory_allocated()
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.SLATS(0.1, 3))
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
    assert pruner.threshold == {"weight": pytest.approx(0.3)}


@pytest.mark.parametrize("threshold", [sp.LATS(1.0), sp.TargetSparsity(0.5, 10)])
def test_a_learning_rate_may_lie_on_the_device(threshold):
    model = nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01, device="cuda"), capturable=True)
    with sp.Pruner(sp.select(model), optimizer, threshold=threshold) as pruner:
        for _ in range(10):
            model(torch.randn(8, 64, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if isinstance(threshold, sp.LATS):
            assert pruner.threshold == {"weight": pytest.approx(0.1)}
        else:
            assert pruner.sparsity() == pytest.approx(0.5, abs=1e-3)


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
