"""Names of settings become objects here and nowhere else: methods, networks, optimizers, curves, gradients, data.

Each name is one frozen entry; adding a method to the command is adding one to ``METHODS``. Importing this module costs
nothing: ``softprune`` imports its names when they are used, and everything else that is heavy is imported in ``build``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import softprune as sp
from softprune.errors import ConfigError
from softprune.recipes.config import Config
from softprune.schedules.curves import Cosine, Curve, Polynomial, Steps
from softprune.training.entries import Asked, Data, GradientName, LrCurve, Method, Names, Network, OptimizerName

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from softprune.data import Dataset
    from softprune.training.entries import Built

# methods

_PRUNED = ("exclude", "gradient")  # read by every method that prunes
_SCHEDULED = ("start", *_PRUNED)
_AIMED = ("target", "min_density", *_SCHEDULED)
_TRAINED = ("threshold_decay", *_PRUNED)


def _schedule(name: str) -> Callable[[Asked], Built]:
    """A schedule of the paper that needs nothing but D and the number of steps."""
    return lambda asked: getattr(sp, name)(asked.number("final"), asked.steps, start=asked.start)


def _aimed(build: Callable[[Asked], Built]) -> Callable[[Asked], Built]:
    """A target, if one is set, has a threshold of its own."""

    def choose(asked: Asked) -> Built:
        config = asked.config
        if config.target is None:
            return build(asked)
        goal = sp.TargetSparsity(config.target, asked.steps, lr_scheduler=asked.lr_scheduler, start=asked.start)
        return goal if config.min_density is None else replace(goal, min_density=config.min_density)

    return choose


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
            reads=_TRAINED,
            trained=True,
        ),
        Method(
            "str-gs",
            "STR-GS: one trained threshold for all layers",
            lambda a: sp.STR(a.params, a.number("init"), shared=True),
            needs=("init",),
            reads=_TRAINED,
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

# networks

_RESNET, _MOBILENET, _SMALL = (f"softprune.models.{module}" for module in ("resnet", "mobilenet", "small"))
_SEW = "softprune.spiking.sew"

NETWORKS = Names(
    "network",
    [
        Network("digits_resnet", "three residual blocks for 8 × 8 pixels", _SMALL, (1, 8, 8)),
        Network("mlp", "two hidden layers of 128 on 8 × 8 pixels", _SMALL, (1, 8, 8)),
        Network("mobilenet_v1", "MobileNet-V1 for ImageNet", _MOBILENET),
        Network("mobilenet_v1_cifar", "MobileNet-V1 for 32 × 32 pixels", _MOBILENET),
        Network("resnet18", "ResNet-18 for ImageNet", _RESNET),
        Network("resnet18_cifar", "ResNet-18 for 32 × 32 pixels", _SMALL),
        Network("resnet20", "ResNet-20 for 32 × 32 pixels", _SMALL),
        Network("resnet50", "ResNet-50 for ImageNet", _RESNET),
        Network("sew_digits", "a spiking ResNet for 8 × 8 pixels", _SEW, (1, 8, 8)),
        Network("sew_resnet18", "SEW ResNet-18, spiking, for ImageNet", _SEW),
        Network("sew_resnet18_cifar", "SEW ResNet-18, spiking, for 32 × 32 pixels", _SEW, (3, 8, 8)),
    ],
)

# optimizers, curves, gradients


def _sgd(groups: list[dict[str, Any]], config: Config) -> Optimizer:
    from torch.optim import SGD

    return SGD(groups, config.lr, config.momentum, weight_decay=config.weight_decay, nesterov=config.nesterov)


def _adam(groups: list[dict[str, Any]], config: Config) -> Optimizer:
    from torch.optim import Adam

    return Adam(groups, config.lr, weight_decay=config.weight_decay)


def _adamw(groups: list[dict[str, Any]], config: Config) -> Optimizer:
    from torch.optim import AdamW

    return AdamW(groups, config.lr, weight_decay=config.weight_decay)


OPTIMIZERS = Names(
    "optimizer",
    [
        OptimizerName("sgd", "stochastic gradient descent", _sgd, reads=("momentum", "nesterov")),
        OptimizerName("adam", "Adam, with weight decay in the gradient", _adam),
        OptimizerName("adamw", "AdamW, with weight decay beside the gradient", _adamw),
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
        GradientName("subgradient", "weights that are zero do not learn", lambda: sp.subgradient),
    ],
)

# data


def _digits(config: Config, path: Path) -> Dataset:
    from softprune import data

    return data.digits()


def _synthetic(config: Config, path: Path) -> Dataset:
    from softprune import data

    return data.synthetic(classes=10, shape=NETWORKS.find(config.network).smoke, images=32)


def _idx(config: Config, path: Path) -> Dataset:
    from softprune import data

    return data.idx(path)


def _folder(config: Config, path: Path) -> Dataset:
    from softprune import data

    return data.folder(path, size=config.image_size)


DATA = Names(
    "data",
    [
        Data("digits", "scikit-learn's 1,797 images of 8 × 8 pixels", _digits),
        Data("synthetic", "made up, for smoke tests", _synthetic),
        Data("idx:FOLDER", "files in MNIST's format", _idx, files=True),
        Data("FOLDER", "images in train/ and val/, with a folder for each class in both", _folder, files=True),
    ],
)


def dataset(config: Config) -> Dataset:
    """The images that ``data`` names."""
    entry, path = _source(config)
    return entry.build(config, path)


def located(config: Config) -> Config:
    """The same settings, which find their data from any working directory."""
    entry, path = _source(config)
    if not entry.files:
        return config
    return replace(config, data=entry.name.replace("FOLDER", str(path.absolute())))


def kind_of_data(config: Config) -> str:
    """The entry of ``DATA`` that ``data`` belongs to, wherever the files are."""
    return _source(config)[0].name


def _source(config: Config) -> tuple[Data, Path]:
    """The kind of data, and where they are: anything that is not embedded and has no prefix is a folder."""
    prefix, colon, place = config.data.partition(":")
    if config.data in DATA and not DATA[config.data].files:
        return DATA[config.data], Path()
    entry, place = (DATA["idx:FOLDER"], place) if prefix == "idx" and colon else (DATA["FOLDER"], config.data)
    try:
        return entry, Path(place).expanduser()
    except RuntimeError:  # ~nobody
        raise ConfigError(
            f"`data` must be a folder. Got {config.data!r}, which names a user that is not here."
        ) from None
