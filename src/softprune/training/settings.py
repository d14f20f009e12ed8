"""Settings and names together: what a setting means, and which settings a run cannot have.

Everything here is answered without torch, before anything is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from softprune.errors import ConfigError
from softprune.recipes.config import Config, as_text
from softprune.training import names
from softprune.training.entries import Names
from softprune.training.names import METHODS, OF_METHODS, OF_OPTIMIZERS, OPTIMIZERS

CHOICES: Mapping[str, Names[Any]] = {
    "network": names.NETWORKS,
    "data": names.DATA,
    "optimizer": names.OPTIMIZERS,
    "lr_curve": names.LR_CURVES,
    "method": names.METHODS,
    "pattern": names.PATTERNS,
    "count": names.COUNTS,
    "gradient": names.GRADIENTS,
    "decode": names.DECODE,
}
"""Settings whose values are names -> their entries."""


def meanings(config: Config) -> dict[str, str]:
    """Every setting as it is written on the command line -> what it means, with the names that it can have.

    >>> meanings(Config())["warmup=0"]
    'epochs of linear warm-up'
    >>> meanings(Config())["gradient=none"]
    "identity, calm, subgradient; the method's own when none"
    """
    return {f"{f.name}={as_text(getattr(config, f.name))}": _meaning(f) for f in fields(config)}


def _meaning(setting: Any) -> str:
    said: str = setting.metadata["meaning"]
    listed = ", ".join(CHOICES.get(setting.name, ()))
    if setting.name in (*OF_METHODS, *OF_OPTIMIZERS) and len(readers := _readers(setting.name)) < len(METHODS) - 1:
        said = f"{said} ({', '.join(readers)})"
    return "; ".join(part for part in (listed, said) if part)


def choices(config: Config) -> dict[str, str]:
    """What was chosen -> what that is, in a few words.

    >>> choices(Config())["lr_curve=cosine"]
    'falls at every step'
    """
    chosen = {
        setting: getattr(config, setting) for setting in ("method", "pattern", "network", "optimizer", "lr_curve")
    }
    return {f"{setting}={name}": CHOICES[setting].find(name).about for setting, name in chosen.items()}


def complete(incomplete: str) -> list[str]:
    """What a setting that is being typed may become.

    >>> complete("lr")
    ['lr=', 'lr_curve=']
    >>> complete("optimizer=ad")
    ['optimizer=adam', 'optimizer=adamw']
    """
    name, equals, _ = incomplete.partition("=")
    words = (
        [f"{name}={choice}" for choice in CHOICES.get(name, ())] if equals else [f"{f.name}=" for f in fields(Config)]
    )
    return [word for word in words if word.startswith(incomplete)]


def check(config: Config) -> None:
    """Refuse names that do not exist, a method that lacks a setting, and settings that would not be read."""
    for setting, table in CHOICES.items():
        name = getattr(config, setting)
        if name is not None and setting != "data":  # which may be any folder
            table.find(name)
    _refuse_other_data(config)
    _refuse_the_unread(config)
    for name in METHODS[config.method].needs:
        replaced = name == "final" and (config.target is not None or config.penalty is not None)
        if getattr(config, name) is None and not replaced:
            raise ConfigError(f"The method {config.method!r} needs `{name}`: write `{name}=...`.")
    if METHODS[config.method].trained and names.PATTERNS[config.pattern].units:
        raise ConfigError(
            f"Cannot use the method {config.method!r} with `pattern={config.pattern}`. This is because each layer "
            "trains a threshold of its own, and what is pruned as a whole lies in several layers. Use "
            "`pattern=block4`, or the method 'target'."
        )
    if config.precision == "16-true" and config.optimizer.startswith("adam"):
        raise ConfigError(
            f"Cannot use `optimizer={config.optimizer}` with `precision=16-true`. This is because its ε is zero in "
            "half precision, and weights become NaN. Write `precision=16-mixed` or `precision=bf16-true`."
        )
    if config.devices.isdecimal() and config.batch % (processes := int(config.devices) * config.nodes):
        raise ConfigError(f"`batch` must be divisible by the number of processes, {processes}. Got {config.batch}.")
    if METHODS[config.method].trained and config.strategy == "fsdp":
        raise ConfigError(
            f"Cannot use the method {config.method!r} with `strategy=fsdp`. This is because sharded checkpoints "
            "hold the network's parameters only. Use `strategy=ddp`."
        )


def _refuse_other_data(config: Config) -> None:
    """A network reads images or text, and data are one of them."""
    takes, data = names.NETWORKS[config.network].takes, names.kind_of_data(config)
    if data.kind not in (takes, None):
        others = [entry.name for entry in names.NETWORKS.values() if entry.takes == data.kind]
        raise ConfigError(
            f"Cannot use the network {config.network!r} with `data={config.data}`. This is because the network takes "
            f"{takes}, and the data are {data.kind}. Choose other data, or one of the networks {', '.join(others)}."
        )


def _refuse_the_unread(config: Config) -> None:
    """Every setting of methods and optimizers must be read by those that were chosen; only `final` yields to
    `target`."""
    method, optimizer = METHODS[config.method], OPTIMIZERS[config.optimizer]
    if config.target is not None and not method.takes("target"):
        raise ConfigError(
            f"Cannot use `target` with the method {config.method!r}. This is because a target has a threshold of its "
            "own, which follows the learning rate as that of slats does. Use a recipe of target or slats."
        )
    for name in (name for name in OF_METHODS if not method.takes(name)):
        _refuse_a_change(config, name, "method")
    for name in (name for name in OF_OPTIMIZERS if not optimizer.takes(name)):
        _refuse_a_change(config, name, "optimizer")
    if config.nesterov and config.momentum == 0:
        raise ConfigError("`nesterov` needs `momentum` > 0. Write `nesterov=false`, or `momentum=0.9`.")
    if config.target is None and config.min_density is not None:
        raise ConfigError("`min_density` guards layers from a target. Write `target=...` too, or `min_density=none`.")
    if config.target is None and config.count != Config().count:
        raise ConfigError("`count` says what a target counts. Write `target=...` too, or `count=weights`.")
    if config.target is None and config.arrive is not None:
        raise ConfigError("`arrive` says when a target is reached. Write `target=...` too, or `arrive=none`.")
    if config.penalty is not None and (config.final is not None or config.target is not None):
        other = "target" if config.target is not None else "final"
        raise ConfigError(
            f"The method 'lats' reads `{other}` or `penalty`, not both. Write `{other}=none` or `penalty=none`."
        )


def _refuse_a_change(config: Config, name: str, chooser: str) -> None:
    """The setting ``name``, which the method or optimizer does not read, must have its default."""
    default = getattr(Config(), name)
    if getattr(config, name) != default:
        raise ConfigError(
            f"The {chooser} {getattr(config, chooser)!r} does not read `{name}`. Write `{name}={as_text(default)}`, or "
            f"choose one that does: {', '.join(_readers(name))}."
        )


def _readers(setting: str) -> list[str]:
    """The methods or optimizers that read a setting."""
    methods = [method.name for method in METHODS.values() if method.takes(setting)]
    return methods + [optimizer.name for optimizer in OPTIMIZERS.values() if optimizer.takes(setting)]
