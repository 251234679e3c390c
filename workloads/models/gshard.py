"""GShard's translator with 2048 experts (arXiv 2006.16668, section 4 and table 3).

Simplified: encoder and decoder count as one stack of 36 blocks, every second one with experts,
without the decoder's attention to the encoder. The paper's 600 billion parameters are those of the
experts. A token passes two experts; room that experts keep free, and tokens that they drop, do not
count. Heads (16 of width 128) are recalled; vocabulary (64,000) and longest sequence (1024) are
chosen.
"""

from __future__ import annotations

from dataclasses import replace

from workloads.model import Model, Optimizer, Precision
from workloads.models.shape import Family, Shape
from workloads.models.transformer import Causal, build

GSHARD = Family("gshard", tied=True, layer_norm=True, gated=False)

GSHARDS = {
    "gshard-600b": Shape(
        family=GSHARD, layers=36, hidden=1024, ffn=8192, heads=16, kv_heads=16, head_dim=128,
        vocab=64000, positions=1024, tied=True, experts=2048, active=2, dropout=True,
    ),
}  # fmt: skip
"""Shapes by name, of the blocks with experts; the others have one MLP of the same width."""

NOTE = (
    "One stack of 36 blocks, every second one with 2048 experts of which 2 run for a token; "
    "attention of the decoder to the encoder left out, vocabulary of 64,000 chosen."
)


def gshard(
    name: str,
    precision: Precision,
    optimizer: Optimizer,
    *,
    sequence: int | None = None,
    causal: Causal = "full",
    flash: bool | None = None,
    dropout: bool | None = None,
) -> Model:
    """Build a GShard transformer; options as in `transformer.build`."""
    sparse, dense = (
        build(
            name, shape, precision, optimizer,
            sequence=sequence, causal=causal, flash=flash, dropout=dropout,
        )
        for shape in (GSHARDS[name], replace(GSHARDS[name], experts=0, active=0))
    )  # fmt: skip
    layers = tuple(
        replace(with_experts, kind="expert-block")
        if with_experts.kind == "block" and index % 2 == 0
        else plain
        for index, (with_experts, plain) in enumerate(zip(sparse.layers, dense.layers, strict=True))
    )
    return replace(dense, layers=layers, notes=(NOTE, *dense.notes))
