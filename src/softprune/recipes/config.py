"""What a run is: one flat, frozen, typed value. ``key=value`` on the command line changes a field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, Self, get_args, get_type_hints

from softprune.errors import ConfigError, did_you_mean

_TRAINED = ("init", "threshold_decay")
READS: dict[str, tuple[str, ...]] = {
    "dense": (),
    "slats": ("final", "target", "min_density"),
    "lats": ("final", "penalty", "target", "min_density"),
    "pgh": ("final", "beta"),
    "init": ("final",),
    "sine": ("final",),
    "linear": ("final",),
    "log2": ("final",),
    "str": _TRAINED,
    "str-gs": _TRAINED,
    "gpo": (*_TRAINED, "blend_decay"),
}
"""A method's name -> those settings that it reads and that others do not."""

EVALUATION = ("data", "image_size", "batch", "precision", "workers", "accelerator")
"""What may differ when a trained network is measured again."""

BUILT_IN = ("digits", "synthetic")  # data that are no files
OPTIMIZERS = ("sgd", "adam", "adamw")
LR_CURVES = ("cosine", "epoch-cosine", "constant")
GRADIENTS = ("identity", "subgradient")


def _setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Config:
    """Settings of a training run. Names become objects in ``methods.py``, ``task.py`` and ``run.py``."""

    # what is trained
    network: str = _setting(
        "digits_resnet",
        "digits_resnet, mlp, mobilenet_v1, mobilenet_v1_cifar, resnet18, resnet18_cifar, resnet20, resnet50, "
        "sew_digits, sew_resnet18, sew_resnet18_cifar",
    )
    data: str = _setting("digits", "digits, synthetic, idx:FOLDER, or a folder with train/ and val/")
    image_size: int | None = _setting(
        None, "to which images are cropped; when none, 224, and small images stay as they are"
    )
    # how it is trained
    epochs: int = _setting(40, "how often the images are seen")
    batch: int = _setting(64, "images in a step, over all processes")
    optimizer: str = _setting("sgd", ", ".join(OPTIMIZERS))
    lr: float = _setting(0.1, "the learning rate at its peak")
    lr_curve: str = _setting("cosine", f"{', '.join(LR_CURVES)}; epoch-cosine, the paper's, falls after each epoch")
    warmup: int = _setting(0, "epochs of linear warm-up")
    momentum: float = _setting(0.9, "of sgd")
    nesterov: bool = _setting(False, "Nesterov's momentum, of sgd: true, false")
    weight_decay: float = _setting(1e-4, "weight decay on the network")
    label_smoothing: float = _setting(0.0, "from 0 to 1")
    seed: int = _setting(0, "of the first weights and of the order of images")
    # how it is pruned
    method: str = _setting("slats", ", ".join(READS))
    target: float | None = _setting(None, "the sparsity at the end; replaces the threshold of slats and lats")
    min_density: float | None = _setting(None, "what a target leaves of every layer; 0.001 when none, 0 lets layers go")
    final: float | None = _setting(None, "D, the threshold at the end; of all methods but dense, str, str-gs and gpo")
    penalty: float | None = _setting(None, "μ of lats, instead of D")
    beta: float | None = _setting(None, "pgh's decay, between 0 and 1")
    init: float | None = _setting(None, "s of str, str-gs and gpo at the start")
    threshold_decay: float | None = _setting(None, "weight decay on s; the network's when none")
    blend_decay: float | None = _setting(None, "weight decay on gpo's b; as on s when none")
    start: int = _setting(0, "epochs before pruning begins")
    gradient: str | None = _setting(None, f"{', '.join(GRADIENTS)}; the method's own when none")
    exclude: tuple[str, ...] = _setting((), "patterns of parameters to leave alone, with commas between: fc.*,conv1.*")
    # on what it runs
    precision: str = _setting("32-true", "32-true, bf16-mixed, 16-mixed, bf16-true, 16-true, 64-true")
    compile: bool = _setting(False, "whether torch compiles the network: true, false")
    workers: int = _setting(4, "processes that read images")
    accelerator: str = _setting("auto", "auto, cpu, cuda, mps")
    devices: str = _setting("auto", "how many: auto, 1, 2, ...")
    strategy: str = _setting("auto", "auto, ddp, fsdp, and others of Lightning's")
    nodes: int = _setting(1, "machines")
    checkpoint_minutes: float = _setting(10.0, "between two checkpoints; 0 saves after every step")

    def __post_init__(self) -> None:
        self._must_be(">= 1", lambda x: x >= 1, "epochs", "batch", "image_size", "nodes")
        self._must_be(">= 0", lambda x: x >= 0, "warmup", "start", "workers")
        self._must_be(">= 0 and < 2**32", lambda x: 0 <= x < 2**32, "seed")
        amounts = ("lr", "weight_decay", "final", "penalty", "threshold_decay", "blend_decay", "checkpoint_minutes")
        self._must_be(">= 0 and finite", lambda x: 0 <= x < math.inf, *amounts)
        self._must_be("finite", math.isfinite, "init")
        self._must_be(">= 0 and < 1", lambda x: 0 <= x < 1, "momentum", "min_density")
        self._must_be(">= 0 and <= 1", lambda x: 0 <= x <= 1, "label_smoothing")
        self._must_be("> 0 and < 1", lambda x: 0 < x < 1, "beta")
        self._must_be("> 0 and < 1, as 0.95", lambda x: 0 < x < 1, "target")
        if self.warmup + self.start >= self.epochs and self.warmup + self.start > 0:
            raise ConfigError(f"`warmup` + `start` must be < epochs = {self.epochs}. Got {self.warmup} + {self.start}.")
        if self.optimizer == "sgd" and self.nesterov and self.momentum == 0:
            raise ConfigError("`nesterov` needs `momentum` > 0. Write `nesterov=false`, or `momentum=0.9`.")
        if self.devices != "auto" and not (self.devices.isdecimal() and int(self.devices) >= 1):
            raise ConfigError(f"`devices` must be auto or a whole number >= 1. Got {self.devices!r}.")
        _one_of("optimizer", self.optimizer, OPTIMIZERS)
        _one_of("lr_curve", self.lr_curve, LR_CURVES)
        if self.gradient is not None:
            _one_of("gradient", self.gradient, GRADIENTS)

    def _must_be(self, words: str, holds: Callable[[float], bool], *names: str) -> None:
        for name in names:
            if (value := getattr(self, name)) is not None and not holds(value):
                raise ConfigError(f"`{name}` must be {words}. Got {value}.")

    def meanings(self) -> dict[str, str]:
        """Every setting as it is written on the command line -> what it means.

        >>> Config().meanings()["warmup=0"]
        'epochs of linear warm-up'
        """
        return {f"{item.name}={_text(getattr(self, item.name))}": item.metadata["meaning"] for item in fields(self)}

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

    def located(self) -> Self:
        """A copy that finds its data from any folder, and names them as it did before when they are gone."""
        if self.data in BUILT_IN:
            return self
        kind = "idx:" if self.data.startswith("idx:") else ""
        place = Path(self.data.removeprefix(kind)).expanduser()
        return replace(self, data=f"{kind}{place.absolute()}")

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        values: dict[str, Any] = json.loads(text)
        known = {item.name for item in fields(cls)}
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


def _text(value: Any) -> str:
    """As ``_parse`` reads it."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _words(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, kind.__name__)


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"`{name}` must be one of {', '.join(choices)}. Got {value!r}.")
