"""n:m: at most n of m neighbours, from dense, continuously."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import softprune as sp
from softprune.kernels.pairs import Pairs
from softprune.prox.nm import NM

numbers = st.floats(-4, 4, width=32).map(lambda x: round(x, 2))  # so that ties happen
patterns = st.sampled_from([(1, 2), (1, 4), (2, 4), (3, 4), (4, 8)])


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    rows, cols = draw(st.integers(1, 3)), draw(st.integers(1, 18))
    return torch.tensor(draw(st.lists(numbers, min_size=rows * cols, max_size=rows * cols))).double().view(rows, cols)


def groups(x: Tensor, m: int) -> Tensor:
    """The whole groups, one a row."""
    return x[:, : x.shape[1] // m * m].reshape(-1, m)


def rest(x: Tensor, m: int) -> Tensor:
    return x[:, x.shape[1] // m * m :]


# -- the map -----------------------------------------------------------------------------------------------------


@given(matrices(), patterns, st.floats(0, 5), st.sampled_from([1, 4, math.inf]))
def test_it_is_the_power_threshold_until_n_are_left(theta, pattern, d, p):
    n, m = pattern
    w, plain = NM(n, m, p)(theta, d), sp.PowerThreshold(p)(theta, d)
    for mine, theirs, before in zip(groups(w, m), groups(plain, m), groups(theta, m), strict=True):
        if (before.abs() > d).sum() > n:
            assert torch.equal(mine, theirs)
        else:
            last = before.abs().sort(descending=True).values[n]
            assert (mine != 0).sum() == (before.abs() > last).sum() <= n
            assert torch.equal(mine, sp.PowerThreshold(p)(before, float(last)))
    assert torch.equal(rest(w, m), rest(theta, m))


@given(matrices(), matrices(), patterns, st.floats(0, 5), st.floats(0, 5))
def test_the_soft_one_is_continuous_in_theta_and_d(theta, other, pattern, d, e):
    """A weight moves by at most its own move and that of its threshold."""
    rows, cols = (min(a, b) for a, b in zip(theta.shape, other.shape, strict=True))
    theta, other = theta[:rows, :cols], other[:rows, :cols]
    prox = NM(*pattern, p=1)
    moved = (prox(theta, d) - prox(other, e)).abs()
    assert (moved <= 2 * max((theta - other).abs().max(), abs(d - e)) + 1e-12).all()


def test_the_derivative_is_not_symmetric_so_it_is_the_prox_of_no_function():
    theta = torch.tensor([3.0, 2.0, -1.0, 0.5], dtype=torch.float64)
    for p in (1, 2, 4):
        jacobian = torch.autograd.functional.jacobian(lambda x, p=p: NM(2, 4, p)(x, 10.0), theta)
        assert jacobian[0, 2] != 0 == jacobian[2, 0]
    hard = torch.autograd.functional.jacobian(lambda x: NM(2, 4, math.inf)(x, 10.0), theta)
    assert torch.equal(hard, hard.T)


@given(matrices(), patterns, st.floats(0, 5))
def test_the_hard_one_is_the_prox_of_what_all_but_n_weights_pay_where_none_tie(theta, pattern, d):
    n, m = pattern
    hard = sp.PowerThreshold(math.inf)

    def objective(v: Tensor, group: Tensor) -> Tensor:
        paid = v.abs().sort(dim=-1, descending=True).values[..., n:]
        return ((v - group) ** 2).sum(-1) / 2 + hard.regularizer(paid, d).sum(-1)

    for group, w in zip(groups(theta, m), groups(NM(n, m, math.inf)(theta, d), m), strict=True):
        ranked = group.abs().sort(descending=True).values
        if ranked[n - 1] == ranked[n]:  # a tie, of which either or none is left
            continue
        kept = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * m)  # any other choice of survivors
        assert objective(w, group) <= objective(kept * group, group).min() + 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_convolutions_have_groups_along_the_inputs_at_each_position(dtype):
    theta = torch.randn(3, 10, 3, 2).to(dtype).contiguous(memory_format=torch.channels_last)
    w = torch.empty_like(theta)
    NM(2, 4).write(Pairs([w], [theta]), [100.0])
    fours = w[:, :8].permute(0, 2, 3, 1).reshape(-1, 4)
    assert ((fours != 0).sum(1) <= 2).all()
    assert torch.equal(w[:, 8:], theta[:, 8:])
    assert w.stride() == theta.stride()


# -- what a target counts ----------------------------------------------------------------------------------------


@given(matrices(), patterns, st.floats(0, 5))
def test_exactly_n_of_a_group_never_die_and_the_others_die_at_their_size(theta, pattern, d):
    n, m = pattern
    prox = NM(n, m)
    (sizes,) = prox.sizes([theta])
    assert (groups(sizes, m).isinf().sum(1) == n).all()
    assert rest(sizes, m).isinf().all()
    finite = sizes.isfinite()
    assert torch.equal(sizes[finite], theta[finite].abs())
    assert not prox(theta, d)[sizes <= d].any()
    alive = (sizes > d) & (theta != 0)
    largest = theta.abs() > prox.level(theta, math.inf)  # no tie with the (n+1)-th
    assert prox(theta, d)[alive & (largest | finite)].all()


def train(model: nn.Module, threshold: object, steps: int, prox: sp.Prox, dtype: torch.dtype = torch.float32) -> None:
    torch.manual_seed(0)
    model.to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.randn(64, 16).to(dtype), torch.randn(64, 4).to(dtype)
    with sp.Pruner(sp.select(model), optimizer, threshold=threshold, prox=prox):
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def left(model: nn.Sequential, m: int) -> Tensor:
    """How many of each group."""
    return torch.cat([(groups(layer.weight, m) != 0).sum(1) for layer in model if isinstance(layer, nn.Linear)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("aim", [sp.GradualSparsity, sp.TargetSparsity])
@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 4), (4, 8)])
def test_a_target_of_all_that_may_die_ends_with_n_of_m_in_every_group(aim, n, m, dtype):
    model = network()
    train(model, aim(1 - n / m, steps=60), 60, NM(n, m), dtype)
    counts = left(model, m)
    assert (counts <= n).all()
    if dtype is not torch.bfloat16:  # where ties are rare
        assert (counts == n).all()


def test_half_of_the_way_weights_anywhere_are_zero():
    model = network()
    train(model, sp.GradualSparsity(0.25, steps=60), 60, NM(2, 4))
    zeros = sum(int((layer.weight == 0).sum()) for layer in model if isinstance(layer, nn.Linear))
    assert zeros == (16 * 32 + 32 * 4) // 4
    assert set(left(model, 4).tolist()) == {2, 3, 4}


def test_a_schedule_that_grows_beyond_all_weights_ends_with_n_of_m_too():
    model = network()
    train(model, sp.Linear(final=100.0, steps=40), 40, NM(2, 4, p=1))
    assert (left(model, 4) == 2).all()


def test_a_target_that_too_many_weights_outlive_is_refused():
    with pytest.raises(sp.errors.ArgumentError, match=r"cannot reach 60\.0000% where NM.* leaves at most 50\.0000%"):
        train(network(), sp.GradualSparsity(0.6, steps=10), 10, NM(2, 4))
    odd = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 6), nn.Linear(6, 4))
    with pytest.raises(sp.errors.ArgumentError, match=r"do not prune what it leaves denser than that: 2\.weight\.$"):
        train(odd, sp.TargetSparsity(0.5, steps=10), 10, NM(2, 4))


# -- weights set from outside, and state -----------------------------------------------------------------------


@given(matrices(), patterns, st.floats(0.1, 5), st.sampled_from([1, math.inf]))
def test_the_inverse_maps_back_to_the_weight_whatever_its_zeros(w, pattern, d, p):
    prox = NM(*pattern, p)
    possible = w if p == 1 else torch.where(w.abs() > d, w, 0.0)
    torch.testing.assert_close(prox(prox.inverse(possible, d), d), possible, rtol=1e-12, atol=1e-12)


@given(matrices(), patterns, st.floats(0.1, 5), st.floats(0.5, 2))
def test_weights_scaled_from_outside_keep_their_zeros_and_what_hides_behind_them(theta, pattern, d, factor):
    prox = NM(*pattern, p=1)
    written = prox(theta, d)
    (recovered,) = prox.recover(Pairs([factor * written], [theta]), [written], [d])
    torch.testing.assert_close(prox(recovered, d), factor * written, rtol=1e-12, atol=1e-12)
    assert torch.equal(recovered[written == 0], theta[written == 0])


@given(matrices(), matrices(), patterns, st.floats(0.1, 5))
def test_weights_replaced_from_outside_are_what_the_recovered_theta_maps_to(theta, w, pattern, d):
    rows, cols = (min(a, b) for a, b in zip(theta.shape, w.shape, strict=True))
    theta, w = theta[:rows, :cols], w[:rows, :cols]
    prox = NM(*pattern, p=1)
    (recovered,) = prox.recover(Pairs([w], [theta]), [prox(theta, d)], [d])
    torch.testing.assert_close(prox(recovered, d), w, rtol=1e-12, atol=1e-12)


def test_a_state_of_another_pattern_is_refused():
    def pruner(prox: sp.Prox) -> sp.Pruner:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return sp.Pruner(sp.select(model), optimizer, threshold=sp.Constant(0.1), prox=prox)

    state = pruner(NM(2, 4)).state_dict()
    pruner(NM(2, 4)).load_state_dict(state)
    for other in (NM(1, 4), NM(2, 8), NM(2, 4, p=1), sp.PowerThreshold(4)):
        with pytest.raises(sp.errors.ArgumentError, match="saved with another prox"):
            pruner(other).load_state_dict(state)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 4), r"`NM\(n=...\)` must be a whole number >= 1"),
        ((1, 1), r"`NM\(m=...\)` must be a whole number >= 2"),
        ((4, 4), r"`NM\(n=...\)` must be < m = 4. Got 4."),
        ((2, 4, 0.5), r"`NM\(p=...\)` must be >= 1"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(sp.errors.ArgumentError, match=words):
        NM(*arguments)


def test_a_threshold_for_each_weight_is_refused():
    model = network()
    model[0].weight.data[0] = 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(sp.errors.ArgumentTypeError, match="a threshold for each weight, and a group has one"):
        sp.Pruner(sp.select(model), optimizer, threshold=sp.KeepZeros(), prox=NM(2, 4, p=1))


# -- sharded parameters ------------------------------------------------------------------------------------------


@pytest.fixture
def one_of_two_processes():
    """The other one is not there: enough to look at shards."""
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    torch.distributed.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=2)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(("inputs", "dim", "refused"), [(16, 0, False), (16, 1, False), (12, 0, False), (12, 1, True)])
def test_shards_that_cut_groups_are_refused(one_of_two_processes, inputs, dim, refused):
    from torch.distributed.tensor import DTensor, Shard

    part = torch.randn(4, inputs).chunk(2, dim)[0]
    weight = nn.Parameter(DTensor.from_local(part, one_of_two_processes, [Shard(dim)]))
    assert NM(2, 4).cuts(weight) is refused
    assert not NM(2, 4).cuts(torch.randn(4, inputs))
    build = partial(
        sp.Pruner, {"weight": weight}, torch.optim.SGD([weight], lr=0.1), threshold=sp.Constant(100.0), prox=NM(2, 4)
    )
    if refused:
        with pytest.raises(sp.errors.ArgumentTypeError, match="with sharded parameters"):
            build()
    else:
        whole = NM(2, 4)(part, 100.0)
        build()
        assert torch.equal(weight.to_local(), whole)
