"""T5: encoder and decoder of text (arXiv 1910.10683, version 1.0).

The network has two stacks and every block of the decoder reads the encoder's result; a schedule
needs a chain. The decoder follows the encoder, and what its layers hand on are their own result and
the encoder's, side by side. Both stacks read as many tokens. The first block of a stack holds the
table of relative positions; the bias that it makes for all blocks is one for all samples, and not
counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hwmodels.errors import InvalidInput
from workloads.model import Layer, Model, Optimizer, Precision, Weight
from workloads.models.costs import (
    FLASH_BACKWARD,
    STATISTIC,
    Setting,
    block_flops,
    block_kernels,
    block_saved,
    block_weight_share,
    block_workspace,
    norm_statistics,
    traffic,
)
from workloads.models.shape import Family, Shape, attention_params, block_params, norm_params
from workloads.models.transformer import LOGIT, TOKEN_ID, Causal

VOCAB = 32128
"""Rows of the token table: 32,000 word pieces and 100 marks of gaps, padded to a multiple of 128
(section 2.2; the released checkpoints)."""

BUCKETS = 32
"""Distances that a head's relative-position table tells apart (section 2.1)."""

USUAL_TOKENS = 512
"""Tokens of the encoder in pre-training (section 3.1.2)."""

T5 = Family("t5", tied=True, gated=False, flash=False, half=False)


def _t5(layers: int, hidden: int, ffn: int, heads: int, width: int) -> Shape:
    return Shape(
        family=T5, layers=layers, hidden=hidden, ffn=ffn, heads=heads, kv_heads=heads,
        head_dim=width, vocab=VOCAB, positions=0, tied=True, dropout=True,
    )  # fmt: skip


T5S = {
    "t5-small": _t5(6, 512, 2048, 8, 64),
    "t5-base": _t5(12, 768, 3072, 12, 64),
    "t5-large": _t5(24, 1024, 4096, 16, 64),
    "t5-3b": _t5(24, 1024, 16384, 32, 128),
    "t5-11b": _t5(24, 1024, 65536, 128, 128),
}
"""Shapes by name; the layers are those of each stack (section 3.8 and the checkpoints)."""


class _Costs(NamedTuple):
    """FLOPs, kernels (each forward and backward) and saved bytes of one part of a block."""

    flops: tuple[float, float]
    kernels: tuple[int, int]
    saved: int
    weight_flops: float


def t5(
    name: str,
    precision: Precision,
    optimizer: Optimizer,
    *,
    sequence: int = USUAL_TOKENS,
    causal: Causal = "full",
    flash: bool = False,
    dropout: bool = True,
) -> Model:
    """Build a T5.

    Parameters
    ----------
    name : str
        One of `T5S`.
    precision : Precision
    optimizer : Optimizer
    sequence : int
        Tokens that the encoder reads, and as many that the decoder writes.
    causal : str
        Attention FLOPs of the decoder's attention to itself counted in ``full`` or ``half``;
        all other attention has no causal half.
    flash : bool
        Fused attention, with a kernel that takes the bias of relative positions.
    dropout : bool
        Keep dropout masks.

    Raises
    ------
    InvalidInput
        If ``causal`` is neither of the two.
    """
    if causal not in ("full", "half"):
        raise InvalidInput(f"causal is {causal!r}; it must be 'full' or 'half'.")
    shape = T5S[name]
    setting = Setting(sequence, precision.activation, flash, dropout, half=False)
    written = replace(setting, half=causal == "half")
    layers = (
        _embedding("encoder", shape, setting),
        *_blocks("encoder", shape, setting, _block(shape, setting)),
        _norm("encoder", shape, setting),
        _embedding("decoder", shape, setting),
        *_blocks("decoder", shape, setting, _both(_block(shape, written), _cross(shape, setting))),
        _norm("decoder", shape, setting),
        _head(shape, setting),
    )
    masks = "dropout masks" if dropout else "no dropout"
    counted = "half (causal)" if causal == "half" else "full"
    notes = (
        "The bias of relative positions, one for all samples, is not counted as activation.",
        f"{sequence} tokens read and {sequence} written per sample; sequence= sets both.",
        "A chain: decoder after encoder; layers of the decoder hand on the encoder's result too.",
        f"Attention FLOPs of the decoder to itself counted in {counted}, others in full; "
        f"activations: {'fused' if flash else 'unfused'} attention, {masks}.",
    )
    ids = 2 * TOKEN_ID * sequence
    return Model(name, layers, ids, 2 * sequence, precision, optimizer, notes=notes)


def _edge(shape: Shape, setting: Setting) -> int:
    return setting.tokens * shape.hidden * setting.element


def _table(shape: Shape) -> Weight:
    return Weight("tokens", shape.vocab * shape.hidden)


def _carried(stack: str, edge: int) -> int:
    """Bytes of the encoder's result that a layer hands on besides its own."""
    return edge if stack == "decoder" else 0


