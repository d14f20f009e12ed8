"""Between steps the model is the user's: weights set from outside are kept, and a failed step does no harm."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import softprune as sp
from oracles import METHODS, OPTIMIZERS, STEPS, Run, assert_same, loss_of, network, shrink


def pruned(final: float = 0.25, lr: float = 0.5) -> tuple[nn.Linear, torch.optim.SGD, sp.Pruner]:
    """Four weights under a constant threshold; numbers that floats hold exactly."""
    model = nn.Linear(4, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -0.5, 0.125, -0.25]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return model, optimizer, sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(final))


def test_building_a_pruner_applies_its_threshold():
    model, _, pruner = pruned()
    assert model.weight.tolist() == [[0.75, -0.25, 0.0, 0.0]]
    assert pruner.theta["weight"].tolist() == [[1.0, -0.5, 0.125, -0.25]]


@pytest.mark.parametrize("how", ["copy_", "load_state_dict", "data", "init"])
def test_weights_set_from_outside_are_kept(how):
    """θ becomes w + d·sign(w) where w was changed, and stays where it was not."""
    model, optimizer, pruner = pruned()
    new = torch.tensor([[0.75, 1.0, 0.0, 0.5]]).double()
    match how:
        case "copy_":
            with torch.no_grad():
                model.weight.copy_(new)
        case "load_state_dict":
            model.load_state_dict({"weight": new})
        case "data":
            model.weight.data = new.clone()
        case "init":
            with torch.no_grad():
                model.weight[0, 1] = 1.0
                model.weight[0, 3] = 0.5
    optimizer.step()
    assert pruner.theta["weight"].tolist() == [[1.0, 1.25, 0.125, 0.75]]
    assert torch.equal(model.weight, new)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda things: pickle.loads(pickle.dumps(things))])
def test_a_copy_keeps_weights_set_from_outside(clone):
    model, optimizer, pruner = pruned()
    with torch.no_grad():
        model.weight[0, 1] = 1.0
    model, optimizer, pruner = clone((model, optimizer, pruner))
    optimizer.step()
    assert pruner.theta["weight"].tolist() == [[1.0, 1.25, 0.125, -0.25]]
    assert model.weight.tolist() == [[0.75, 1.0, 0.0, 0.0]]


def test_the_sparsity_of_gpo_counts_weights_set_from_outside():
    run = Run.of("momentum", "gpo")
    run.train(range(3))
    with torch.no_grad():
        for p in run.pruner.params.values():
            p.zero_()
    assert run.pruner.sparsity() == sp.summarize(run.pruner).sparsity == 1.0


def test_hooks_of_others_see_the_sparse_weights_whenever_they_were_registered():
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(int((model.weight == 0).sum())))
    sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(10.0))
    optimizer.register_step_post_hook(lambda *_: seen.append(int((model.weight == 0).sum())))
    optimizer.step()
    assert seen == [4, 4]


def test_a_gradient_on_weights_from_outside_moves_their_theta():
    model, optimizer, pruner = pruned()
    model.load_state_dict({"weight": torch.full((1, 4), 2.0)})
    model(torch.tensor([[1.0, 0.0, -1.0, 0.0]]).double()).backward()
    optimizer.step()
    assert pruner.theta["weight"].tolist() == [[1.75, 2.25, 2.75, 2.25]]
    assert model.weight.tolist() == [[1.5, 2.0, 2.5, 2.0]]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["copy_", "data", "load_state_dict"])
def test_an_average_swapped_in_and_out_again_changes_nothing(method, how):
    run, twin = Run.of("momentum", method), Run.of("momentum", method)
    for step in range(STEPS):
        run.train(range(step, step + 1))
        own = copy.deepcopy(run.model.state_dict())
        addresses = [p.data for p in run.model.parameters()]
        match how:
            case "copy_":
                with torch.no_grad():
                    for p, w in zip(run.model.parameters(), list(own.values()), strict=True):
                        p.mul_(0.5)
                        p.copy_(w)
            case "data":
                for p, w in zip(run.model.parameters(), addresses, strict=True):
                    p.data = torch.zeros_like(p)
                    p.data = w
            case "load_state_dict":
                run.model.load_state_dict(network(seed=5).state_dict())
                run.model.load_state_dict(own)
    twin.train()
    assert_same(run, twin)


def test_an_average_that_is_in_while_the_state_is_saved_costs_no_hidden_weight():
    run, twin = Run.of("momentum"), Run.of("momentum")
    run.train(range(4))
    own = copy.deepcopy(run.model.state_dict())
    run.model.load_state_dict(network(seed=5).state_dict())
    run.optimizer.state_dict()
    run.model.load_state_dict(own)
    run.train(range(4, STEPS))
    twin.train()
    assert_same(run, twin)


@pytest.mark.parametrize("method", ["slats", "lats", "str", "gpo"])
def test_the_model_may_change_its_type(method):
    """θ follows to within the precision that it had, also where the weight is pruned."""
    run = Run.of("sgd", METHODS[method], dtype=torch.float32)
    run.train(range(4))
    run.optimizer.zero_grad()
    before = {name: theta.clone() for name, theta in run.pruner.theta.items()}
    run.model.double()
    run.optimizer.step()  # no gradients: only d moves
    for name, theta in run.pruner.theta.items():
        assert theta.dtype == run.pruner.params[name].dtype == torch.float64
        torch.testing.assert_close(theta, before[name].double(), rtol=1e-6, atol=1e-6)
    run.dtype = torch.float64
    run.train(range(4, STEPS))
    assert run.pruner.step == STEPS + 1


def test_a_change_of_type_keeps_theta():
    model, optimizer, pruner = pruned()
    model.float()
    optimizer.step()
    assert pruner.theta["weight"].dtype == torch.float32
    assert pruner.theta["weight"].tolist() == [[1.0, -0.5, 0.125, -0.25]]
    assert model.weight.tolist() == [[0.75, -0.25, 0.0, 0.0]]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_theta_follows_the_memory_format(kind):
    """A fused optimizer walks through weights and gradients as they lie in memory."""
    ends = []
    for threshold in (None, sp.Constant(0.0)):
        torch.manual_seed(0)
        model = nn.Conv2d(3, 4, 3)
        optimizer = kind(model.parameters(), lr=0.1, fused=True)
        if threshold is not None:
            sp.Pruner(sp.select(model), optimizer, threshold=threshold)
        model.to(memory_format=torch.channels_last)
        for _ in range(3):
            x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        ends.append(model.weight.detach())
    torch.testing.assert_close(*ends)


class Failing(torch.optim.SGD):
    """Updates its parameters, and then breaks once."""

    broken = False

    def step(self, closure=None):
        loss = super().step(closure)
        if self.broken:
            raise RuntimeError("device lost")
        return loss


class Rebinding(torch.optim.Optimizer):
    """Gives parameters new memory at every step, as some SAMs do."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data - group["lr"] * p.grad


