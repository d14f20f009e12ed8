"""What a run is: one flat, frozen, typed value. ``key=value`` on the command line changes a field."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from types import NoneType
from typing import Any, Self, get_args, get_type_hints

from softprune.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Config:
    """Settings of a training run. Names become objects in ``methods.py``, ``task.py`` and ``train.py``."""

    # what is trained
    network: str = "digits_resnet"
    data: str = "digits"  # "digits", "synthetic", "idx:FOLDER", or a folder with train/ and val/
    image_size: int | None = None  # to which images are cropped; when None, 224, and small images stay as they are
    # how it is trained
    epochs: int = 40
    batch: int = 64  # over all processes
    optimizer: str = "sgd"
    lr: float = 0.1
    lr_curve: str = "cosine"  # "cosine", "epoch-cosine" (as the paper: constant within an epoch), "constant"
    warmup: int = 0  # epochs of linear warm-up
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-4
    label_smoothing: float = 0.0
    seed: int = 0
    # how it is pruned
    method: str = "slats"
    target: float | None = None  # the sparsity at the end; replaces the method's own threshold
    final: float | None = None  # D: the threshold at the end
    penalty: float | None = None  # μ of LATS, instead of D
    beta: float | None = None  # PGH's decay
    init: float | None = None  # s of STR and GPO
    threshold_decay: float | None = None  # weight decay on s; the network's when None
    blend_decay: float | None = None  # weight decay on GPO's b; as on s when None
    start: int = 0  # epochs before pruning begins
    gradient: str | None = None  # "identity" or "subgradient" instead of the method's own
    exclude: tuple[str, ...] = ()  # patterns of parameters to leave alone
    # on what it runs
    precision: str = "32-true"
    compile: bool = False
    workers: int = 4
    accelerator: str = "auto"
    devices: str = "auto"
    strategy: str = "auto"
    nodes: int = 1
    checkpoint_minutes: float = 10.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "image_size", "nodes"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"`{name}` must be >= 1. Got {value}.")
        for name in ("lr", "weight_decay", "momentum", "label_smoothing", "warmup", "start", "workers", "seed"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"`{name}` must be >= 0. Got {getattr(self, name)}.")
        if self.warmup + self.start >= self.epochs and self.warmup + self.start > 0:
            raise ConfigError(f"`warmup` + `start` must be < epochs = {self.epochs}. Got {self.warmup} + {self.start}.")
        _one_of("optimizer", self.optimizer, ("sgd", "adam", "adamw"))
        _one_of("lr_curve", self.lr_curve, ("cosine", "epoch-cosine", "constant"))
        if self.gradient is not None:
            _one_of("gradient", self.gradient, ("identity", "subgradient"))

    def override(self, settings: Iterable[str]) -> Self:
        """A copy with ``["lr=0.2", "final=0.5"]`` applied.

        >>> Config().override(["lr=0.2", "exclude=fc.*,conv1.*"]).exclude
        ('fc.*', 'conv1.*')
        """
        changes: dict[str, Any] = {}
        for setting in settings:
            name, equals, text = setting.partition("=")
            if not equals:
                raise ConfigError(f"A setting is written key=value. Got {setting!r}.")
            changes[name] = _parse(name, text)
        return replace(self, **changes)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        values: dict[str, Any] = json.loads(text)
        known = {field.name for field in fields(cls)}
        if unknown := values.keys() - known:
            raise ConfigError(f"Unknown settings: {', '.join(sorted(unknown))}. Was this saved by a newer version?")
        restored: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**restored)


def _parse(name: str, text: str) -> Any:
    hints = get_type_hints(Config)
    if name not in hints:
        raise ConfigError(f"There is no setting {name!r}.{did_you_mean(name, hints)} Settings: {', '.join(hints)}.")
    kinds = get_args(hints[name]) or (hints[name],)
    if NoneType in kinds and text.lower() in ("", "none"):
        return None
    if hints[name] == tuple[str, ...]:
        return tuple(part for part in text.split(",") if part)
    kind = next(kind for kind in kinds if kind is not NoneType)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        raise ConfigError(f"`{name}` must be {_words(kind)}. Got {text!r}.") from None


def _words(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, kind.__name__)


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"`{name}` must be one of {', '.join(choices)}. Got {value!r}.")