def _embedding(stack: str, shape: Shape, setting: Setting) -> Layer:
    """Token rows; keeps its dropout mask. The decoder's takes the encoder's result along."""
    edge = _edge(shape, setting)
    saved = setting.tokens * shape.hidden if setting.dropout else 0
    forward, backward = traffic(saved, edge, edge)
    kernels = 2 if setting.dropout else 1
    return Layer(
        name=f"{stack}.embedding",
        kind="embedding",
        weights=(_table(shape),),
        output_bytes=edge + _carried(stack, edge),
        stash_bytes=saved,
        workspace_bytes=edge,
        forward_bytes=forward,
        backward_bytes=backward,
        forward_kernels=kernels,
        backward_kernels=kernels,
    )


def _block(shape: Shape, setting: Setting) -> _Costs:
    """Self-attention and MLP.

    The MLP's ReLU keeps its output, which the next product reads; with dropout in between, that
    product reads another tensor, and a mask is kept.
    """
    forward, backward = block_flops(shape, setting)
    kernels = block_kernels(shape, setting)
    wide = setting.tokens * shape.ffn
    inner = 1 if setting.dropout else 0
    saved = block_saved(shape, setting) - _edge(shape, setting)
    saved += wide if setting.dropout else -wide * setting.element
    return _Costs(
        (forward, backward),
        (kernels[0] + inner, kernels[1] + inner),
        saved,
        backward * block_weight_share(shape, setting),
    )


def _cross(shape: Shape, setting: Setting) -> _Costs:
    """Attention to the encoder's result: 8 s h a d + 4 s^2 a d FLOPs forward.

    Keeps residual and norm (width h), query, key, value and attention's output (a d), the scores as
    in self-attention, the output's dropout mask; the encoder's result is a boundary.
    """
    s, h, e = setting.tokens, shape.hidden, setting.element
    inner = shape.heads * shape.head_dim
    linear, attention = 8.0 * s * h * inner, 4.0 * s * s * inner
    back = FLASH_BACKWARD if setting.flash else 2.0
    saved = s * e * (2 * h + 4 * inner) + (s * h if setting.dropout else 0)
    if setting.flash:
        saved += s * (norm_statistics(shape, 1) + STATISTIC * shape.heads)
    else:
        saved += shape.heads * s * s * ((2 * e + 1) if setting.dropout else e)
    products = 4 if setting.flash else 6
    others = 3 + ((1 if setting.flash else 2) if setting.dropout else 0)
    return _Costs(
        (linear + attention, 2.0 * linear + back * attention),
        (products + others, 2 * products + others),
        saved,
        linear,
    )


def _both(one: _Costs, other: _Costs) -> _Costs:
    return _Costs(
        (one.flops[0] + other.flops[0], one.flops[1] + other.flops[1]),
        (one.kernels[0] + other.kernels[0], one.kernels[1] + other.kernels[1]),
        one.saved + other.saved,
        one.weight_flops + other.weight_flops,
    )


def _blocks(stack: str, shape: Shape, setting: Setting, costs: _Costs) -> list[Layer]:
    edge = _edge(shape, setting)
    carried = _carried(stack, edge)
    params = block_params(shape)
    params += attention_params(shape) + norm_params(shape) if carried else 0
    table = BUCKETS * shape.heads
    forward, backward = traffic(costs.saved, edge + carried, edge)
    return [
        Layer(
            name=f"{stack}.block{index}",
            kind=f"{stack}-block",
            weights=(Weight(f"{stack}.block{index}", params if index else params + table),),
            output_bytes=edge + carried,
            stash_bytes=costs.saved,
            workspace_bytes=block_workspace(shape, setting),
            forward_flops=costs.flops[0],
            backward_flops=costs.flops[1],
            forward_bytes=forward,
            backward_bytes=backward,
            forward_kernels=costs.kernels[0],
            backward_kernels=costs.kernels[1],
            weight_share=costs.weight_flops / costs.flops[1],
        )
        for index in range(shape.layers)
    ]


def _norm(stack: str, shape: Shape, setting: Setting) -> Layer:
    """Norm after a stack, with dropout; the decoder's hands on its own result only."""
    edge = _edge(shape, setting)
    saved = setting.tokens * norm_statistics(shape, 1) if setting.flash else 0
    saved += setting.tokens * shape.hidden if setting.dropout else 0
    forward, backward = traffic(saved, edge, edge)
    kernels = 2 if setting.dropout else 1
    return Layer(
        name=f"{stack}.norm",
        kind="norm",
        weights=(Weight(f"{stack}.norm", norm_params(shape)),),
        output_bytes=edge,
        stash_bytes=saved,
        forward_bytes=forward,
        backward_bytes=backward,
        forward_kernels=kernels,
        backward_kernels=kernels,
    )


def _head(shape: Shape, setting: Setting) -> Layer:
    """Tied output matrix and loss; as `transformer`'s head keeps fp32 log-probabilities."""
    s, e = setting.tokens, setting.element
    flops = 2.0 * s * shape.hidden * shape.vocab
    saved = LOGIT * s * shape.vocab
    forward, backward = traffic(saved, _edge(shape, setting), 0)
    return Layer(
        name="head",
        kind="head",
        weights=(_table(shape),),
        output_bytes=0,
        stash_bytes=saved,
        workspace_bytes=(LOGIT + (e if e < LOGIT else 0)) * s * shape.vocab,
        forward_flops=flops,
        backward_flops=2.0 * flops,
        forward_bytes=forward,
        backward_bytes=backward,
        forward_kernels=3,
        backward_kernels=4,
    )
