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
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel

import softprune as sp
from softprune.errors import ArgumentError

STEPS, HALF = 6, 3


METHODS = ["slats", "str", "str-shared", "gpo", "lats", "target", "held", "gradual", "keep"]
METHODS += ["blocks", "blocks-str", "channels", "channels-lats", "channels-subgradient", "groups"]


class Network(nn.Module):
    """7, 1 and 3 rows: over two processes every shard is uneven, and one is empty."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1), nn.Tanh(), nn.Linear(1, 3)).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def grouping(method: str, model: nn.Module) -> sp.Grouping | None:
    """Blocks that lie within rows, neurons that the network's structure tells, or by hand: they span the processes."""
    if method.startswith("blocks"):
        return sp.Blocks(1, 4)
    if method.startswith("channels"):
        return sp.Channels(model, torch.zeros(1, 6, dtype=torch.float64))
    if method == "groups":
        columns = {j: [("layers.0.weight", 1, [j])] for j in range(6)}
        return sp.Groups(columns | {"rest": [("layers.2.weight", 1, [0, 3, 6]), ("layers.4.weight", 0, [2])]})
    return None


class Job:
    """A pruned run, alone or as one of several processes."""

    def __init__(self, method: str, kind: str = "alone", seed: int = 0) -> None:
        self.model: nn.Module = Network(seed)
        if method == "keep":
            with torch.no_grad():
                for p in sp.select(self.model).values():
                    p[p.abs() < p.abs().mean()] = 0.0
        pattern = grouping(method, self.model)  # before the network is sharded
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
            "blocks": lambda: sp.TargetSparsity(0.5, STEPS, refresh=1),
            "blocks-str": lambda: sp.STR(params, init=-1.5),
            "channels": lambda: sp.TargetSparsity(0.5, STEPS, refresh=1),
            "channels-lats": lambda: sp.LATS(1.6),
            "channels-subgradient": lambda: sp.Linear(1.0, STEPS),
            "groups": lambda: sp.GradualSparsity(0.4, STEPS, refresh=2),
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
        stateless = "lats" in method.split("-")  # plain SGD keeps no state
        self.optimizer = torch.optim.SGD(groups, lr=0.1) if stateless else torch.optim.Adam(groups, lr=0.03)
        turned = {"gradient": sp.subgradient, "prox": sp.SoftThreshold()} if "subgradient" in method else {}
        self.pruner = sp.Pruner(params, self.optimizer, threshold=threshold, groups=pattern, **turned)

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
    for method in ("slats", "channels"):
        outcomes["full", method] = through_full_state_dicts(method, rank)
        outcomes["outside", method] = weights_set_from_outside(method, rank)
        outcomes["doubled", method] = doubled(Job(method, "fsdp"), rank, 2)
    outcomes["saved at every step", "lats"] = saving_at_every_step(rank)
    outcomes["refusals", "blocks"] = refusals()
    torch.save(outcomes, folder / f"outcomes-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def through_full_state_dicts(method: str, rank: int) -> dict[str, object]:
    """Gathered on every process, loaded from the first one's."""
    half = Job(method, "fsdp").train(range(HALF), rank, 2)
    options = StateDictOptions(full_state_dict=True)
    files = (
        get_model_state_dict(half.model, options=options),
        get_optimizer_state_dict(half.model, half.optimizer, options=options),
    )
    resumed = Job(method, "fsdp", seed=1)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(resumed.model, files[0] if rank == 0 else {}, options=options)
    set_optimizer_state_dict(resumed.model, resumed.optimizer, files[1] if rank == 0 else {}, options=options)
    return resumed.train(range(HALF, STEPS), rank, 2).outcome()


def weights_set_from_outside(method: str, rank: int) -> dict[str, object]:
    """Zeros swapped in and the weights out again: θ stays."""
    job = Job(method, "fsdp").train(range(HALF), rank, 2)
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


def refusals() -> dict[str, str]:
    """What blocks say to parameters that are sharded along rows, or along columns; a bias is one row."""
    mesh, said = init_device_mesh("cpu", (dist.get_world_size(),)), {}
    for kind, dim in (("", 0), ("columns ", 1), ("vector ", 0)):
        for size in {"": [(2, 4), (4, 1), (3, 4)], "columns ": [(2, 3), (1, 4)], "vector ": [(3, 4), (1, 3)]}[kind]:
            layer = Network(0).layers[0]
            fully_shard(layer, mesh=mesh, shard_placement_fn=lambda p, dim=dim: Shard(min(dim, p.ndim - 1)))
            name = "bias" if kind == "vector " else "weight"
            try:
                sp.Blocks(*size).bind({f"layers.0.{name}": layer.get_parameter(name)})
                said[f"{kind}{size}"] = ""
            except ArgumentError as error:
                said[f"{kind}{size}"] = str(error)
    return said
