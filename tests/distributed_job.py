"""What two processes (gloo) do together: train, save, load, and write down what came out."""

import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import softprune as sp

STEPS, HALF = 6, 3


METHODS = ["slats", "str", "str-shared", "gpo", "lats", "target", "held", "gradual", "keep"]


class Network(nn.Module):
    """7, 1 and 3 rows: over two processes every shard is uneven, and one is empty."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1), nn.Tanh(), nn.Linear(1, 3)).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Job:
    """A pruned run, alone or as one of several processes."""

    def __init__(self, method: str, kind: str = "alone", seed: int = 0) -> None:
        self.model: nn.Module = Network(seed)
        if method == "keep":
            with torch.no_grad():
                for p in sp.select(self.model).values():
                    p[p.abs() < p.abs().mean()] = 0.0
        if kind == "fsdp":
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            for layer in self.model.layers:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        self.forward = DistributedDataParallel(self.model) if kind == "ddp" else self.model
        params = sp.select(self.forward)
        threshold = {
            "slats": lambda: sp.SLATS(0.3, STEPS),
            "lats": lambda: sp.LATS(0.5),
            "target": lambda: sp.TargetSparsity(0.5, STEPS, refresh=1),
            "held": lambda: sp.TargetSparsity(0.5, STEPS, arrive=0.4),  # before half of the steps, where others load it
            "gradual": lambda: sp.GradualSparsity(0.5, STEPS, refresh=2),
            "keep": lambda: sp.KeepZeros(),
            "str": lambda: sp.STR(params, init=-2.0),
            "str-shared": lambda: sp.STR(params, init=-2.0, shared=True),
            "gpo": lambda: sp.GPO(params, init=-1.0),
        }[method]()
        groups = [{"params": list(self.model.parameters())}]
        if isinstance(threshold, sp.Trainable):
            groups.append({"params": list(threshold.parameters()), "weight_decay": 0.05})
            self.model.threshold = threshold  # for torch.distributed.checkpoint, which saves by the model's names
        if kind == "ddp around a threshold":
            self.forward = DistributedDataParallel(self.model, find_unused_parameters=True)
        stateless = method == "lats"  # plain SGD keeps no state
        self.optimizer = torch.optim.SGD(groups, lr=0.1) if stateless else torch.optim.Adam(groups, lr=0.03)
        self.pruner = sp.Pruner(params, self.optimizer, threshold=threshold)

    def train(self, steps: range, rank: int = 0, world: int = 1) -> "Job":
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            x, y = (torch.randn(8, n, generator=generator, dtype=torch.float64) for n in (6, 3))
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.forward(x[rank::world]), y[rank::world]).backward()
            self.optimizer.step()
        return self

    def outcome(self) -> dict[str, object]:
        """What every process must agree on."""
        return {
            "step": self.pruner.step,
            "threshold": torch.tensor(list(self.pruner.threshold.values())),
            "theta": [whole(theta) for theta in self.pruner.theta.values()],
            "w": [whole(p) for p in self.model.parameters()],
            "sparsity": self.pruner.sparsity(),
            "report": sp.summarize(self.pruner).to_dict(),
            "model": [layer.zeros for layer in sp.summarize(self.forward).layers],
        }

    def save(self, folder: Path) -> None:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        with quiet():
            dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)

    def load(self, folder: Path) -> "Job":
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer}
        with quiet():
            dcp.load(state, checkpoint_id=folder)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        return self


def whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def quiet() -> warnings.catch_warnings:
    return warnings.catch_warnings(action="ignore")  # checkpoints without a process group are announced


def process(rank: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    outcomes = {}
    for method in METHODS:
        outcomes["ddp", method] = Job(method, "ddp").train(range(STEPS), rank, 2).outcome()
        around = "ddp around a threshold"
        outcomes[around, method] = Job(method, around).train(range(STEPS), rank, 2).outcome()
        job = Job(method, "fsdp").train(range(HALF), rank, 2)
        job.save(folder / f"two-{method}")
        outcomes["half", method] = job.outcome()
        outcomes["fsdp", method] = job.train(range(HALF, STEPS), rank, 2).outcome()
        resumed = Job(method, "fsdp", seed=1).load(folder / f"one-{method}")
        outcomes["one to two", method] = resumed.train(range(HALF, STEPS), rank, 2).outcome()
    outcomes["full", "slats"] = through_full_state_dicts(rank)
    outcomes["outside", "slats"] = weights_set_from_outside(rank)
    outcomes["doubled", "slats"] = doubled(Job("slats", "fsdp"), rank, 2)
    outcomes["saved at every step", "lats"] = saving_at_every_step(rank)
    torch.save(outcomes, folder / f"outcomes-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def through_full_state_dicts(rank: int) -> dict[str, object]:
    """Gathered on every process, loaded from the first one's."""
    half = Job("slats", "fsdp").train(range(HALF), rank, 2)
    options = StateDictOptions(full_state_dict=True)
    files = (
        get_model_state_dict(half.model, options=options),
        get_optimizer_state_dict(half.model, half.optimizer, options=options),
    )
    resumed = Job("slats", "fsdp", seed=1)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(resumed.model, files[0] if rank == 0 else {}, options=options)
    set_optimizer_state_dict(resumed.model, resumed.optimizer, files[1] if rank == 0 else {}, options=options)
    return resumed.train(range(HALF, STEPS), rank, 2).outcome()


def weights_set_from_outside(rank: int) -> dict[str, object]:
    """Zeros swapped in and the weights out again: θ stays."""
    job = Job("slats", "fsdp").train(range(HALF), rank, 2)
    own = [p.detach().clone() for p in job.model.parameters()]
    with torch.no_grad():
        for p in job.model.parameters():
            p.zero_()
        for p, w in zip(job.model.parameters(), own, strict=True):
            p.copy_(w)
    return job.train(range(HALF, STEPS), rank, 2).outcome()


def doubled(job: Job, rank: int = 0, world: int = 1) -> dict[str, object]:
    """Half of the way, all weights times two, each process its part; and on."""
    job.train(range(HALF), rank, world)
    with torch.no_grad():
        for p in job.model.parameters():
            (p.to_local() if isinstance(p, DTensor) else p).mul_(2)
    return job.train(range(HALF, STEPS), rank, world).outcome()


def saving_at_every_step(rank: int) -> dict[str, object]:
    job = Job("lats", "fsdp")
    for step in range(STEPS):
        job.train(range(step, step + 1), rank, 2)
        job.optimizer.zero_grad()
        get_state_dict(job.model, job.optimizer)
    return job.outcome()