def test_an_optimizer_may_give_parameters_other_memory():
    run, other = Run.of(Rebinding, METHODS["slats"]), Run.of(lambda groups: torch.optim.SGD(groups, lr=0.1))
    for one in (run, other):
        one.train()
    for (_, a), (_, b) in zip(run.numbers(), other.numbers(), strict=True):
        torch.testing.assert_close(a, b)
    assert run.pruner.sparsity() > 0


def test_the_sparsity_after_a_step_that_failed_midway_is_that_of_the_sparse_weights():
    run = failed()
    assert run.pruner._hidden.revealed
    shown = run.pruner.sparsity()
    run.pruner.detach()
    assert shown == run.pruner.sparsity() > 0


def test_a_parameter_that_moves_to_another_group_follows_its_learning_rate():
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.LATS(1.0))
    optimizer.step()
    optimizer.param_groups[0]["params"].clear()
    optimizer.add_param_group({"params": [model.weight], "lr": 0.01})
    optimizer.step()
    assert pruner.threshold == pytest.approx(0.11)
    optimizer.param_groups[1]["params"].clear()
    with pytest.raises(ValueError, match="Call `detach\\(\\)` before taking some away"):
        optimizer.state_dict()


def test_a_compiled_step_is_compiled_once():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = sp.Pruner(sp.select(model), optimizer, threshold=sp.Linear(1.0, 20))
    compiled = CompileCounter()
    step = torch.compile(optimizer.step, backend=compiled)
    for _ in range(20):
        model(torch.ones(2, 4)).sum().backward()
        step()
    assert pruner.threshold == 1.0
    assert compiled.frame_count <= 3


