"""Names of settings become objects here and nowhere else: methods, patterns, networks, optimizers, curves, data.

Each name is one frozen entry; adding a method to the command is adding one to ``METHODS``. Importing this module costs
nothing: ``softprune`` imports its names when they are used, and everything else that is heavy is imported in ``build``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import softprune as sp
from softprune.errors import ConfigError
from softprune.recipes.config import Config
from softprune.schedules.curves import Cosine, Curve, Polynomial, Steps
from softprune.training.entries import (
    Asked,
    Count,
    Data,
    Decode,
    GradientName,
    LrCurve,
    Method,
    Names,
    Network,
    OptimizerName,
    Pattern,
)

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from softprune.data import Dataset
    from softprune.training.entries import Built

# methods

_PRUNED = ("exclude", "gradient")  # read by every method that prunes
_SCHEDULED = ("start", "power", "pattern", *_PRUNED)
_AT_A_TARGET = ("arrive", "count", "min_density", "start", "pattern", *_PRUNED)
_AIMED = ("target", "power", *_AT_A_TARGET)
_TRAINED = ("threshold_decay", *_PRUNED)


def _schedule(name: str) -> Callable[[Asked], Built]:
    """A schedule of the paper that needs nothing but D and the number of steps."""
    return lambda asked: getattr(sp, name)(asked.number("final"), asked.steps, start=asked.start)


def _aimed(build: Callable[[Asked], Built]) -> Callable[[Asked], Built]:
    """A target, if one is set, has a threshold of its own."""
    return lambda asked: build(asked) if asked.config.target is None else _target(asked)


def _target(asked: Asked) -> Built:
    return sp.TargetSparsity(
        asked.number("target"), asked.steps, lr_scheduler=asked.lr_scheduler, start=asked.start, **_given(asked)
    )


def _gradual(asked: Asked) -> Built:
    return sp.GradualSparsity(asked.number("target"), asked.steps, start=asked.start, **_given(asked))


def _given(asked: Asked) -> dict[str, Any]:
    """What a target was given; the rest has the defaults of its threshold."""
    settings = {name: getattr(asked.config, name) for name in ("arrive", "min_density")} | {"flops": asked.flops}
    return {name: value for name, value in settings.items() if value is not None}


def _curve(asked: Asked) -> Curve:
    return LR_CURVES[asked.config.lr_curve].curve


def _lats(asked: Asked) -> Built:
    if asked.config.penalty is not None:
        return sp.LATS(asked.config.penalty, start=asked.start)
    assert asked.lr_scheduler is not None
    return sp.LATS.from_final(asked.number("final"), asked.lr_scheduler, asked.steps, start=asked.start)


METHODS = Names(
    "method",
    [
        Method("dense", "ordinary training: nothing is pruned", None),
        Method(
            "target",
            "a given sparsity: the penalty that ends there is found while training",
            _target,
            needs=("target",),
            reads=("power", *_AT_A_TARGET),
        ),
        Method(
            "gradual",
            "a given sparsity: the smallest weights, ever more of them, on a cubic curve",
            _gradual,
            needs=("target",),
            reads=("power", *_AT_A_TARGET),
        ),
        Method(
            "gmp",
            "gradual magnitude pruning: the same with the hard threshold, and pruned weights do not learn",
            _gradual,
            needs=("target",),
            reads=_AT_A_TARGET,
            power=math.inf,
            gradient="subgradient",
        ),
        Method(
            "slats",
            "S-LATS: the threshold is the integral of the learning-rate curve",
            _aimed(lambda a: sp.SLATS(a.number("final"), a.steps, lr=_curve(a), start=a.start)),
            needs=("final",),
            reads=_AIMED,
        ),
        Method(
            "lats",
            "LATS: a constant penalty times the sum of the learning rates, warm-up included",
            _aimed(_lats),
            needs=("final",),
            reads=("penalty", *_AIMED),
        ),
        Method(
            "pgh",
            "proximal gradient homotopy: a penalty that decays as beta**x",
            lambda a: sp.PGH(a.number("final"), a.steps, a.number("beta"), lr=_curve(a), start=a.start),
            needs=("final", "beta"),
            reads=_SCHEDULED,
        ),
        Method(
            "init",
            "pruning at initialization, PGH's limit: the whole threshold at once",
            lambda a: sp.Constant(a.number("final"), start=a.start),
            needs=("final",),
            reads=_SCHEDULED,
        ),
        Method("sine", "STDS with a sine: an S-shaped rise", _schedule("Sine"), ("final",), _SCHEDULED),
        Method("linear", "STDS with a straight line", _schedule("Linear"), ("final",), _SCHEDULED),
        Method("log2", "STDS with a logarithm", _schedule("Log2"), ("final",), _SCHEDULED),
        Method(
            "str",
            "STR: a trained threshold for each layer",
            lambda a: sp.STR(a.params, a.number("init")),
            needs=("init",),
            reads=("pattern", *_TRAINED),
            trained=True,
        ),
        Method(
            "str-gs",
            "STR-GS: one trained threshold for all layers",
            lambda a: sp.STR(a.params, a.number("init"), shared=True),
            needs=("init",),
            reads=("pattern", *_TRAINED),
            trained=True,
        ),
        Method(
            "gpo",
            "GPO: a trained threshold for each layer, blended with the dense weights",
            lambda a: sp.GPO(a.params, a.number("init")),
            needs=("init",),
            reads=("blend_decay", *_TRAINED),
            trained=True,
        ),
    ],
)

OF_METHODS = tuple(f.name for f in fields(Config) if any(method.takes(f.name) for method in METHODS.values()))
"""Settings that some methods read and others do not."""


def prox(config: Config) -> sp.Prox | None:
    """That of ``power``, or the method's own; None where its threshold brings one. The soft threshold goes on with
    states of versions that knew no other."""
    power = METHODS[config.method].power if config.power is None else config.power
    if power is None:
        return None
    return sp.SoftThreshold() if power == 1 else sp.PowerThreshold(power)


# patterns, and what a target counts

PATTERNS = Names(
    "pattern",
    [
        Pattern("none", "weights, one by one", None),
        Pattern("channels", "channels, neurons and heads", lambda net, x: sp.Channels(net, x), units=True),
        Pattern("neurons", "neurons between linear layers", lambda net, x: sp.Neurons(net, x), units=True),
        Pattern("heads", "heads of attention", lambda net, x: sp.Heads(net, x), units=True),
        Pattern("block4", "blocks of 1 output and 4 inputs", lambda net, x: sp.Blocks(1, 4)),
        Pattern("block64", "blocks of 64 outputs and 64 inputs", lambda net, x: sp.Blocks(64, 64)),
    ],
)

COUNTS = Names(
    "count",
    [
        Count("weights", "weights, each as much as any other", None),
        Count("multiplications", "multiplications by weights", lambda net, x: sp.flops_per_weight(net, x)),
    ],
)


def needs_memory(config: Config) -> bool:
    """Whether the network must run, so that its groups or multiplications are known."""
    return PATTERNS.find(config.pattern).units or COUNTS.find(config.count).build is not None


# networks

_GPT, _MOBILENET, _RESNET, _SMALL, _VIT = (
    f"softprune.models.{module}" for module in ("gpt", "mobilenet", "resnet", "small", "vit")
)
_SEW = "softprune.spiking.sew"

NETWORKS = Names(
    "network",
    [
        Network("digits_resnet", "three residual blocks for 8 × 8 pixels", _SMALL, (1, 8, 8)),
        Network("gpt", "a GPT of 11 million parameters for text", _GPT, (16,), positional=True, context=256),
        Network("gpt_small", "a GPT of 0.8 million parameters for text", _GPT, (16,), positional=True, context=64),
        Network("mlp", "two hidden layers of 128 on 8 × 8 pixels", _SMALL, (1, 8, 8)),
        Network("mobilenet_v1", "MobileNet-V1 for ImageNet", _MOBILENET, pixels=224),
        Network("mobilenet_v1_cifar", "MobileNet-V1 for 32 × 32 pixels", _MOBILENET),
        Network("resnet18", "ResNet-18 for ImageNet", _RESNET, pixels=224),
        Network("resnet18_cifar", "ResNet-18 for 32 × 32 pixels", _SMALL),
        Network("resnet20", "ResNet-20 for 32 × 32 pixels", _SMALL),
        Network("resnet50", "ResNet-50 for ImageNet", _RESNET, pixels=224),
        Network("sew_digits", "a spiking ResNet for 8 × 8 pixels", _SEW, (1, 8, 8)),
        Network("sew_resnet18", "SEW ResNet-18, spiking, for ImageNet", _SEW, pixels=224),
        Network("sew_resnet18_cifar", "SEW ResNet-18, spiking, for 32 × 32 pixels", _SEW, (3, 8, 8), pixels=32),
        Network("vit", "a vision transformer for 32 × 32 pixels", _VIT, (3, 16, 16), positional=True, pixels=32),
        Network("vit_digits", "a vision transformer for 8 × 8 pixels", _VIT, (1, 8, 8), positional=True),
    ],
)

# optimizers, curves, gradients


def _sgd(groups: list[dict[str, Any]], config: Config) -> Optimizer:
    from torch.optim import SGD

    return SGD(groups, config.lr, config.momentum, weight_decay=config.weight_decay, nesterov=config.nesterov)


def _adam(groups: list[dict[str, Any]], config: Config) -> Optimizer:
    from torch.optim import Adam

    return Adam(groups, config.lr, (0.9, config.beta2), weight_decay=config.weight_decay)


def _adamw(groups: list[dict[str, Any]], config: Config) -> Optimizer:
    from torch.optim import AdamW

    return AdamW(groups, config.lr, (0.9, config.beta2), weight_decay=config.weight_decay)


OPTIMIZERS = Names(
    "optimizer",
    [
        OptimizerName("sgd", "stochastic gradient descent", _sgd, reads=("momentum", "nesterov")),
        OptimizerName("adam", "Adam, with weight decay in the gradient", _adam, reads=("beta2",)),
        OptimizerName("adamw", "AdamW, with weight decay beside the gradient", _adamw, reads=("beta2",)),
    ],
)

OF_OPTIMIZERS = tuple(f.name for f in fields(Config) if any(entry.takes(f.name) for entry in OPTIMIZERS.values()))
"""Settings that some optimizers read and others do not."""

LR_CURVES = Names(
    "lr_curve",
    [
        LrCurve("cosine", "falls at every step", Cosine()),
        LrCurve("epoch-cosine", "the paper's: falls after each epoch", Cosine(), by_epoch=True),
        LrCurve("constant", "stays at its peak", Polynomial(0.0)),
        LrCurve("polynomial", "(1 - x)**0.9", Polynomial(0.9)),
        LrCurve("step", "a tenth after each third of training", Steps(at=(1 / 3, 2 / 3), factor=0.1)),
    ],
)

GRADIENTS = Names(
    "gradient",
    [
        GradientName("identity", "every weight learns, zeros too", lambda: sp.identity),
        GradientName("calm", "the same, but no row of zeros learns faster than the others", lambda: sp.calm),
        GradientName("subgradient", "weights that are zero do not learn", lambda: sp.subgradient),
    ],
)


def gradient(config: Config) -> Any:
    """What ``Pruner(gradient=...)`` takes: that of the settings, or the method's own; None where the pruner chooses."""
    name = config.gradient or METHODS[config.method].gradient
    return None if name is None else GRADIENTS.find(name).build()


