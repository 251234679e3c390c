"""Two small networks as chains of layers: a GPT and a convolutional net, without dropout.

Each layer is called as ``x = layer(x)``, the last as ``last(x, target)``, which gives the mean
loss. Imported where it is used: it needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional


class Embedding(nn.Module):
    """Token ids (samples, tokens) to vectors, with learned positions."""

    def __init__(self, vocab: int, tokens: int, hidden: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Parameter(torch.empty(tokens, hidden))
        for weight in (self.tokens.weight, self.positions):
            nn.init.normal_(weight, std=0.02)  # as GPT-2 does, so that the first losses are small

    def forward(self, ids: Tensor) -> Tensor:
        """Give vectors of shape (samples, tokens, hidden)."""
        return self.tokens(ids) + self.positions[: ids.shape[1]]


class Attention(nn.Module):
    """Causal attention, each product an operation of its own, so that all FLOPs are counted."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inward = nn.Linear(hidden, 3 * hidden)
        self.outward = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Give a tensor of the shape of ``x``: (samples, tokens, hidden)."""
        samples, tokens, hidden = x.shape
        parts = self.inward(x).view(samples, tokens, 3, self.heads, hidden // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / sqrt(hidden // self.heads)
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.outward((weights @ value).transpose(1, 2).reshape(samples, tokens, hidden))


class Block(nn.Module):
    """Block of a GPT-2: attention and MLP of four times the width, each behind a norm."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.norm2 = nn.LayerNorm(hidden)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Give a tensor of the shape of ``x``: (samples, tokens, hidden)."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Head(nn.Module):
    """Norm, output matrix and mean cross entropy."""

    def __init__(self, hidden: int, vocab: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.output = nn.Linear(hidden, vocab, bias=False)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Give the mean loss over all tokens."""
        return functional.cross_entropy(self.output(self.norm(x)).flatten(0, -2), target.flatten())


class ConvBlock(nn.Module):
    """3 x 3 convolution with stride 2, group norm, ReLU."""

    def __init__(self, enter: int, leave: int, groups: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(enter, leave, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, leave)

    def forward(self, x: Tensor) -> Tensor:
        """Halve height and width of (samples, channels, height, width)."""
        return functional.relu(self.norm(self.convolution(x)))


class Pool(nn.Module):
    """Mean over height and width."""

    def forward(self, x: Tensor) -> Tensor:
        """Give (samples, channels)."""
        return x.mean((2, 3))


class Classifier(nn.Module):
    """Linear layer and mean cross entropy."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.output = nn.Linear(channels, classes)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Give the mean loss over all samples."""
        return functional.cross_entropy(self.output(x), target)


def gpt(
    layers: int = 2,
    hidden: int = 256,
    heads: int = 4,
    vocab: int = 1024,
    tokens: int = 128,
    *,
    tied: bool = True,
) -> list[nn.Module]:
    """Embedding, blocks, and head with loss, of a GPT-2.

    Parameters
    ----------
    layers, hidden, heads, vocab, tokens : int
        Blocks; width; attention heads; kinds of tokens; tokens of the longest sample.
    tied : bool
        The output matrix is the embedding's (the same ``Parameter``).
    """
    first, last = Embedding(vocab, tokens, hidden), Head(hidden, vocab)
    if tied:
        last.output.weight = first.tokens.weight
    return [first, *(Block(hidden, heads) for _ in range(layers)), last]


def convnet(
    channels: Sequence[int] = (3, 32, 64, 128), classes: int = 10, groups: int = 8
) -> list[nn.Module]:
    """Convolution blocks, pool, and classifier with loss.

    Parameters
    ----------
    channels : sequence of int
        Channels of the pictures and after each block.
    classes : int
        Kinds of pictures.
    groups : int
        Groups of each group norm.
    """
    blocks = [ConvBlock(enter, leave, groups) for enter, leave in pairwise(channels)]
    return [*blocks, Pool(), Classifier(channels[-1], classes)]


def text(
    samples: int, tokens: int = 128, vocab: int = 1024, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Random token ids, and the next ones as the target, each (samples, tokens)."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(vocab, (samples, tokens + 1), generator=draw)
    return ids[:, :-1], ids[:, 1:]


def pictures(
    samples: int, size: int = 32, classes: int = 10, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Random pictures of 3 channels and ``size`` x ``size`` pixels, and their kinds."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 3, size, size, generator=draw)
    return x, torch.randint(classes, (samples,), generator=draw)
