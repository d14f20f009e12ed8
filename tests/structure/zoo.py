"""Small networks, one for each way in which units are tied together."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


class Net(nn.Module):
    """Layers by name, and a function that says how they are used."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module | nn.Parameter | Tensor) -> None:
        super().__init__()
        self.function = forward
        for name, layer in layers.items():
            if isinstance(layer, Tensor) and not isinstance(layer, nn.Parameter):
                self.register_buffer(name, layer)
            else:
                setattr(self, name, layer)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self, *inputs)


def residual() -> Net:
    def forward(net: Net, x: Tensor) -> Tensor:
        x = net.norm1(net.stem(x)).relu()
        x = x + net.norm2(net.inner(x))
        return net.head(x.mean((2, 3)))

    return Net(
        forward,
        stem=nn.Conv2d(3, 6, 3, padding=1, bias=False),
        norm1=nn.BatchNorm2d(6),
        inner=nn.Conv2d(6, 6, 3, padding=1),
        norm2=nn.BatchNorm2d(6, affine=False),
        head=nn.Linear(6, 2),
    )


def concat() -> Net:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.head(net.mix(torch.cat([net.left(x), x, net.right(x)], 1)).flatten(1))

    mix, head = nn.Conv2d(10, 5, 1), nn.Linear(5 * 16, 2)
    return Net(forward, left=nn.Conv2d(3, 4, 1), right=nn.Conv2d(3, 3, 1), mix=mix, head=head)


def depthwise() -> Net:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.head(net.norm(net.wide(net.deep(net.stem(x)))).relu().amax((2, 3)))

    return Net(
        forward,
        stem=nn.Conv2d(3, 6, 1),
        deep=nn.Conv2d(6, 6, 3, groups=6),
        wide=nn.Conv2d(6, 12, 1, groups=6),
        norm=nn.BatchNorm2d(12),
        head=nn.Linear(12, 2),
    )


def grouped() -> Net:
    def forward(net: Net, x: Tensor) -> Tensor:
        x = torch.channel_shuffle(net.middle(net.stem(x)), 2)
        return net.head(net.up(x).mean((2, 3)))

    return Net(
        forward,
        stem=nn.Conv2d(3, 6, 1),
        middle=nn.Conv2d(6, 8, 3, groups=2),
        up=nn.ConvTranspose2d(8, 4, 2, stride=2, groups=2),
        head=nn.Linear(4, 2),
    )


def cardinal() -> Net:
    """A grouped convolution between two plain ones."""

    def forward(net: Net, x: Tensor) -> Tensor:
        return net.head(net.middle(net.stem(x)).relu().mean((2, 3)))

    stem, middle = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 12, 3, groups=3)
    return Net(forward, stem=stem, middle=middle, head=nn.Linear(12, 2))


def gated_space() -> Net:
    """A gate for each pixel, which is the mean of other channels."""

    def forward(net: Net, x: Tensor) -> Tensor:
        gate = net.gate(x).mean(1, keepdim=True).sigmoid()
        return net.head((net.stem(x) * gate).mean((2, 3)))

    return Net(forward, stem=nn.Conv2d(3, 6, 1), gate=nn.Conv2d(3, 4, 1), head=nn.Linear(6, 2))


def c2f() -> Net:
    """The block of Ultralytics' networks: a split, a chain of bottlenecks, and all of it side by side."""

    def forward(net: Net, x: Tensor) -> Tensor:
        parts = list(net.first(x).chunk(2, 1))
        for layer in net.chain:
            parts.append(parts[-1] + functional.silu(layer(parts[-1])))
        x = functional.interpolate(functional.max_pool2d(net.last(torch.cat(parts, 1)), 2), scale_factor=2.0)
        return net.head(x).mean((2, 3))

    chain = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
    return Net(forward, first=nn.Conv2d(3, 8, 1), chain=chain, last=nn.Conv2d(16, 6, 1), head=nn.Conv2d(6, 2, 1))