def test_a_step_that_failed_is_tried_again_with_the_gradient_of_one():
    run, other = (Run.of(lambda groups: Failing(groups, lr=0.1), METHODS["str"]) for _ in range(2))
    for one in (run, other):
        loss_of(one.model, 0).backward()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", lambda self, closure=None: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.optimizer.step()
    run.optimizer.step()
    other.optimizer.step()
    assert_same(run, other)


def failed(method: str = "slats") -> Run:
    run = Run.of(lambda groups: Failing(groups, lr=0.1, momentum=0.9), METHODS[method])
    run.train(range(4))
    run.optimizer.broken = True
    loss_of(run.model, 4).backward()
    with pytest.raises(RuntimeError, match="device lost"):
        run.optimizer.step()
    run.optimizer.broken = False
    run.optimizer.zero_grad()
    return run


@pytest.mark.parametrize("method", ["slats", "lats", "str"])
def test_after_a_step_that_failed_midway_the_next_one_goes_on(method):
    """What the failed step wrote is kept; it did not count, so d did not grow."""
    run = failed(method)
    assert run.pruner.step == 4
    run.train(range(5, STEPS))
    assert run.pruner.step == STEPS - 1
    for name, theta in run.pruner.theta.items():
        d = run.pruner.threshold[name] if isinstance(run.pruner.threshold, dict) else run.pruner.threshold
        torch.testing.assert_close(run.pruner.params[name].data, shrink(theta, d), rtol=1e-12, atol=1e-14)
        assert (run.pruner.params[name] == 0).any()


@pytest.mark.parametrize("end", ["detach", "exit", "state_dict"])
def test_after_a_step_that_failed_midway_the_weights_are_put_back(end):
    run = failed()
    theta = {name: theta.clone() for name, theta in run.pruner.theta.items()}
    d = run.pruner.threshold
    match end:
        case "detach":
            run.pruner.detach()
        case "exit":
            with run.pruner:
                pass
        case "state_dict":
            run.optimizer.state_dict()
    for name, p in run.pruner.params.items():
        torch.testing.assert_close(p.data, shrink(theta[name], d), rtol=1e-12, atol=1e-14)
        assert (p == 0).any()


def test_an_error_inside_the_context_still_leaves_sparse_weights():
    run = Run.of("adam", lambda params: sp.Constant(0.1))
    run.train(range(2))
    with pytest.raises(IndexError), run.pruner:
        run.model[7]
    assert all((p == 0).any() for p in run.pruner.params.values())
    assert not run.pruner.theta


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("whose", ["model", "optimizer"])
@pytest.mark.parametrize("method", ["slats", "str"])
def test_every_way_to_clear_gradients(set_to_none, whose, method):
    run, twin = Run.of("momentum", method), Run.of("momentum", method)
    for step in range(STEPS):
        loss_of(run.model, step).backward()
        run.optimizer.step()
        run.scheduler.step()
        getattr(run, whose).zero_grad(set_to_none=set_to_none)
    twin.train()
    assert_same(run, twin)


def test_tied_parameters_are_pruned_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
            self.second.weight = self.first.weight
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.second(self.first(x)))

    torch.manual_seed(0)
    model = Tied().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    params = sp.select(model)
    assert list(params) == ["first.weight", "head.weight"]
    pruner = sp.Pruner(params, optimizer, threshold=sp.Linear(0.2, 4))
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    assert model.second.weight is model.first.weight
    assert sp.summarize(pruner).parameters == 36 + 18
    assert (model.first.weight == 0).any()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw-fused"])
