"""The swap between θ and w: parameters are pointed at one memory or the other, and nothing is copied."""

import torch
from torch import nn

from softprune.prox.soft import SoftThreshold
from softprune.pruner.hidden import Hidden


def hidden() -> tuple[nn.Parameter, Hidden]:
    p = nn.Parameter(torch.tensor([[-3.0, -1.0, 0.5], [2.0, 0.0, 1.5]]))
    return p, Hidden({"p": p})


def test_a_parameter_holds_theta_while_it_is_revealed_and_w_before_and_after():
    p, h = hidden()
    w, theta = p.data_ptr(), h.thetas[0].data_ptr()
    h.reveal()
    assert (p.data_ptr(), h.revealed) == (theta, True)
    with torch.no_grad():
        p.add_(1.0)
    h.conceal()
    assert (p.data_ptr(), h.revealed) == (w, False)
    assert torch.equal(h.thetas[0], p + 1.0)


def test_it_is_known_whether_the_optimizer_has_moved_theta():
    p, h = hidden()
    h.reveal()
    assert not h.moved()
    with torch.no_grad():
        p.mul_(2.0)
    assert h.moved()
    h.conceal()
    h.reveal()
    assert not h.moved()
    p.data = p.data.clone()  # as an optimizer that gives parameters other memory
    assert h.moved()


def test_theta_follows_an_optimizer_that_gives_other_memory():
    p, h = hidden()
    h.reveal()
    p.data = torch.full_like(p, 7.0)
    h.conceal()
    assert (h.thetas[0] == 7.0).all()
    assert not (p == 7.0).any()


def test_weights_set_from_outside_are_seen_and_followed():
    p, h = hidden()
    levels = ([1.0],)
    SoftThreshold().write(h.pairs, *levels)
    h.conceal()
    assert h.changed() == []
    with torch.no_grad():
        p[0, 0] = -5.0
    assert h.changed() == [0]
    theta = h.follow([0], levels)[0]
    assert theta[0, 0] == -6.0  # which the threshold shrinks to what was set
    assert torch.equal(theta.flatten()[1:], h.thetas[0].flatten()[1:])  # all others stay
    h.adopt({0: theta})
    assert h.changed() == []