def squeeze_excite() -> Net:
    def forward(net: Net, x: Tensor) -> Tensor:
        x = net.stem(x)
        gate = net.excite(net.squeeze(functional.adaptive_avg_pool2d(x, 1)).relu()).sigmoid()
        return net.head((x * gate).flatten(2).mean(2))

    squeeze, excite = nn.Conv2d(6, 3, 1), nn.Conv2d(3, 6, 1)
    return Net(forward, stem=nn.Conv2d(3, 6, 1), squeeze=squeeze, excite=excite, head=nn.Linear(6, 2))


def gated() -> Net:
    def forward(net: Net, x: Tensor) -> Tensor:
        return net.down(functional.silu(net.gate(x)) * net.up(x) * net.scale)

    layers = {"gate": nn.Linear(5, 7), "up": nn.Linear(5, 7, bias=False), "down": nn.Linear(7, 2)}
    return Net(forward, **layers, scale=nn.Parameter(torch.rand(7)))


def geglu() -> Net:
    def forward(net: Net, x: Tensor) -> Tensor:
        a, b = net.both(x).chunk(2, -1)
        return net.down(a * functional.gelu(b)) + net.out(functional.glu(net.pair(x)))

    return Net(
        forward, both=nn.Linear(5, 12), down=nn.Linear(6, 2), pair=nn.Linear(5, 8), out=nn.Linear(4, 2, bias=False)
    )


