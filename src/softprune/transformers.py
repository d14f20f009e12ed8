"""Pruning under the Hugging Face Trainer: one callback.

    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[PruningCallback(target=0.9)])

The pruner sits on the Trainer's optimizer, so the Trainer's checkpoints carry its state and resume it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch import nn
from torch.optim import Optimizer

import softprune as sp
from softprune.attach.future import foreseen, rewound
from softprune.attach.state import take
from softprune.attach.wrappers import unwrap_optimizer
from softprune.errors import ArgumentError, needs
from softprune.prox.gradient import Gradient
from softprune.pruner import registry
from softprune.pruner.plan import Build, Groups, Plan, Thresholds
from softprune.report.measurements import measurements

needs("transformers", "Transformers", "softprune.transformers", extra="transformers")

from tqdm.auto import tqdm  # noqa: E402 - after the sentence that it is missing
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments  # noqa: E402
from transformers.trainer_callback import CallbackHandler  # noqa: E402

NOTICEABLE = 1e-3  # a difference in sparsity

_built: WeakKeyDictionary[sp.Pruner, ref[TrainerState]] = WeakKeyDictionary()  # by callbacks, and in which training


class PruningCallback(TrainerCallback, Plan):
    """Builds a pruner when training begins, logs what it does, prints a report and detaches it at the end.

    Give a ``target``, a ``threshold``, or ``build(params, steps) -> threshold`` where it depends on the number of
    optimizer steps, which the Trainer knows. A trained threshold has parameters that the Trainer's optimizer would have
    to hold: build optimizer and pruner yourself and pass ``Trainer(optimizers=...)``, without this callback.

    Sparsity, threshold and penalty stand in every log of the training, evaluations included; those of a second callback
    as ``sparsity_2`` and so on. Checkpoints resume bit for bit. After training the model is a plain one with exactly
    sparse weights, and ``report`` holds the report.

    A sparser model counts as better, whatever its metric: ``load_best_model_at_end``, early stopping and
    ``save_strategy="best"`` compare metrics of models that are equally sparse (within 0.1 points).

    Args:
        threshold: where d comes from: a schedule, ``LATS``, ``TargetSparsity``, ...
        target: the sparsity to end with, instead of it: ``TargetSparsity`` for as many steps as the Trainer makes, with
            the Trainer's learning-rate scheduler.
        build: ``build(params, steps) -> threshold``, instead of both.
        prox: as in ``sp.Pruner``.
        groups: as in ``sp.Pruner``; or a function of the model that gives it, for a model that is not built yet:
            ``lambda model: sp.Channels(model, example)``.
        gradient: as in ``sp.Pruner``.
        include: patterns of parameters to prune, as in ``sp.select``.
        exclude: patterns of parameters to leave alone.
        verbose: print the report after training.

    Attributes:
        pruner: the pruner, from the beginning of training on; detached after training.
        report: the report, after training.
    """

    def __init__(
        self,
        threshold: Thresholds | None = None,
        *,
        target: float | None = None,
        build: Build | None = None,
        prox: sp.Prox | None = None,
        groups: Groups | None = None,
        gradient: Gradient | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        verbose: bool = True,
    ) -> None:
        Plan.__init__(self, threshold, target, build, prox, groups, gradient, include, exclude)
        if self.given != 1:
            raise ArgumentError("`PruningCallback` takes a `target`, a `threshold` or a `build`. Give one of them.")
        self.verbose = verbose
        self.pruner: sp.Pruner | None = None
        self.report: sp.Report | None = None
        self._training = False
        self._last = 0.0  # the sparsity at the end of an epoch
        self._suffix = ""  # of names in logs

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> None:
        """Model and optimizer are there, and a checkpoint that is resumed from is loaded already."""
        self._suffix = _line_up(self)
        self.report = None
        optimizer = unwrap_optimizer(optimizer)
        params, groups = self.choose(model)
        saved = _saved(params, optimizer) if state.global_step else {}
        _make_way(params, state)
        scheduler = foreseen(lr_scheduler)
        if scheduler is not None and state.global_step:
            scheduler = rewound(scheduler)
        self.pruner = self.begin(params, groups, optimizer, lambda: state.max_steps, scheduler)
        _built[self.pruner] = ref(state)
        if saved:
            self.pruner.load_state_dict(saved)
        self._training = True

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Add to what is logged, and to the history, which has it already."""
        if self._training and self.pruner is not None and logs is not None:
            numbers = {name + self._suffix: value for name, value in measurements(self.pruner).items()}
            logs.update(numbers)
            state.log_history[-1].update(numbers)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Forget the best model where this one is sparser, before the Trainer compares their metrics."""
        evaluations = [row for row in state.log_history if any(name.startswith("eval_") for name in row)]
        if self._training and evaluations and evaluations[-1] is state.log_history[-1]:  # not on a test set in between
            *earlier, now = [row.get("sparsity" + self._suffix, 0.0) for row in evaluations]
            if now > _of_the_best(earlier) + NOTICEABLE:
                state.best_metric = None

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """At the end of training too, before the best model is loaded."""
        if args.load_best_model_at_end and self.pruner is not None:
            self._last = self.pruner.sparsity()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """The best model is loaded by now, if it was asked for."""
        assert self.pruner is not None
        self._training = False
        if args.load_best_model_at_end and self.pruner.sparsity() < self._last - NOTICEABLE:
            registry.make_way(self.pruner)
            warnings.warn(
                f"The best model has a sparsity of {self.pruner.sparsity():.2%}; training ended with {self._last:.2%}, "
                "after the last evaluation. Evaluate and save at the last step too, or leave out "
                "`load_best_model_at_end`.",
                stacklevel=2,
            )
        else:
            self.pruner.detach()
        self.report = sp.summarize(self.pruner, model)
        if self.verbose and state.is_world_process_zero:
            tqdm.write(str(self.report))  # beside the Trainer's progress bar, which is open


def _line_up(callback: PruningCallback) -> str:
    """Put a callback before those of the Trainer's loggers, which would miss what it adds to a log; the suffix of its
    names is what tells it from others of its kind.

    The Trainer puts the callbacks of users after its own and does not show them its list, which only the interpreter's
    frames lead to. Without it, names are logged to the history and to callbacks that come later.
    """
    frame = sys._getframe()
    while frame.f_back and not isinstance(frame.f_locals.get("self"), CallbackHandler):
        frame = frame.f_back
    callbacks = getattr(frame.f_locals.get("self"), "callbacks", [])
    first = list(takewhile(lambda c: isinstance(c, PruningCallback), callbacks))
    if callback in callbacks and callback not in first:  # the Trainer is going through the list: move this one alone
        callbacks.remove(callback)
        callbacks.insert(len(first), callback)
        first.append(callback)
    number = first.index(callback) + 1 if callback in first else 1
    return f"_{number}" if number > 1 else ""


def _saved(params: Mapping[str, nn.Parameter], optimizer: Optimizer) -> dict[str, Any]:
    """The state of the pruning in a checkpoint that the Trainer has loaded: {name: {key: value}}. It is in the
    optimizer's state; or in an earlier pruner, if training failed and is resumed in the same process."""
    found: dict[str, Any] = {}
    for pruner in {registry.pruner_of(p) for p in params.values()} & set(_built):
        if pruner.optimizer is optimizer:
            found |= pruner.state_dict()
    found |= {name: entries for name, p in params.items() if (entries := take(optimizer, p))}
    if not found:
        raise ArgumentError(
            "Cannot resume from this checkpoint. This is because no hidden weights were loaded with the optimizer's "
            "state: it was saved without pruning, with `save_only_model=True`, or in shards (FSDP, DeepSpeed). To "
            "prune a model that was trained without, load it with `from_pretrained` and train it anew."
        )
    return found


def _make_way(params: Mapping[str, nn.Parameter], state: TrainerState) -> None:
    """Every training begins anew: pruners of earlier ones, which have failed, are detached. Those of this one stay, and
    nobody else may prune their weights."""
    for pruner in {registry.pruner_of(p) for p in params.values()} & set(_built):
        if _built[pruner]() is not state:
            registry.make_way(pruner)


def _of_the_best(sparsities: Sequence[float]) -> float:
    """The sparsity of the best model, after evaluations at these."""
    best = 0.0
    for sparsity in sparsities:
        best = sparsity if sparsity > best + NOTICEABLE else best
    return best
