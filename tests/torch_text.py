"""Transformers and recurrent networks of text and images in torch, which tests measure."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Attend(nn.Module):
    """Attention; unfused with a bias of the scores, as T5's, or fused."""

    def __init__(self, hidden: int, heads: int, width: int, *, fused: bool, bias: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        inner = heads * width
        self.q, self.k, self.v = (nn.Linear(hidden, inner, bias=bias) for _ in range(3))
        self.out = nn.Linear(inner, hidden, bias=bias)

    def forward(self, x: Tensor, read: Tensor) -> Tensor:
        q, k, v = (
            layer(each).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, each in ((self.q, x), (self.k, read), (self.v, read))
        )
        if self.fused:
            found = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-2, -1)
            found = (scores + torch.zeros(scores.shape[-2:])).softmax(-1) @ v
        return self.out(found.transpose(1, 2).flatten(2))


class VitBlock(nn.Module):
    """Block of a vision transformer."""

    def __init__(self, hidden: int, ffn: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attend = Attend(hidden, heads, hidden // heads, fused=fused, bias=True)
        self.mlp = nn.Sequential(nn.Linear(hidden, ffn), nn.GELU(), nn.Linear(ffn, hidden))

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.attend(normed, normed)
        return x + self.mlp(self.norm2(x))


class Patches(nn.Module):
    """Patches of an image, class token and positions."""

    def __init__(self, hidden: int, patch: int, pixels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, hidden, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros(1, (pixels // patch) ** 2 + 1, hidden))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.conv(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(x), -1, -1), rows], 1) + self.positions


class First(nn.Module):
    """Linear layer on the first token."""

    def __init__(self, hidden: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x[:, 0])


def vit(hidden: int, ffn: int, heads: int, patch: int, *, fused: bool) -> list[nn.Module]:
    """Vision transformer of one block for 224 x 224 pixels and 1000 classes."""
    block = VitBlock(hidden, ffn, heads, fused=fused)
    return [Patches(hidden, patch, 224), block, nn.LayerNorm(hidden), First(hidden, 1000)]


class T5Block(nn.Module):
    """Block of T5 without dropout; a decoder's reads and hands on a second tensor.

    LayerNorm without shift stands for RMSNorm, which has no fused kernel here.
    """

    def __init__(self, hidden: int, ffn: int, heads: int, width: int, *, decoder: bool) -> None:
        super().__init__()
        self.decoder = decoder
        count = 2 if decoder else 1
        self.attend = nn.ModuleList(
            Attend(hidden, heads, width, fused=False, bias=False) for _ in range(count)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(hidden, bias=False) for _ in range(count + 1))
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, given: Tensor) -> Tensor:
        parts = given.chunk(2, 1) if self.decoder else (given, given)
        x, other = (each.contiguous() for each in parts)
        normed = self.norms[0](x)
        x = x + self.attend[0](normed, normed)
        if self.decoder:
            x = x + self.attend[1](self.norms[1](x), other)
        x = x + self.down(self.up(self.norms[-1](x)).relu())
        return torch.cat([x, other], 1) if self.decoder else x


class Lstm(nn.Module):
    """LSTM layer that hands on the outputs of all tokens."""

    def __init__(self, enter: int, leave: int, *, both: bool = False) -> None:
        super().__init__()
        self.lstm = nn.LSTM(enter, leave, batch_first=True, bidirectional=both)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


class PairAttention(nn.Module):
    """Attention with one hidden layer for each pair of tokens and normalised weights."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.q, self.k = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.score, self.bias = (nn.Parameter(torch.ones(hidden)) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, given: Tensor) -> Tensor:
        x, read = (each.contiguous() for each in given.chunk(2, 1))
        pairs = (self.q(x)[:, :, None] + self.k(read)[:, None] + self.bias).tanh()
        scores = pairs @ (self.score / self.score.norm() * self.scale)
        return torch.cat([x, scores.softmax(-1) @ read], 1)