# data


def _digits(config: Config, path: Path) -> Dataset:
    from softprune import data

    return data.digits()


def _synthetic(config: Config, path: Path) -> Dataset:
    from softprune import data

    network = NETWORKS.find(config.network)
    if network.takes == "text":
        return data.synthetic_text(context=network.smoke[0], windows=32)
    channels, rows, columns = network.smoke
    return data.synthetic(classes=10, shape=(channels, rows, columns), images=32)


def _idx(config: Config, path: Path) -> Dataset:
    from softprune import data

    return data.idx(path)


def _pystdlib(config: Config, path: Path) -> Dataset:
    from softprune import data

    return data.pystdlib(_context(config))


def _text(config: Config, path: Path) -> Dataset:
    from softprune import data

    return data.text(path, _context(config))


def _context(config: Config) -> int:
    context = NETWORKS.find(config.network).context
    assert context is not None, "settings.check() was not called"
    return context


def _folder(config: Config, path: Path) -> Dataset:
    from softprune import data

    return data.folder(path, size=config.image_size, on_gpu=DECODE.find(config.decode).on_gpu)


DATA = Names(
    "data",
    [
        Data("digits", "scikit-learn's 1,797 images of 8 × 8 pixels", _digits),
        Data("pystdlib", "source code of Python's standard library, 6 MB of text", _pystdlib, kind="text"),
        Data("synthetic", "made up, for smoke tests", _synthetic, kind=None),
        Data("idx:FOLDER", "files in MNIST's format", _idx, files=True),
        Data("text:FOLDER", "text files, prose or source code; or a single file", _text, files=True, kind="text"),
        Data("FOLDER", "images in train/ and val/, with a folder for each class in both", _folder, files=True),
    ],
)


