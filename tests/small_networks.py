"""The kinds of weights that are pruned, each in the smallest network that has them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from softprune.spiking.sew import SEWResNet


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x.unsqueeze(1).expand(-1, 3, -1))[0][:, -1])


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        sequence = torch.stack([x, x.flip(1), x.roll(1, 1)], dim=1)
        return self.head(self.attention(sequence, sequence, sequence, need_weights=False)[0].mean(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)),
    "conv": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)),
        nn.Conv2d(1, 4, (2, 2), padding=1),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(48, 3),
    ),
    "lstm": Recurrent,
    "attention": Attentive,
    "spiking": lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 3)), SEWResNet((1, 1), 3, 1, width=4, small=True)),
}


def network(kind: str = "linear", dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS[kind]().to(dtype)
