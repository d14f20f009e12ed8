"""Algorithm 1, attached to an optimizer's step hooks.

A method is a product of four factors, and each has its own room:

    method     mapping w(θ, d)            gradient       threshold d                      written as
    STR        soft threshold           × subgradient  × σ(s) or eˢ, s trained            STR(params, init)
    GPO        blend                    × subgradient  × σ(s), s and k trained            GPO(params, init)
    STDS       soft threshold           × identity     × sine, linear, log2               Sine(final, steps)
    LATS       soft threshold           × identity     × Σ μ·η                            LATS(penalty)
    S-LATS     soft threshold           × identity     × ∫ lr curve                       SLATS(final, steps)
    PGH        soft threshold           × identity     × ∫ lr curve · βˣ                  PGH(final, steps, beta)
    (target)   power threshold          × calm         × Σ μ·η, μ solved for              TargetSparsity(target, steps)
    (plain)    power threshold          × calm         × a quantile of |θ|                GradualSparsity(target, steps)
    GMP        hard threshold           × subgradient  × a quantile of |θ|                the same, and prox, gradient

The mapping does not live in the model. The gradient of the loss with respect to w is all it takes to update
θ, so the hooks do everything: before the optimizer's step dL/dw becomes dL/dθ (and dL/ds) and the parameters
hold θ; the optimizer updates θ, with its momentum and weight decay; after the step d advances and the
parameters hold w(θ, d) again. Between steps the model is an ordinary module with ordinary sparse weights.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from softprune.attach import hooks
from softprune.attach import state as optimizer_state
from softprune.attach.lookup import LearningRate, rates, read
from softprune.attach.state import Entries
from softprune.attach.wrappers import unwrap_optimizer
from softprune.groups.base import Grouping
from softprune.kernels.columns import Columns, floats, take
from softprune.kernels.pairs import Pairs
from softprune.kernels.sharding import is_sharded, local, totals
from softprune.prox.base import Prox
from softprune.prox.gradient import Gradient, Gradients, identity
from softprune.prox.group import grouped
from softprune.pruner import checks, registry, state
from softprune.pruner.hidden import Hidden
from softprune.schedules.penalty import quotient
from softprune.thresholds.base import Threshold
from softprune.thresholds.scheduled import Scheduled


class _Step(NamedTuple):
    """What the last step did to d, and its learning rates: what the implied penalty is made of."""

    before: Columns
    after: Columns
    lrs: list[LearningRate]


class Pruner:
    """Prunes ``params`` while ``optimizer`` trains them. The training loop does not change.

        params = sp.select(model)
        pruner = sp.Pruner(params, optimizer, threshold=sp.TargetSparsity(0.95, steps=T))

    Build it when the model is on its device, and wrapped (DDP, ``fully_shard``): θ begins as the weights are then.
    ``optimizer.state_dict()`` carries the whole state, so whatever resumes the optimizer resumes the pruning.

    Args:
        params: {name: parameter} from ``sp.select``.
        optimizer: the torch optimizer that trains them.
        threshold: where d comes from: ``TargetSparsity``, ``LATS``, a schedule (any ``step -> d``), or a trained
            threshold.
        prox: the mapping w(θ, d); when None, what the threshold brings: the soft threshold for those of the paper.
        groups: which weights share a fate: ``sp.Blocks``, ``sp.Channels``, ``sp.Neurons``, ``sp.Heads``, ``sp.Groups``.
            When None, each weight has its own.
        gradient: ``sp.identity``, ``sp.calm`` or ``sp.subgradient``; when None, what the threshold brings: the
            subgradient for trained thresholds, calm for targets, the identity for all others.

    Attributes:
        step: completed optimizer steps.
        rule: the threshold, bound to these weights.

    >>> import softprune as sp
    >>> model = nn.Linear(4, 4)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(10.0))
    >>> pruner.sparsity(), pruner.threshold
    (1.0, {'weight': 10.0})
    """

    def __init__(
        self,
        params: Mapping[str, nn.Parameter],
        optimizer: Optimizer,
        *,
        threshold: Threshold | Callable[[int], float],
        prox: Prox | None = None,
        groups: Grouping | None = None,
        gradient: Gradient | None = None,
    ) -> None:
        checks.factors(threshold, prox, groups, gradient)
        threshold = threshold if isinstance(threshold, Threshold) else Scheduled(threshold)
        self.optimizer = unwrap_optimizer(optimizer)
        self.params = checks.prunable(params if groups is None else groups.complete(params), self.optimizer)
        registry.vacate(self.params.values())
        self.prox = grouped(prox or threshold.prox, groups, self.params)
        self.gradient = gradient or threshold.gradient

        self.step = 0
        self._hidden = Hidden(self.params, self.prox)
        self.rule = threshold.bind(self._hidden, self.optimizer)
        checks.fit(self.prox, self.rule, self.gradient, self._hidden.params)
        self._handles: list[RemovableHandle] = []
        self._last = _Step(self.rule.levels, self.rule.levels, [0.0] * len(self.params))
        self._evaluations = 0  # of the closure, in this step
        with torch.no_grad():
            self._write()
        self._attach()

    # -- Algorithm 1 ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def _before_step(self, has_closure: bool) -> None:
        self._settle()
        if not has_closure:
            self._turn_gradients()  # Δθ ← dL/dw ⊙ ∂w/∂θ
        self._hidden.reveal()  # and the optimizer: θ ← θ − η (Δθ + λθ)
        self._evaluations = 0

    @torch.no_grad()
    def _after_step(self, counts: bool) -> None:
        self._hidden.conceal()
        if counts:
            self.step += 1
            before, lrs = self.rule.levels, rates(self.optimizer, self._hidden.params)
            self.rule.advance(self.step, lrs)  # d ← g(t/T)·D, ...
            self._last = _Step(before, self.rule.levels, lrs)
        self._write()  # w ← S_d(θ)
        self._clear_trained()

    @torch.no_grad()
    def _evaluate(self, closure: hooks.Closure) -> Any:
        """The loss of a closure, on w: however often the optimizer asks, and wherever θ is by then. The first time that
        one of torch's own asks, it has moved nothing, and w is as the last step wrote it; others may have moved θ."""
        own = type(self.optimizer).__module__.startswith("torch.optim.")
        stale = not own or self._evaluations > 0 or self._hidden.moved()
        self._hidden.conceal()
        if stale:
            self.rule.reread()
            self._write()
        self._evaluations += 1
        self._clear_trained()
        with torch.enable_grad():
            loss = closure()
        self._turn_gradients()
        self._hidden.reveal()
        return loss

    def _turn_gradients(self) -> None:
        """dL/dw -> dL/dθ, in place, and dL/d(level) into the gradients of a trained threshold."""
        if self.gradient is identity and not self.rule.trained:
            return
        hidden = self._hidden
        have = [i for i, p in enumerate(hidden.params) if p.grad is not None]
        if not have:
            return
        if self.prox.spans:  # the rest of a group may have a gradient
            have = list(range(len(hidden.params)))
        levels = [take(column, have) for column in self.rule.levels]
        grads = [
            torch.zeros_like(theta) if p.grad is None else local(p.grad)
            for p, theta in ((hidden.params[i], hidden.thetas[i]) for i in have)
        ]
        params = [hidden.params[i] for i in have]
        total = partial(totals, parameters=params) if any(map(is_sharded, params)) else None
        turned = Gradients(grads, [hidden.thetas[i] for i in have], [hidden.ws[i] for i in have], total)
        sums = self.gradient(self.prox, turned, *levels)
        self.rule.pull_back(have, [totals(column, params) for column in sums])

    def _clear_trained(self) -> None:
        """Forget dL/ds: ``_turn_gradients`` made it for one use."""
        for p in self.rule.trained:
            p.grad = None

    def _write(self) -> None:
        """w ← w(θ, d)."""
        self.prox.write(self._hidden.pairs, *self.rule.levels)

    def _settle(self) -> None:
        """Put right what happened since the last step: one that failed midway, weights set from outside."""
        if self._hidden.revealed:
            self._hidden.conceal()
            self._write()
            self._clear_trained()
        elif changed := self._hidden.changed():
            self._hidden.adopt(self._hidden.follow(changed, self.rule.levels))

    # -- what a user reads -----------------------------------------------------------------------------------

    @property
    def threshold(self) -> dict[str, float]:
        """d of each parameter, by name."""
        return dict(zip(self.params, floats(self.rule.levels[0]), strict=True))

    @property
    def penalty(self) -> dict[str, float]:
        """The L1 penalty μ = (d(t+1) − d(t)) / η(t) that the last step implied, by name; zero before any step, and nan
        where a state was loaded and no step made since.

        It is meant for plain SGD. With momentum m a gradient counts 1 / (1 − m) times, the threshold once: the loss is
        balanced against (1 − m)·μ.
        """
        last = self._last
        steps = zip(floats(last.before[0]), floats(last.after[0]), read(last.lrs), strict=True)
        return dict(zip(self.params, [quotient(after - before, lr) for before, after, lr in steps], strict=True))

    @property
    def theta(self) -> dict[str, Tensor]:
        """The hidden weights, by name; empty after ``detach``."""
        return dict(zip(self.params, self._hidden, strict=False))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The sparse weights as ``detach`` would leave them now, by name; of a sharded parameter, this process's part.

        Where a target is not met, as when a GradScaler skipped the last steps, ``detach`` moves d once more.
        """
        ws: Iterable[Tensor] = [local(p).detach() for p in self.params.values()]
        if self._handles:
            ws = self._exact(list(ws))
        yield from zip(self.params, ws, strict=True)

    def _exact(self, ws: list[Tensor]) -> Iterable[Tensor]:
        hidden, levels = self._hidden, self.rule.levels
        thetas = list(hidden.thetas)
        if hidden.revealed:  # in a step, or after one that failed midway
            ws = [torch.empty_like(theta) for theta in thetas]
            self.prox.write(Pairs(ws, thetas), *levels)
        else:
            for i, theta in hidden.follow(hidden.changed(), levels).items():
                thetas[i] = local(theta)
        return self.prox.exact(Pairs(ws, thetas), *levels)

    def sparsity(self) -> float:
        """The share of the pruned parameters that is exactly zero. A host sync."""
        params = list(self.params.values())
        zeros = torch.stack([(w == 0).sum().to(params[0].device) for _, w in self.weights()])
        return int(totals(zeros, params).sum()) / sum(p.numel() for p in params)

    def __repr__(self) -> str:
        return (
            f"Pruner({len(self.params)} parameters, threshold={self.rule.threshold}, prox={self.prox}, "
            f"gradient={getattr(self.gradient, '__name__', self.gradient)}, step={self.step})"
        )

    # -- the beginning and the end ---------------------------------------------------------------------------

    def _attach(self) -> None:
        self._handles = [
            *optimizer_state.attach(
                self.optimizer,
                [*self._hidden.params, *self.rule.trained],
                save=self._entries,
                check=self._check,
                load=self._restore,
            ),
            *hooks.attach(self.optimizer, before=self._before_step, evaluate=self._evaluate, after=self._after_step),
        ]
        registry.claim(self.params.values(), self)

    def detach(self) -> None:
        """Stop pruning. The model keeps its exactly sparse weights, and nothing else remains.

        Warns where pruning ends before it should: no step was counted, or fewer than the threshold was made for.
        """
        self._detach(finish=True)

    @torch.no_grad()
    def _detach(self, finish: bool) -> None:
        if not self._handles:
            return
        self._settle()
        levels = self.rule.levels
        try:
            if finish:
                self._finish()
        finally:  # a warning may be an error
            if self.rule.levels is not levels:
                self._write()
            for (_, w), p in zip(self.weights(), self._hidden.params, strict=True):
                if w.data_ptr() != local(p).data_ptr():
                    local(p).copy_(w)
            for handle in self._handles:
                handle.remove()
            self._handles = []
            self._hidden.clear()
            registry.release(self.params.values())

    def _finish(self) -> None:
        """d ← where it should end, and a warning if it does not."""
        if self.step > 0:
            self.rule.finish(self.step)
        elif self.rule.trained or not self.sparsity():  # pruning at initialization needs no step
            warnings.warn(
                f"Nothing was pruned: no step of this {type(self.optimizer).__name__} was counted. If the network was "
                "trained, another optimizer stepped; give that one to the Pruner.",
                stacklevel=5,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an exception d stays as it is: that pruning ends early is no news, and the other processes of a run
        may not be there to count weights with."""
        self._detach(finish=kind is None)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_handles"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A deep copy or an unpickled pruner attaches itself to its own copy of the optimizer."""
        self.__dict__.update(state)
        self._handles = []
        if len(self._hidden.params) > 0:
            self._attach()

    # -- state: {parameter: {key: tensor or number}} -----------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The part of ``optimizer.state_dict()`` that is about pruning, by name: {name: {key: tensor or number}}. For
        those who save no optimizer."""
        return state.by_name(self._entries(), self.params, self.rule.trained)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        entries = state.by_parameter(state_dict, self.params, self.rule.trained)
        self._check(entries)
        self._restore(entries)

    @torch.no_grad()
    def _entries(self) -> Entries:
        """Saving changes nothing: weights set from outside, such as an average, may be gone before the next step."""
        checks.attached(self._handles)
        if self._hidden.revealed:
            self._settle()
        followed = self._hidden.follow(self._hidden.changed(), self.rule.levels)
        entries: dict[Tensor, dict[str, Any]] = {
            p: {"theta": followed.get(i, theta), "step": self.step, "prox": state.mark(self.prox)}
            for i, (p, theta) in enumerate(zip(self._hidden.params, self._hidden, strict=True))
        }
        for i, scale in enumerate(self.prox.scales):
            entries[self._hidden.params[i]]["scale"] = scale
        for p, values in self.rule.state().items():
            entries.setdefault(p, {}).update(values)
        return entries

    def _check(self, entries: Entries) -> None:
        checks.attached(self._handles)
        checks.hidden_weights(self.params, entries)
        self.rule.check(state.of_the_rule(entries))
        checks.same_prox(self.prox, entries[self._hidden.params[0]])

    @torch.no_grad()
    def _restore(self, entries: Entries) -> None:
        if self._hidden.revealed:
            self._hidden.conceal()
        params = self._hidden.params
        self._hidden.adopt({i: torch.empty_like(params[i], requires_grad=False) for i in self._hidden.changed()})
        self.step = int(entries[params[0]]["step"])
        self._hidden.load([entries[p]["theta"] for p in params])
        if self.prox.scales:
            self.prox.take([float(entries[p]["scale"]) for p in params])
        self.rule.load(state.of_the_rule(entries))
        self._last = _Step(self.rule.levels, self.rule.levels, [math.nan] * len(params))
        self._write()
