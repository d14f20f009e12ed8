"""Algorithm 1, attached to an optimizer's step hooks.

A method is a product of four factors, and each has its own file:

    method     mapping w(θ, d)            gradient       threshold d                      written as
    STR        soft threshold           × subgradient  × σ(s) or eˢ, s trained            STR(params, init)
    GPO        blend                    × subgradient  × σ(s), s and k trained            GPO(params, init)
    STDS       soft threshold           × identity     × sine, linear, log2               Sine(final, steps)
    LATS       soft threshold           × identity     × Σ μ·η                            LATS(penalty)
    S-LATS     soft threshold           × identity     × ∫ lr curve                       SLATS(final, steps)
    PGH        soft threshold           × identity     × ∫ lr curve · βˣ                  PGH(final, steps, beta)
    (target)   soft threshold           × identity     × Σ μ·η, μ solved for              TargetSparsity(target, steps)

The mapping does not live in the model. The gradient of the loss with respect to w is all it takes to update
θ, so the hooks do everything: before the optimizer's step dL/dw becomes dL/dθ (and dL/ds) and the parameters
hold θ; the optimizer updates θ, with its momentum and weight decay; after the step d advances and the
parameters hold w = S_d(θ) again. Between steps the model is an ordinary module with ordinary sparse weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from softprune.attach import hooks, state
from softprune.kernels.columns import beside, floats, take
from softprune.kernels.pairs import Pairs
from softprune.kernels.sharding import local, totals
from softprune.prox.base import Prox
from softprune.prox.gradient import Gradient, identity, subgradient
from softprune.prox.soft import SoftThreshold
from softprune.pruner import checks
from softprune.pruner.hidden import Hidden
from softprune.schedules.penalty import quotient
from softprune.thresholds.base import Threshold, Trainable
from softprune.thresholds.scheduled import Scheduled


class Pruner:
    """Prunes ``params`` while ``optimizer`` trains them. The training loop does not change.

        params = sp.select(model)
        pruner = sp.Pruner(params, optimizer, threshold=sp.SLATS(final=0.5, steps=T))

    ``threshold`` is a schedule (any ``step -> d``), ``LATS``, ``TargetSparsity``, or a trainable threshold.
    ``gradient`` is ``subgradient`` for trainable thresholds and ``identity`` for all others, unless given.
    ``optimizer.state_dict()`` carries the whole state, so whatever resumes the optimizer resumes the pruning.
    Build it when the model is on its device, and wrapped (DDP, ``fully_shard``): θ begins as the weights are then.
    """

    def __init__(
        self,
        params: Mapping[str, nn.Parameter],
        optimizer: Optimizer,
        *,
        threshold: Threshold | Callable[[int], float],
        prox: Prox = SoftThreshold(),
        gradient: Gradient | None = None,
    ) -> None:
        checks.factors(threshold, prox, gradient)
        self.optimizer = hooks.innermost(optimizer)
        self.source = threshold if isinstance(threshold, Threshold) else Scheduled(threshold)
        self.params = checks.prunable(params, self.optimizer, self.source)
        state.refuse_loaded(self.optimizer, self.params)
        self.trainable = self.source if isinstance(self.source, Trainable) else None
        self.prox = self.trainable.mapping(prox) if self.trainable else prox
        self.gradient = gradient or (subgradient if self.trainable else identity)

        self.step = 0
        self._hidden = Hidden(self.params)
        self.source = self.source.watch(self._hidden)
        self._columns = self._previous = self.source.initial(len(self.params))
        self._lrs: list[Any] = [0.0] * len(self.params)
        checks.columns(self.prox, self._columns, self.source)
        checks.zeros(self.prox, self.source, self._hidden.thetas)
        with torch.no_grad():
            self._write()
        self._attach()

    # -- Algorithm 1 ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def _before_step(self, has_closure: bool) -> None:
        self._settle()
        state.refuse_unrestored(self.optimizer, self._hidden.params[0])
        if not has_closure:
            self._turn_gradients()  # Δθ ← dL/dw ⊙ ∂w/∂θ
        self._hidden.reveal()  # and the optimizer: θ ← θ − η (Δθ + λθ)

    @torch.no_grad()
    def _after_step(self, counts: bool) -> None:
        self._hidden.conceal()
        if counts:
            self._lrs = hooks.rates(self.optimizer, self._hidden.params, read=self.source.reads_lr)
            self.step += 1
            self._previous = self._columns
            self._columns = self.source.advance(self._columns, self._lrs, self.step)  # d ← g(t/T)·D, ...
        self._write()  # w ← S_d(θ)
        self._clear_trained()

    @torch.no_grad()
    def _evaluate(self, closure: hooks.Closure) -> Any:
        """The loss of a closure, on w: however often the optimizer asks, and wherever θ is by then."""
        self._hidden.conceal()
        if self.trainable:
            self._columns = self.trainable.initial(len(self.params))
            self._clear_trained()
        self._write()
        with torch.enable_grad():
            loss = closure()
        self._turn_gradients()
        self._hidden.reveal()
        return loss

    def _turn_gradients(self) -> None:
        """dL/dw -> dL/dθ, in place, and dL/d(level) into the trainable threshold's gradients."""
        if self.gradient is identity and not self.trainable:
            return
        hidden = self._hidden
        have = [i for i, p in enumerate(hidden.params) if p.grad is not None]
        if not have:
            return
        columns = [take(column, have) for column in self._columns]
        grads = [local(hidden.params[i].grad) for i in have]  # type: ignore[arg-type]
        sums = self.gradient(self.prox, Pairs(grads, [hidden.thetas[i] for i in have]), *columns)
        if self.trainable:
            self.trainable.pull_back(have, [totals(column, [hidden.params[i] for i in have]) for column in sums])

    def _clear_trained(self) -> None:
        """Forget dL/ds: ``_turn_gradients`` made it for one use."""
        for p in self.trained():
            p.grad = None

    def _write(self) -> None:
        """w ← w(θ, d)."""
        self.prox.write(self._hidden.pairs, *self._columns)

    def _settle(self) -> None:
        """Put right what happened since the last step: one that failed midway, weights set from outside."""
        if self._hidden.revealed:
            self._hidden.conceal()
            self._write()
            self._clear_trained()
        elif changed := self._hidden.changed():
            self._hidden.adopt({i: self._followed(i) for i in changed})

    def _followed(self, i: int) -> Tensor:
        return self._hidden.followed(i, self._write_one, self._invert_one)

    def _write_one(self, out: Tensor, theta: Tensor, i: int) -> None:
        self.prox.write(Pairs([out], [theta]), *(column[i : i + 1] for column in self._columns))

    def _invert_one(self, w: Tensor, i: int) -> Tensor:
        return self.prox.inverse(w, *self._levels(i, w))

    def _levels(self, i: int, tensor: Tensor) -> tuple[float | Tensor, ...]:
        """d of parameter i, and k, beside a tensor."""
        return tuple(beside(column[i], tensor) for column in self._columns)

    # -- what a user reads -----------------------------------------------------------------------------------

    @property
    def threshold(self) -> float | dict[str, float]:
        """d: one number, or {name: d} where parameters differ or each has its own to train."""
        return self._named(floats(self._columns[0]))

    @property
    def penalty(self) -> float | dict[str, float]:
        """The L1 penalty μ = (d(t+1) − d(t)) / η(t) that the last step implied; zero before any step. One number, or
        {name: μ} where parameters differ.

        It is meant for plain SGD. With momentum m a gradient counts 1 / (1 − m) times, the threshold once: the loss is
        balanced against (1 − m)·μ.
        """
        growth = (
            after - before for after, before in zip(floats(self._columns[0]), floats(self._previous[0]), strict=True)
        )
        return self._named([quotient(g, float(lr)) for g, lr in zip(growth, self._lrs, strict=True)])

    @property
    def theta(self) -> dict[str, Tensor]:
        """The hidden weights, by name; empty after ``detach``."""
        return dict(zip(self.params, self._hidden, strict=False))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The sparse weights that ``detach`` would leave, by name, before it makes up for skipped steps of a target; of
        a sharded parameter, this process's part."""
        changed = self._hidden.changed() if self._handles and not self._hidden.revealed else []
        for i, (name, p) in enumerate(self.params.items()):
            w = local(p).detach()
            if self._handles:
                theta = local(self._followed(i)) if i in changed else self._hidden.thetas[i]
                levels = self._levels(i, theta)
                if self._hidden.revealed:  # in a step, or after one that failed midway
                    w = self.prox(theta, *levels)
                w = self.prox.final(theta, w, *levels)
            yield name, w

    def sparsity(self) -> float:
        """The share of the pruned parameters that is exactly zero."""
        params = list(self.params.values())
        zeros = torch.stack([(w == 0).sum().to(params[0].device) for _, w in self.weights()])
        return int(totals(zeros, params).sum()) / sum(p.numel() for p in params)

    def __repr__(self) -> str:
        source = self.source.schedule if isinstance(self.source, Scheduled) else self.source
        return (
            f"Pruner({len(self.params)} parameters, threshold={source}, prox={self.prox}, "
            f"gradient={getattr(self.gradient, '__name__', self.gradient)}, step={self.step})"
        )

    def _named(self, values: list[float]) -> float | dict[str, float]:
        layerwise = self.trainable is not None and not self.trainable.shared
        if not layerwise and all(math.isclose(value, values[0]) or value is values[0] for value in values):
            return values[0]
        return dict(zip(self.params, values, strict=True))

    # -- the beginning and the end ---------------------------------------------------------------------------

    def _attach(self) -> None:
        self._handles = [
            *hooks.attach(self.optimizer, before=self._before_step, evaluate=self._evaluate, after=self._after_step),
            *state.attach(
                self.optimizer,
                self.params,
                self.trained(),
                snapshot=self._snapshot,
                refuse=self.source.refuse_state,
                restore=self._restore,
            ),
        ]
        checks.claim(self.params, self)

    @torch.no_grad()
    def detach(self) -> None:
        """Stop pruning. The model keeps its exactly sparse weights, and nothing else remains."""
        if not self._handles:
            return
        self._settle()
        columns = self.source.conclude(self._columns, self.step)
        if columns is not self._columns:
            self._columns = columns
            self._write()
        for (_, final), p in zip(self.weights(), self._hidden.params, strict=True):
            if final.data_ptr() != local(p).data_ptr():
                local(p).copy_(final)
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._hidden.clear()
        checks.release(self.params)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_handles"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A deep copy or an unpickled pruner attaches itself to its own copy of the optimizer."""
        self.__dict__.update(state)
        self._handles = []
        if len(self._hidden.params) > 0:
            self._attach()

    # -- state: docs in state.py -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The step, θ and d, and a trainable threshold's values: the part of ``optimizer.state_dict()`` that is
        about pruning, by name, for those who save no optimizer."""
        return state.to_dict(self._snapshot(), self.params)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._restore(state.from_dict(state_dict, self.params, self.trained()))

    @torch.no_grad()
    def _snapshot(self) -> state.Snapshot:
        """Saving changes nothing: weights set from outside, such as an average, may be gone before the next step."""
        checks.attached(self._handles)
        if self._hidden.revealed:
            self._settle()
        thetas = list(self._hidden)
        for i in self._hidden.changed():
            thetas[i] = self._followed(i)
        return state.Snapshot(
            step=self.step,
            thetas=thetas,
            thresholds=None if self.trainable else list(self._columns[0]),
            values=[p.detach() for p in self.trained()],
            control=self.source.state(),
        )

    @torch.no_grad()
    def _restore(self, snapshot: state.Snapshot) -> None:
        checks.attached(self._handles)
        self._settle()
        self.source.load_state(snapshot.control)
        self.step = snapshot.step
        self._hidden.load(snapshot.thetas)
        for p, value in zip(self.trained(), snapshot.values, strict=True):
            p.copy_(value)
        self._columns = (
            self.source.initial(len(self.params)) if snapshot.thresholds is None else (list(snapshot.thresholds),)
        )
        self._previous = self._columns
        self._write()

    def trained(self) -> list[nn.Parameter]:
        """The parameters of a trainable threshold."""
        return list(self.trainable.parameters()) if self.trainable else []
