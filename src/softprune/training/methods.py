"""Method names -> thresholds. The only place where a name becomes a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import nn
from torch.optim.lr_scheduler import LRScheduler

import softprune as sp
from softprune.errors import ConfigError, did_you_mean
from softprune.recipes.config import READS, Config
from softprune.schedules.curves import Curve, Polynomial

Scheduled = sp.Threshold | Callable[[int], float]


CURVES: dict[str, Curve | None] = {  # None is what S-LATS and PGH follow by themselves
    "cosine": None,
    "epoch-cosine": None,
    "constant": Polynomial(0.0),
}


def _schedule(kind: Callable[..., Scheduled]) -> Callable[..., Scheduled]:
    return lambda config, scheduler, steps, start: kind(need(config, "final"), steps, start=start)


def _slats(config: Config, scheduler: LRScheduler, steps: int, start: int) -> Scheduled:
    return sp.SLATS(need(config, "final"), steps, lr=CURVES[config.lr_curve], start=start)


def _lats(config: Config, scheduler: LRScheduler, steps: int, start: int) -> Scheduled:
    if config.penalty is not None:
        return sp.LATS(config.penalty, start=start)
    return sp.LATS.from_final(need(config, "final"), scheduler, steps, start=start)


def _pgh(config: Config, scheduler: LRScheduler, steps: int, start: int) -> Scheduled:
    return sp.PGH(need(config, "final"), steps, need(config, "beta"), lr=CURVES[config.lr_curve], start=start)


def _init(config: Config, scheduler: LRScheduler, steps: int, start: int) -> Scheduled:
    return sp.Constant(need(config, "final"), start=start)


SCHEDULED: dict[str, Callable[..., Scheduled]] = {
    "slats": _slats,
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
GRADIENTS = {None: None, "identity": sp.identity, "subgradient": sp.subgradient}


def trained(config: Config, params: Mapping[str, nn.Parameter]) -> sp.Trainable | None:
    """The threshold whose parameters the optimizer must hold, for the methods that train one."""
    return TRAINED[config.method](params, need(config, "init")) if config.method in TRAINED else None


def scheduled(config: Config, scheduler: LRScheduler, steps: int, start: int) -> Scheduled:
    """The threshold of the other methods; ``start`` in steps."""
    if config.target is not None:
        goal = sp.TargetSparsity(config.target, steps, lr_scheduler=scheduler, start=start)
        return goal if config.min_density is None else replace(goal, min_density=config.min_density)
    return SCHEDULED[config.method](config, scheduler, steps, start)


def check(config: Config) -> None:
    """Refuse a method that does not exist, lacks a number, or has one that it does not read."""
    if config.method not in READS:
        hint = did_you_mean(config.method, READS)
        raise ConfigError(f"There is no method {config.method!r}.{hint} Methods: {', '.join(READS)}.")
    _refuse_the_unread(config)
    if config.target is None:
        _need_all(config)
    if config.method in TRAINED and config.strategy == "fsdp":
        raise ConfigError(
            f"Cannot use the method {config.method!r} with `strategy=fsdp`. This is because sharded checkpoints "
            "hold the network's parameters only. Use `strategy=ddp`."
        )


def _refuse_the_unread(config: Config) -> None:
    """A target replaces the final threshold, which recipes give; everything else that is given must be read."""
    if config.target is not None and "target" not in READS[config.method]:
        raise ConfigError(
            f"Cannot use `target` with the method {config.method!r}. This is because a target has a threshold of its "
            "own, which follows the learning rate as that of slats does. Use a recipe of slats."
        )
    if config.target is None and config.min_density is not None:
        raise ConfigError("`min_density` guards layers from a target. Write `target=...` too, or `min_density=none`.")
    for name in sorted({name for names in READS.values() for name in names} - {*READS[config.method]}):
        if getattr(config, name) is not None:
            readers = [method for method, names in READS.items() if name in names]
            raise ConfigError(
                f"The method {config.method!r} does not read `{name}`. Write `{name}=none`, or choose a method that "
                f"does: {', '.join(readers)}."
            )
    unpruned, trained = config.method == "dense", config.method in TRAINED
    for name, ignored in (("start", unpruned or trained), ("exclude", unpruned), ("gradient", unpruned)):
        if ignored and getattr(config, name):
            raise ConfigError(f"The method {config.method!r} does not read `{name}`. Leave it out.")
    if config.penalty is not None and (config.final is not None or config.target is not None):
        other = "target" if config.target is not None else "final"
        raise ConfigError(
            f"The method 'lats' reads `{other}` or `penalty`, not both. Write `{other}=none` or `penalty=none`."
        )


def _need_all(config: Config) -> None:
    """What has no default; a penalty stands for a final threshold."""
    for name in READS[config.method]:
        if name in ("beta", "init") or (name == "final" and config.penalty is None):
            need(config, name)


def need(config: Config, name: str) -> float:
    value = getattr(config, name)
    if value is None:
        raise ConfigError(f"The method {config.method!r} needs `{name}`: write `{name}=...`.")
    return float(value)
