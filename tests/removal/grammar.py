"""Random networks: a sentence of a small grammar, image -> tokens -> classes."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from structure.zoo import Net

Block = tuple[nn.Module, int]


def _layer(forward: Callable[..., Tensor], **layers: nn.Module) -> nn.Module:
    return Net(forward, **layers)


def _norm(dice: random.Random, width: int) -> nn.Module:
    choices = [
        nn.BatchNorm2d(width),
        nn.BatchNorm2d(width, affine=False),
        nn.Identity(),
        nn.InstanceNorm2d(width, affine=True),
    ]
    return dice.choice([*choices, nn.GroupNorm(2, width)] if width % 2 == 0 else choices)


def _act(dice: random.Random) -> nn.Module:
    return dice.choice([nn.ReLU(inplace=True), nn.SiLU(), nn.GELU(), nn.Sigmoid(), nn.PReLU(), nn.Hardswish()])


def convolution(dice: random.Random, width: int) -> Block:
    out, kernel = dice.choice([4, 6, 8]), dice.choice([1, 3])
    conv = nn.Conv2d(width, out, kernel, padding=kernel // 2 * dice.randint(0, 1), bias=dice.random() < 0.5)
    return nn.Sequential(conv, _norm(dice, out), _act(dice)), out


def grouped(dice: random.Random, width: int) -> Block:
    out = dice.choice([4, 8])
    kind = dice.choice([nn.Conv2d, nn.ConvTranspose2d])
    return nn.Sequential(kind(width, out, 1, groups=2), nn.ChannelShuffle(2), _act(dice)), out


def depthwise(dice: random.Random, width: int) -> Block:
    times = dice.choice([1, 2])
    conv = nn.Conv2d(width, width * times, 3, padding=1, groups=width)
    return nn.Sequential(conv, _norm(dice, width * times), _act(dice)), width * times


def residual(dice: random.Random, width: int) -> Block:
    inner = dice.choice([4, 6])
    body = nn.Sequential(
        nn.Conv2d(width, inner, 1),
        _norm(dice, inner),
        _act(dice),
        nn.Conv2d(inner, width, 3, padding=1),
        _norm(dice, width),
    )
    if dice.random() < 0.5:
        return _layer(lambda net, x: x + net.body(x), body=body), width

    def in_place(net: Net, x: Tensor) -> Tensor:
        y = net.body(x)
        y += x
        return y.relu_()

    return _layer(in_place, body=body), width


def concat(dice: random.Random, width: int) -> Block:
    a, b = dice.choice([2, 4]), dice.choice([2, 4])

    def forward(net: Net, x: Tensor) -> Tensor:
        return torch.cat([net.a(x), x, net.b(x)], 1)

    return _layer(forward, a=nn.Conv2d(width, a, 1), b=nn.Conv2d(width, b, 3, padding=1, bias=False)), a + b + width


def c2f(dice: random.Random, width: int) -> Block:
    def forward(net: Net, x: Tensor) -> Tensor:
        a, b = net.cv1(x).chunk(2, 1)
        return net.cv2(torch.cat([a, b, b + net.m(b)], 1))

    cv1, m, cv2 = nn.Conv2d(width, 8, 1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(12, 6, 1)
    return _layer(forward, cv1=cv1, m=nn.Sequential(m, _act(dice)), cv2=cv2), 6


def squeeze_excite(dice: random.Random, width: int) -> Block:
    gate = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 3, 1), nn.ReLU(), nn.Conv2d(3, width, 1), nn.Sigmoid()
    )
    return _layer(lambda net, x: x * net.gate(x), gate=gate), width


def resample(dice: random.Random, width: int) -> Block:
    pool = dice.choice([nn.MaxPool2d(2), nn.AvgPool2d(3, 1, 1), nn.AdaptiveMaxPool2d(3)])
    return nn.Sequential(pool, nn.Upsample((12, 12), mode=dice.choice(["nearest", "bilinear"]))), width


def perceptron(dice: random.Random, width: int) -> Block:
    inner = dice.choice([4, 8])
    if dice.random() < 0.5:
        gate, up, down = nn.Linear(width, inner), nn.Linear(width, inner, bias=False), nn.Linear(inner, width)
        return _layer(
            lambda net, x: x + net.down(functional.silu(net.gate(x)) * net.up(x)), gate=gate, up=up, down=down
        ), width
    norm = dice.choice([nn.LayerNorm(width), nn.RMSNorm(width), nn.Identity()])
    body = nn.Sequential(norm, nn.Linear(width, 2 * inner), nn.GLU(), nn.Linear(inner, width))
    return _layer(lambda net, x: x + net.body(x), body=body), width


def attention(dice: random.Random, width: int) -> Block:
    groups, each, size = dice.choice([2, 3]), dice.choice([1, 2]), 2
    fused = dice.random() < 0.5

    def forward(net: Net, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, size)).transpose(1, 2) for layer in (net.q, net.k, net.v))
        if fused:
            seen = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        else:
            k, v = (y[:, :, None].expand(-1, -1, each, -1, -1).flatten(1, 2) for y in (k, v))
            seen = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return x + net.o(seen.transpose(1, 2).flatten(2))

    q, k, v = (nn.Linear(width, n * size) for n in (groups * each, groups, groups))
    return _layer(forward, q=q, k=k, v=v, o=nn.Linear(groups * each * size, width)), width


IMAGES = (convolution, grouped, depthwise, residual, concat, c2f, squeeze_excite, resample)
TOKENS = (perceptron, attention)


def sentence(seed: int) -> nn.Module:
    """A network in double precision that takes images N × 3 × 12 × 12; statistics and shifts are random."""
    dice = random.Random(seed)
    torch.manual_seed(seed)
    stem, width = convolution(dice, 3)
    layers = [stem]
    for _ in range(dice.randint(1, 4)):
        layer, width = dice.choice(IMAGES)(dice, width)
        layers.append(layer)
    if dice.random() < 0.5:
        layers.append(_layer(lambda net, x: x.flatten(2).transpose(1, 2)))
        for _ in range(dice.randint(1, 3)):
            layer, width = dice.choice(TOKENS)(dice, width)
            layers.append(layer)
        layers.append(_layer(lambda net, x: net.head(x.mean(1)), head=nn.Linear(width, 3)))
    else:
        layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 5), nn.ReLU(), nn.Linear(5, 3)]
    net = nn.Sequential(*layers).double().eval()
    for name, tensor in net.state_dict().items():
        if tensor.dim() == 1 and tensor.is_floating_point():
            tensor.copy_(torch.rand_like(tensor) + 0.5 if "var" in name else torch.randn_like(tensor))
    return net
