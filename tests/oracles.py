"""Slow references, and the small runs that are held against them.

The oracle writes pruning as a textbook does: θ is the leaf, w = w(θ, d) is computed in the forward pass, autograd
carries the gradient back to θ (and s), and the very same torch optimizer updates θ. Nothing here knows of hooks.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim.lr_scheduler import LambdaLR

import softprune as sp
from small_networks import network

STEPS = 8

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.1, weight_decay=0.01),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": partial(torch.optim.Adam, lr=0.03, weight_decay=0.01),
    "adamw": partial(torch.optim.AdamW, lr=0.03, weight_decay=0.1, foreach=False),
    "adamw-foreach": partial(torch.optim.AdamW, lr=0.03, weight_decay=0.1, foreach=True),
    "adamw-fused": partial(torch.optim.AdamW, lr=0.03, weight_decay=0.1, fused=True),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.01, momentum=0.5),
    "lbfgs": partial(torch.optim.LBFGS, lr=0.05, max_iter=3),
    "lbfgs-wolfe": partial(torch.optim.LBFGS, lr=0.05, max_iter=3, line_search_fn="strong_wolfe"),
}

METHODS: dict[str, Callable[[dict[str, nn.Parameter]], Any]] = {
    "slats": lambda params: sp.SLATS(0.2, STEPS),
    "delayed": lambda params: sp.Linear(0.2, STEPS, start=3),
    "short": lambda params: sp.Sine(0.2, STEPS // 2),  # over before training is
    "constant": lambda params: sp.Constant(0.1),
    "lats": lambda params: sp.LATS(0.5),
    "str": lambda params: sp.STR(params, init=-2.0),
    "str-exp": lambda params: sp.STR(params, init=-2.0, transform="exp"),
    "str-shared": lambda params: sp.STR(params, init=-2.0, shared=True),
    "gpo": lambda params: sp.GPO(params, init=-2.0),
}


def batch(step: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    return x.to(dtype), torch.randn(5, 3, generator=generator, dtype=torch.float64).to(dtype)


def loss_of(forward: Callable[[Tensor], Tensor], step: int, dtype: torch.dtype = torch.float64) -> Tensor:
    x, y = batch(step, dtype)
    return nn.functional.mse_loss(forward(x), y)


def groups(model: nn.Module, trained: Iterable[nn.Parameter], one: bool = False) -> list[Any]:
    """Two param groups with learning rates of their own, and one for a trained threshold with its own decay."""
    first, *rest = model.parameters()
    trained = list(trained)
    if one:
        return [first, *rest, *trained]
    decay = [{"params": trained, "weight_decay": 0.05}] if trained else []
    return [{"params": [first], "lr": 0.02}, {"params": rest}, *decay]


def train(
    forward: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    steps: Iterable[int] = range(STEPS),
    *,
    scheduler: Any = None,
    after_step: Callable[[int], None] = lambda step: None,
    dtype: torch.dtype = torch.float64,
) -> list[float]:
    """The loop of a user, with a closure where the optimizer wants one."""
    losses: list[float] = []

    def closure(step: int) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(forward, step, dtype)
        loss.backward()
        losses.append(loss.item())
        return loss

    for step in steps:
        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(partial(closure, step))
        else:
            closure(step)
            optimizer.step()
        after_step(step)
        if scheduler:
            scheduler.step()
    return losses


def falling(optimizer: torch.optim.Optimizer) -> LambdaLR:
    return LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))


@dataclass
class Run:
    """A pruned training run."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    pruner: sp.Pruner
    scheduler: LambdaLR
    dtype: torch.dtype

    @classmethod
    def of(
        cls,
        optimizer: str | Callable[..., torch.optim.Optimizer] = "sgd",
        method: str | Callable[..., Any] = "slats",
        kind: str = "linear",
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        **pruner: Any,
    ) -> Run:
        model = network(kind, dtype, seed)
        params = sp.select(model)
        threshold = (METHODS[method] if isinstance(method, str) else method)(params)
        trained = threshold.parameters() if isinstance(threshold, sp.Trainable) else ()
        make = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
        one = isinstance(optimizer, str) and optimizer.startswith("lbfgs")  # takes one param group only
        opt = make(groups(model, trained, one))
        return cls(model, opt, sp.Pruner(params, opt, threshold=threshold, **pruner), falling(opt), dtype)

    def train(self, steps: Iterable[int] = range(STEPS), **arguments: Any) -> list[float]:
        return train(self.model, self.optimizer, steps, scheduler=self.scheduler, dtype=self.dtype, **arguments)

    def numbers(self) -> Iterator[tuple[str, Tensor]]:
        """Everything that training decides."""
        yield from numbers(self.model)
        yield from numbers(self.pruner)


