"""Method names -> thresholds. The only place where a name becomes a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn
from torch.optim.lr_scheduler import LRScheduler

import softprune as sp
from softprune.errors import ConfigError, did_you_mean
from softprune.training.config import Config

Scheduled = sp.Threshold | Callable[[int], float]


def _schedule(kind: Callable[..., Scheduled]) -> Callable[..., Scheduled]:
    return lambda config, scheduler, steps, start: kind(need(config, "final"), steps, start=start)


def _lats(config: Config, scheduler: LRScheduler, steps: int, start: int) -> Scheduled:
    if config.penalty is not None:
        return sp.LATS(config.penalty, start=start)
    return sp.LATS.from_final(need(config, "final"), scheduler, steps, start=start)


def _pgh(config: Config, scheduler: LRScheduler, steps: int, start: int) -> Scheduled:
    return sp.PGH(need(config, "final"), steps, need(config, "beta"), start=start)


def _init(config: Config, scheduler: LRScheduler, steps: int, start: int) -> Scheduled:
    return sp.Constant(need(config, "final"), start=start)


SCHEDULED: dict[str, Callable[..., Scheduled]] = {
    "slats": _schedule(sp.SLATS),
    "lats": _lats,
    "pgh": _pgh,
    "init": _init,
    "sine": _schedule(sp.Sine),
    "linear": _schedule(sp.Linear),
    "log2": _schedule(sp.Log2),
}
TRAINED: dict[str, Callable[[Mapping[str, nn.Parameter], float], sp.Trainable]] = {
    "str": lambda params, init: sp.STR(params, init),
    "str-gs": lambda params, init: sp.STR(params, init, shared=True),
    "gpo": lambda params, init: sp.GPO(params, init),
}
METHODS = ("dense", *SCHEDULED, *TRAINED)
GRADIENTS = {None: None, "identity": sp.identity, "subgradient": sp.subgradient}


def trained(config: Config, params: Mapping[str, nn.Parameter]) -> sp.Trainable | None:
    """The threshold whose parameters the optimizer must hold, for the methods that train one."""
    return TRAINED[config.method](params, need(config, "init")) if config.method in TRAINED else None


def scheduled(config: Config, scheduler: LRScheduler, steps: int, start: int) -> Scheduled:
    """The threshold of the other methods; ``start`` in steps."""
    if config.target is not None:
        return sp.TargetSparsity(config.target, steps, lr_scheduler=scheduler, start=start)
    return SCHEDULED[config.method](config, scheduler, steps, start)


def check(config: Config) -> None:
    """Refuse a method that does not exist, or that lacks a number, before anything is built."""
    if config.method not in METHODS:
        hint = did_you_mean(config.method, METHODS)
        raise ConfigError(f"There is no method {config.method!r}.{hint} Methods: {', '.join(METHODS)}.")
    if config.target is not None:
        _target(config)
    elif config.method in TRAINED:
        need(config, "init")
        if config.strategy == "fsdp":
            raise ConfigError(
                f"Cannot use the method {config.method!r} with `strategy=fsdp`. This is because sharded checkpoints "
                "hold the network's parameters only. Use `strategy=ddp`."
            )
    elif config.method != "dense" and not (config.method == "lats" and config.penalty is not None):
        need(config, "final")
    if config.method == "pgh" and config.target is None:
        need(config, "beta")


def _target(config: Config) -> None:
    if config.method in (*TRAINED, "dense"):
        raise ConfigError(
            f"Cannot use `target` with the method {config.method!r}. This is because it has no threshold to steer. "
            "Use a recipe of slats."
        )
    if not 0 < config.target < 1:  # type: ignore[operator]
        raise ConfigError(f"`target` must be > 0 and < 1, as 0.95. Got {config.target}.")


def need(config: Config, name: str) -> float:
    value = getattr(config, name)
    if value is None:
        raise ConfigError(f"The method {config.method!r} needs `{name}`: write `{name}=...`.")
    return float(value)
