"""What a run is: one flat, frozen, typed value. ``key=value`` on the command line changes a field."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import NoneType, UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from softprune.errors import ConfigError, did_you_mean

EVALUATION = ("data", "image_size", "batch", "precision", "workers", "decode", "accelerator")
"""What may differ when a trained network is measured again."""

MACHINE = ("data", "compile", "workers", "decode", "accelerator", "devices", "strategy", "nodes", "checkpoint_minutes")
"""Settings that do not shape the result: on what a run is trained, and where its data are. A checkpoint can be used
whatever they are."""

_HUGE = 1e38  # about the largest number of single precision
_MANY = 2**31


def _setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Config:
    """Settings of a training run. Names become objects in ``training/names.py``, which also lists them."""

    # what is trained
    network: str = _setting("digits_resnet", "")
    data: str = _setting("digits", "a FOLDER has train/ and val/ in it, one of text has text files")
    image_size: int | None = _setting(
        None, "pixels a side to which images are cropped; when none, 224, and small images stay as they are"
    )
    # how it is trained
    epochs: int = _setting(40, "how often the images are seen; of text, an epoch is 6,400 windows")
    batch: int = _setting(64, "images, or windows of text, in a step, over all processes")
    optimizer: str = _setting("sgd", "")
    lr: float = _setting(0.1, "the learning rate at its peak")
    lr_curve: str = _setting("cosine", "epoch-cosine, the paper's, falls after each epoch")
    warmup: int = _setting(0, "epochs of linear warm-up")
    momentum: float = _setting(0.9, "of the optimizer, at least 0 and less than 1")
    nesterov: bool = _setting(False, "Nesterov's momentum: true, false")
    beta2: float = _setting(0.999, "of the optimizer, the decay of its mean of squares, at least 0 and less than 1")
    clip: float | None = _setting(None, "the largest norm of the gradient, to which longer ones are cut")
    weight_decay: float = _setting(1e-4, "weight decay on the network")
    decay_vectors: bool = _setting(True, "weight decay also on biases and normalisation: true, false")
    label_smoothing: float = _setting(0.0, "from 0 to 1")
    seed: int = _setting(0, "of the initial weights and of the order of the images or windows")
    # how it is pruned
    method: str = _setting("slats", "")
    pattern: str = _setting("none", "what is pruned as a whole")
    target: float | None = _setting(None, "the sparsity at the end; replaces D")
    count: str = _setting("weights", "what a target counts")
    arrive: float | None = _setting(
        None, "share of the run after which the target is reached, and held from then on; the method's own when none"
    )
    min_density: float | None = _setting(None, "what a target leaves of every layer; 0.001 when none, 0 lets layers go")
    final: float | None = _setting(None, "D, the threshold at the end")
    penalty: float | None = _setting(None, "μ, instead of D")
    beta: float | None = _setting(None, "β, the decay of the penalty, between 0 and 1")
    init: float | None = _setting(None, "s, the trained threshold before its sigmoid, at the start")
    threshold_decay: float | None = _setting(None, "weight decay on s; the network's when none")
    blend_decay: float | None = _setting(None, "weight decay on b; as on s when none")
    start: int = _setting(0, "epochs before pruning begins")
    power: float | None = _setting(
        None, "p of the power threshold: 1 is the soft threshold, inf the hard one; the method's own when none"
    )
    gradient: str | None = _setting(None, "the method's own when none")
    exclude: tuple[str, ...] = _setting((), "patterns of parameters to leave alone, with commas between: fc.*,conv1.*")
    # on what it runs
    precision: str = _setting("32-true", "32-true, bf16-mixed, 16-mixed, bf16-true, 16-true, 64-true")
    compile: bool = _setting(False, "whether torch compiles the network: true, false")
    workers: int = _setting(4, "processes that read images")
    decode: str = _setting("auto", "who decodes large images: auto is the GPU if it can")
    accelerator: str = _setting("auto", "auto, cpu, cuda, mps")
    devices: str = _setting("auto", "how many: auto, 1, 2, ...")
    strategy: str = _setting("auto", "auto, ddp, fsdp, and others of Lightning's")
    nodes: int = _setting(1, "machines")
    checkpoint_minutes: float = _setting(10.0, "between two checkpoints; 0 saves after every step")

    def __post_init__(self) -> None:
        self._must_be(">= 1 and < 2**31", lambda x: 1 <= x < _MANY, "epochs", "batch", "image_size", "nodes")
        self._must_be(">= 0 and < 2**31", lambda x: 0 <= x < _MANY, "warmup", "start", "workers")
        self._must_be(">= 0 and < 2**32", lambda x: 0 <= x < 2**32, "seed")
        amounts = ("lr", "weight_decay", "final", "penalty", "threshold_decay", "blend_decay", "checkpoint_minutes")
        self._must_be(">= 0 and < 1e38", lambda x: 0 <= x < _HUGE, *amounts)
        self._must_be("> -1e38 and < 1e38", lambda x: -_HUGE < x < _HUGE, "init")
        self._must_be(">= 0 and < 1", lambda x: 0 <= x < 1, "momentum", "beta2", "min_density")
        self._must_be(">= 0 and <= 1", lambda x: 0 <= x <= 1, "label_smoothing")
        self._must_be("> 0 and < 1", lambda x: 0 < x < 1, "beta")
        self._must_be("> 0 and < 1, as 0.95", lambda x: 0 < x < 1, "target")
        self._must_be("> 0 and <= 1", lambda x: 0 < x <= 1, "arrive")
        self._must_be(">= 1; inf is the hard threshold", lambda x: x >= 1, "power")
        self._must_be("> 0 and < 1e38", lambda x: 0 < x < _HUGE, "clip")
        if self.warmup + self.start >= self.epochs and self.warmup + self.start > 0:
            raise ConfigError(
                f"`warmup` + `start` must be < epochs = {self.epochs}. Got {self.warmup} + {self.start}: write "
                "`warmup=0`, or more epochs."
            )
        if self.devices != "auto" and not (
            self.devices.isdecimal() and len(self.devices) < 10 and int(self.devices) >= 1
        ):
            raise ConfigError(f"`devices` must be auto or a whole number >= 1. Got {self.devices!r}.")

    def _must_be(self, words: str, holds: Callable[[float], bool], *names: str) -> None:
        for name in names:
            if (value := getattr(self, name)) is not None and not holds(value):
                raise ConfigError(f"`{name}` must be {words}. Got {value}.")

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

    def shaping(self) -> dict[str, Any]:
        """The settings that shape the result, as JSON has them; those of ``MACHINE`` do not.

        >>> "seed" in Config().shaping(), "workers" in Config().shaping()
        (True, False)
        """
        plain: dict[str, Any] = json.loads(self.to_json())
        return {name: value for name, value in plain.items() if name not in MACHINE}

    def to_json(self) -> str:
        """JSON has no infinity, which is written as text.

        >>> Config.from_json(Config(power=math.inf).to_json()).power
        inf
        """
        values = asdict(self)
        return json.dumps(values | {"power": "inf"} if self.power == math.inf else values, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The settings that ``to_json`` wrote, also that of earlier versions."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ConfigError(f"Settings must be a JSON object. Got {type(values).__name__}.")
        values = with_defaults_of_then(values)
        if values.get("power") == "inf":
            values["power"] = math.inf
        hints = get_type_hints(cls)
        if unknown := values.keys() - hints.keys():
            raise ConfigError(f"Unknown settings: {', '.join(sorted(unknown))}. Was this saved by a newer version?")
        for name, value in values.items():
            if not fits(value, hints[name]):
                raise ConfigError(f"`{name}` must be {_words(hints[name])}. Got {value!r}.")
        restored: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**restored)


def with_defaults_of_then(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON has them, with those that were not known when they were saved.

    A target had the soft threshold then, and was reached at the end of a run; before there were patterns, its gradient
    was the identity, but for magnitude pruning. No GPU decoded images.

    >>> with_defaults_of_then({"target": 0.9})
    {'target': 0.9, 'decode': 'cpu', 'power': 1.0, 'arrive': 1.0, 'gradient': 'identity'}
    """
    then: dict[str, Any] = {**settings, "decode": settings.get("decode", "cpu")}
    if settings.get("target") is not None:
        then.setdefault("power", 1.0)
        then.setdefault("arrive", 1.0)
        if "pattern" not in settings and settings.get("gradient") is None and settings.get("method") != "gmp":
            then["gradient"] = "identity"
    return then


def fits(value: Any, hint: Any) -> bool:
    """Whether a value that was read from JSON is of the type ``hint``, as dataclasses annotate it.

    >>> fits([0.5, 1], tuple[float, ...]), fits("x", float | None), fits(None, float | None)
    (True, False, True)
    """
    if isinstance(hint, UnionType):
        return any(fits(value, kind) for kind in get_args(hint))
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if not isinstance(value, list | tuple) or not (kinds[-1] is Ellipsis or len(value) == len(kinds)):
            return False
        return all(fits(v, kinds[0] if kinds[-1] is Ellipsis else kinds[i]) for i, v in enumerate(value))
    if get_origin(hint) is dict:
        return isinstance(value, dict) and all(fits(v, get_args(hint)[1]) for v in value.values())
    if hint is NoneType:
        return value is None
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float if hint is float else hint)


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


def as_text(value: Any) -> str:
    """As ``_parse`` reads it."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _words(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none"}
    return " or ".join(words.get(kind, "a list of texts") for kind in (get_args(hint) or (hint,)) if kind is not ...)
