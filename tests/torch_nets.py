"""Small torch modules that tests measure."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Block(nn.Module):
    """GPT-2's block: norms, fused query-key-value, attention, MLP; no dropout."""

    mask: Tensor

    def __init__(self, hidden: int, heads: int, tokens: int, *, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden)
        )
        self.register_buffer("mask", torch.ones(tokens, tokens, dtype=torch.bool).triu(1))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return scores.masked_fill(self.mask, -1e9).softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:
        b, s, h = x.shape
        parts = self.qkv(self.norm1(x)).split(h, dim=-1)
        q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in parts)
        x = x + self.proj(self.attend(q, k, v).transpose(1, 2).reshape(b, s, h))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """Language model of the general kind: blocks in a ModuleList, head tied to the embedding."""

    def __init__(
        self, vocab: int, tokens: int, hidden: int, heads: int, layers: int, *, fused: bool = False
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, hidden), nn.Embedding(tokens, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, tokens, fused=fused) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids: Tensor, target: Tensor | None = None) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if target is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))


class Embed(nn.Module):
    """The first layer of a `Gpt` as a module of a chain."""

    def __init__(self, gpt: Gpt) -> None:
        super().__init__()
        self.wte, self.wpe = gpt.wte, gpt.wpe

    def forward(self, ids: Tensor) -> Tensor:
        return self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))


class Head(nn.Module):
    """The last layer of a `Gpt` as a module of a chain."""

    def __init__(self, gpt: Gpt) -> None:
        super().__init__()
        self.norm, self.head = gpt.norm, gpt.head

    def forward(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        logits = self.head(self.norm(x))
        if target is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))


def chain(gpt: Gpt) -> list[nn.Module]:
    """The layers of a `Gpt`; parameters stay its own, tied ones too."""
    return [Embed(gpt), *gpt.blocks, Head(gpt)]