DECODE = Names(
    "decode",
    [
        Decode("auto", "the GPU that trains, if it can and the CPU has few cores", None),
        Decode("gpu", "the GPU that trains", True),
        Decode("cpu", "the processes that read", False),
    ],
)


def dataset(config: Config) -> Dataset:
    """The images or the text that ``data`` names."""
    entry, path = _source(config)
    return entry.build(config, path)


def located(config: Config) -> Config:
    """The same settings, which find their data from any working directory."""
    entry, path = _source(config)
    if not entry.files:
        return config
    return replace(config, data=entry.name.replace("FOLDER", str(path.absolute())))


def kind_of_data(config: Config) -> Data:
    """The entry of ``DATA`` that ``data`` belongs to, wherever the files are."""
    return _source(config)[0]


def _source(config: Config) -> tuple[Data, Path]:
    """The kind of data, and where they are: anything that is not embedded and has no prefix is a folder."""
    prefix, colon, place = config.data.partition(":")
    if config.data in DATA and not DATA[config.data].files:
        return DATA[config.data], Path()
    prefixed = DATA.get(f"{prefix}:FOLDER") if colon else None
    entry, place = (prefixed, place) if prefixed else (DATA["FOLDER"], config.data)
    if not place:
        raise ConfigError(f"`data` must name a folder after the colon. Got {config.data!r}.")
    try:
        return entry, Path(place).expanduser()
    except RuntimeError:  # ~nobody
        raise ConfigError(
            f"`data` must be a folder. Got {config.data!r}, which names a user that is not here."
        ) from None