def attention(heads: int = 6, groups: int = 3, size: int = 4) -> Net:
    """Grouped queries with rotary positions, a norm of each query, and a class token."""

    def forward(net: Net, x: Tensor) -> Tensor:
        x = torch.cat([net.token.expand(len(x), -1, -1), net.embed(x)], 1) + net.positions
        x = functional.layer_norm(x, (8,))
        q, k, v = (net.get_submodule(n)(x).unflatten(-1, (-1, size)).transpose(1, 2) for n in "qkv")
        q = functional.rms_norm(q, (size,), net.scale)
        q, k = (y * net.cos + torch.cat([-y[..., size // 2 :], y[..., : size // 2]], -1) * net.cos for y in (q, k))
        k, v = (y.repeat_interleave(heads // groups, 1) for y in (k, v))
        mixed = ((q @ k.transpose(-1, -2)) / size**0.5 + net.mask).softmax(-1) @ v
        return net.out(mixed.transpose(1, 2).flatten(2))[:, 0]

    return Net(
        forward,
        embed=nn.Linear(5, 8),
        token=nn.Parameter(torch.randn(1, 1, 8)),
        positions=nn.Parameter(torch.randn(1, 4, 8)),
        q=nn.Linear(8, heads * size),
        k=nn.Linear(8, groups * size, bias=False),
        v=nn.Linear(8, groups * size),
        scale=nn.Parameter(torch.rand(size)),
        cos=torch.rand(4, size),
        mask=torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1) > 0, -1e9),
        out=nn.Linear(heads * size, 3),
    )


def shared() -> Net:
    """One layer used twice, and a weight that is an embedding and a head."""

    def forward(net: Net, tokens: Tensor) -> Tensor:
        x = net.table(tokens)
        return functional.linear(net.twice(net.twice(x).relu()).relu(), net.table.weight)

    return Net(forward, table=nn.Embedding(11, 6), twice=nn.Linear(6, 6))


def biased() -> Net:
    """Attention with a learned bias for each head, which two layers share, and one of its own."""

    def forward(net: Net, x: Tensor) -> Tensor:
        bias = net.table(net.distances).permute(2, 0, 1)[None]
        for layer in (net.first, net.second):
            q, k, v = layer.qkv(x).view(*x.shape[:2], 3, -1, 2).permute(2, 0, 3, 1, 4)
            mask = bias if layer is net.first else bias + net.own
            x = x + layer.out(
                functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
            )
        return x

    layers = [nn.ModuleDict({"qkv": nn.Linear(5, 24), "out": nn.Linear(8, 5)}) for _ in range(2)]
    for layer in layers:
        layer.qkv, layer.out = layer["qkv"], layer["out"]
    distances = (torch.arange(3)[:, None] - torch.arange(3)).abs()
    table, own = nn.Embedding(3, 4), nn.Parameter(torch.randn(4, 1, 3))
    return Net(forward, table=table, first=layers[0], second=layers[1], own=own, distances=distances)


def shuffled() -> Net:
    """Channels that become pixels, and zeros around them."""

    def forward(net: Net, x: Tensor) -> Tensor:
        x = functional.pad(functional.pixel_shuffle(net.first(x), 2), (1, 1, 0, 0))
        return net.head(net.second(x).amax((2, 3)))

    return Net(forward, first=nn.Conv2d(3, 12, 1), second=nn.Conv2d(3, 4, 2), head=nn.Linear(4, 2))


def einsum() -> Net:
    """Heads as a dimension of the weights."""

    def forward(net: Net, x: Tensor) -> Tensor:
        q, k, v = (torch.einsum("btd,dhk->bhtk", x, w) for w in (net.q, net.k, net.v))
        scores = torch.einsum("bhtk,bhsk->bhts", q, k).softmax(-1)
        return torch.einsum("bhts,bhsk,hkd->btd", scores, v, net.out)

    weights = {name: nn.Parameter(torch.randn(5, 4, 3)) for name in "qkv"}
    return Net(forward, **weights, out=nn.Parameter(torch.randn(4, 3, 5)))


def volume() -> Net:
    """Three dimensions of space, then one; the statistics written by hand."""

    def forward(net: Net, x: Tensor) -> Tensor:
        x = net.norm(net.first(x[:, :, None])).flatten(2)
        x = (net.second(x) - net.mean[:, None]) * (net.variance[:, None] + 1e-5).rsqrt() * net.scale[:, None]
        return net.head(functional.adaptive_max_pool1d(x, 2).flatten(1))

    first, norm = nn.Conv3d(3, 4, (1, 3, 3), padding="same"), nn.BatchNorm3d(4)
    second, own = nn.Conv1d(4, 6, 3), {"mean": torch.rand(6), "variance": torch.rand(6)}
    return Net(
        forward, first=first, norm=norm, second=second, head=nn.Linear(12, 2), scale=nn.Parameter(torch.rand(6)), **own
    )


IMAGE, ROWS = (2, 3, 4, 4), (2, 3, 5)
ZOO: dict[str, tuple[Callable[[], Net], tuple[int, ...], dict[str, int]]] = {
    "residual": (residual, IMAGE, {"stem": 6}),
    "concat": (concat, IMAGE, {"left": 4, "right": 3, "mix": 5}),
    "depthwise": (depthwise, IMAGE, {"stem": 6}),
    "grouped": (grouped, IMAGE, {"stem": 3, "middle": 2, "up": 2}),
    "cardinal": (cardinal, IMAGE, {"stem": 2, "middle": 4}),
    "gated_space": (gated_space, IMAGE, {"stem": 6}),
    "c2f": (c2f, IMAGE, {"first": 4, "last": 6}),
    "squeeze_excite": (squeeze_excite, IMAGE, {"stem": 6, "squeeze": 3}),
    "gated": (gated, ROWS, {"gate": 7}),
    "geglu": (geglu, ROWS, {"both": 6, "pair": 4}),
    "attention": (attention, ROWS, {"q": 3}),
    "shared": (shared, (), {"table": 6}),
    "biased": (biased, ROWS, {"table": 4}),
    "shuffled": (shuffled, IMAGE, {"first": 3, "second": 4}),
    "einsum": (einsum, ROWS, {"q": 4}),
    "volume": (volume, IMAGE, {"first": 4, "second": 6}),
}


def build(name: str) -> tuple[Net, Tensor, dict[str, int]]:
    """A network with random weights and statistics, an example, and the units that it has."""
    torch.manual_seed(0)
    make, shape, sites = ZOO[name]
    net = make().double().eval()
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.is_floating_point() and tensor.dim() == 1:
            tensor.data = torch.rand_like(tensor) + 0.5
    return net, torch.randn(shape, dtype=torch.float64) if shape else torch.randint(11, (2, 3)), sites