def numbers(thing: Run | sp.Pruner | nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What a run, a pruner or a model consists of."""
    match thing:
        case Run():
            yield from thing.numbers()
        case nn.Module():
            yield from thing.state_dict().items()
        case sp.Pruner():
            yield from ((f"w of {name}", p.detach()) for name, p in thing.params.items())
            yield from ((f"theta of {name}", theta) for name, theta in thing.theta.items())
            yield from ((f"trained {i}", p.detach()) for i, p in enumerate(thing.rule.trained))
            yield "d", torch.tensor(list(thing.threshold.values()), dtype=torch.float64)
            yield "step", torch.tensor(thing.step)


def assert_same(one: Run | sp.Pruner | nn.Module, other: Run | sp.Pruner | nn.Module) -> None:
    """Bit for bit."""
    for (name, a), (_, b) in zip(numbers(one), numbers(other), strict=True):
        assert torch.equal(a, b), name


def stop(pruner: sp.Pruner) -> None:
    """Detach before the threshold's time, without the warning that this is so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pruner.detach()


def refused(build: Callable[[], object], text: str, error: type[Exception] = ValueError) -> None:
    """With a sentence that holds this text."""
    with pytest.raises(error, match=re.escape(text)):
        build()


def saved(value: Any) -> Any:
    """What comes back from a file that torch loads without executing code."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


class StraightThrough(torch.autograd.Function):
    """S_d forward, the identity backward."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, d: float) -> Tensor:
        return theta - theta.clamp(-d, d)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def shrink(theta: Tensor, d: float | Tensor) -> Tensor:
    """S_d as STR's authors write it, for autograd to differentiate."""
    return theta.sign() * torch.relu(theta.abs() - d)


class Oracle:
    """The same run, re-parametrized: ``model`` holds θ, and ``forward`` computes with w."""

    def __init__(self, optimizer: str, method: str, kind: str = "linear", dtype: torch.dtype = torch.float64) -> None:
        self.model, self.dtype = network(kind, dtype), dtype
        self.theta = sp.select(self.model)
        self.method = method
        self.gradient: Callable[..., Tensor] = StraightThrough.apply
        layers = 1 if method == "str-shared" else len(self.theta)
        s_dtype = torch.promote_types(dtype, torch.float32)
        self.s = nn.Parameter(torch.full((layers,), -2.0, dtype=s_dtype))
        self.b = nn.Parameter(torch.full((layers,), 1e6, dtype=s_dtype))
        trained = {"str": [self.s], "gpo": [self.s, self.b]}.get(method[:3], [])
        self.optimizer = OPTIMIZERS[optimizer](groups(self.model, trained, optimizer.startswith("lbfgs")))
        self.scheduler = falling(self.optimizer)
        self.d = dict.fromkeys(self.theta, 0.1 if method == "constant" else 0.0)

    def weight(self, i: int, name: str) -> Tensor:
        theta = self.theta[name]
        match self.method:
            case "str" | "str-shared":
                return shrink(theta, torch.sigmoid(self.s[i % len(self.s)]))
            case "str-exp":
                return shrink(theta, torch.exp(self.s[i]))
            case "gpo":
                k = 1e-6 * self.b[i].abs()
                return (1 - k) * shrink(theta, torch.sigmoid(self.s[i])) + k * theta
            case _:
                return self.gradient(theta, self.d[name])

    def weights(self) -> dict[str, Tensor]:
        return {name: self.weight(i, name) for i, name in enumerate(self.theta)}

    def forward(self, x: Tensor) -> Tensor:
        return functional_call(self.model, self.weights(), (x,))

    def advance(self, step: int) -> None:
        if self.method in ("str", "str-exp", "str-shared", "gpo"):
            return
        if self.method == "lats":
            for name, p in self.theta.items():
                (lr,) = [g["lr"] for g in self.optimizer.param_groups if any(p is q for q in g["params"])]
                self.d[name] += 0.5 * lr
        else:
            self.d = dict.fromkeys(self.theta, METHODS[self.method](self.theta)(step + 1))

    def train(self, steps: Iterable[int] = range(STEPS)) -> list[float]:
        return train(
            self.forward, self.optimizer, steps, scheduler=self.scheduler, after_step=self.advance, dtype=self.dtype
        )


def assert_follows(run: Run, oracle: Oracle, rtol: float = 0.0, atol: float = 0.0) -> None:
    """The pruned run holds the oracle's θ, w and every other parameter."""
    close = partial(torch.testing.assert_close, rtol=rtol, atol=atol)
    weights = oracle.weights()
    others = dict(run.model.named_parameters())
    for name, theta in oracle.model.named_parameters():
        if name in weights:
            close(run.pruner.theta[name], theta.data, msg=lambda text, name=name: f"θ of {name}: {text}")
            close(run.pruner.params[name].data, weights[name].data, msg=lambda text, name=name: f"w of {name}: {text}")
        else:
            close(others[name].data, theta.data, msg=lambda text, name=name: f"{name}: {text}")
    for s in run.pruner.rule.trained[:1]:
        close(s.data, oracle.s.data)