def test_detaching_leaves_a_plain_module_and_a_plain_optimizer(method, optimizer):
    run = Run.of(optimizer, METHODS[method])
    run.train()
    expected = {name: w.clone() for name, w in run.pruner.weights()}
    run.pruner.detach()
    untouched = OPTIMIZERS[optimizer](network().parameters())
    hooks = [name for name in vars(untouched) if name.endswith("_hooks")]
    assert len(hooks) >= 5
    assert all(len(vars(run.optimizer)[name]) == len(vars(untouched)[name]) for name in hooks)
    for name, p in run.pruner.params.items():
        assert torch.equal(p.data, expected[name])
        assert type(p) is nn.Parameter
        assert (p == 0).any()
        assert p.requires_grad
    assert not any("softprune" in key for state in run.optimizer.state_dict()["state"].values() for key in state)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in run.model.modules())
    run.pruner.detach()  # twice is once
    step = run.pruner.step
    run.train(range(1))
    assert run.pruner.step == step


def test_names_and_keys_of_the_model_never_change():
    plain = network()
    run = Run.of("adam", "str")
    for steps in (range(0), range(2)):
        run.train(steps)
        assert list(run.model.state_dict()) == list(plain.state_dict())
        assert [type(m) for m in run.model.modules()] == [type(m) for m in plain.modules()]
    plain.load_state_dict(run.model.state_dict())
    x = torch.randn(2, 6).double()
    assert torch.equal(plain.eval()(x), run.model.eval()(x))


def test_w_stays_in_the_memory_that_the_model_gave_it():
    """Views, flattened LSTM weights and shared memory go on looking at the sparse weights."""
    run = Run.of("momentum", "slats", kind="lstm")
    view = run.model.lstm.weight_hh_l0.data.view(-1)
    run.train()
    assert torch.equal(view, run.model.lstm.weight_hh_l0.data.view(-1))
    assert (view == 0).any()


def test_parameters_may_join_the_optimizer_later():
    run, twin = Run.of("adam"), Run.of("adam")
    run.train(range(2))
    run.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3, 3))], "initial_lr": 0.1})
    run.scheduler = None
    state = run.optimizer.state_dict()
    run.optimizer.load_state_dict(state)
    run.train(range(2, 4))
    twin.train(range(2))
    twin.scheduler = None
    twin.train(range(2, 4))
    assert_same(run, twin)


def test_the_sparse_model_can_be_exported():
    run = Run.of("momentum", "slats", dtype=torch.float32)
    run.train()
    x = torch.randn(2, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        program = torch.export.export(run.model, (x,))
    torch.testing.assert_close(program.module()(x), run.model(x))
    exported = dict(program.named_parameters())
    assert torch.equal(exported["0.weight"], run.model[0].weight)


def test_a_backward_pass_through_weights_that_a_step_changed_is_refused():
    """As without a pruner: autograd notices that the weights of its forward pass are gone."""
    run = Run.of("sgd")
    run.train(range(2))
    loss = loss_of(run.model, 2)
    loss.backward(retain_graph=True)
    run.optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_backward_pass_is_refused_too_where_d_alone_changed_the_weights():
    run = Run.of("sgd")
    run.train(range(2))
    loss = loss_of(run.model, 2)
    run.optimizer.zero_grad()
    run.optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("threshold", [sp.SLATS(0.1, 4), sp.TargetSparsity(0.5, 4)])
def test_the_default_device_is_not_the_models(threshold):
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 8)
    with torch.device("meta"):  # as torch.set_default_device("cuda") would be
        with sp.Pruner(sp.select(model), optimizer, threshold=threshold) as pruner:
            for _ in range(4):
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        assert 0 < pruner.sparsity() < 1
