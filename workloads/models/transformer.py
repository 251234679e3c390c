"""Chains of layers of transformers: embedding, blocks, final norm, head with loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hwmodels.errors import InvalidInput
from workloads.model import Layer, Model, Optimizer, Precision, Weight
from workloads.models.costs import (
    Setting,
    block_flops,
    block_kernels,
    block_saved,
    block_weight_share,
    block_workspace,
    norm_statistics,
    traffic,
)
from workloads.models.shape import (
    Shape,
    active_params,
    block_params,
    has_output_matrix,
    head_params,
    norm_params,
    position_params,
)

Causal = Literal["full", "half"]

TOKEN_ID = 8
"""Bytes of a token or segment id (64-bit integers, as PyTorch's embedding takes them)."""

LOGIT = 4
"""Bytes of a logit: the loss is computed in fp32 (arXiv 2205.05198, section 4.3)."""

USUAL_TOKENS = 4096
"""Tokens of a sample where the longest sequence is longer: attention and logits of 100,000 tokens
would dominate every answer unasked."""


def build(
    name: str,
    shape: Shape,
    precision: Precision,
    optimizer: Optimizer,
    *,
    sequence: int | None = None,
    causal: Causal = "full",
    flash: bool | None = None,
    dropout: bool | None = None,
    notes: Sequence[str] = (),
) -> Model:
    """Build the chain of layers of a transformer.

    Parameters
    ----------
    name : str
        Name of the model.
    shape : Shape
        Its sizes.
    precision : Precision
    optimizer : Optimizer
    sequence : int, optional
        Tokens of a sample; by default the longest sequence, at most 4096.
    causal : str
        Attention FLOPs counted in ``full`` (as most papers do) or only the causal ``half``.
    flash : bool, optional
        Fused attention; by default as usual for the family.
    dropout : bool, optional
        Keep dropout masks; by default as the model was trained.
    notes : sequence of str
        What else the reader must know; put first.

    Raises
    ------
    InvalidInput
        If the sequence is too long, or the causal half of a bidirectional model is asked for.
    """
    if causal not in ("full", "half"):
        raise InvalidInput(f"causal is {causal!r}; it must be 'full' or 'half'.")
    if causal == "half" and not shape.family.causal:
        raise InvalidInput(
            f"{name} attends in both directions, so its attention has no causal half; "
            "use causal='full'."
        )
    setting = Setting(
        tokens=_tokens(name, shape, sequence),
        element=precision.activation,
        flash=shape.family.flash if flash is None else flash,
        dropout=shape.dropout if dropout is None else dropout,
        half=causal == "half",
    )
    layers = [_embedding(shape, setting), *blocks(shape, setting)]
    if shape.family.final_norm:
        layers.append(final_norm(shape, setting))
    layers.append(_head(shape, setting))
    return Model(
        name=name,
        layers=tuple(layers),
        input_bytes=TOKEN_ID * setting.tokens * (2 if shape.family.token_types else 1),
        tokens=setting.tokens,
        precision=precision,
        optimizer=optimizer,
        notes=(*notes, *_notes(shape, setting, asked=sequence is not None)),
    )


def _tokens(name: str, shape: Shape, sequence: int | None) -> int:
    if sequence is None:
        return min(shape.positions, USUAL_TOKENS)
    if not 1 <= sequence <= shape.positions:
        raise InvalidInput(
            f"sequence is {sequence}; {name} takes 1 to {shape.positions} tokens per sample."
        )
    return sequence


def _notes(shape: Shape, setting: Setting, *, asked: bool) -> list[str]:
    found: list[str] = []
    if not asked and setting.tokens < shape.positions:
        found.append(
            f"{setting.tokens} tokens per sample of at most {shape.positions}; sequence= sets it."
        )
    if shape.experts:
        found.append(
            f"{shape.active} of {shape.experts} experts run for a token, in all "
            f"{active_params(shape):,} parameters."
        )
    counted = "half (causal)" if setting.half else "full"
    kind = "fused attention" if setting.flash else "unfused attention"
    masks = "dropout masks" if setting.dropout else "no dropout"
    found.append(f"Attention FLOPs counted in {counted}; activations: {kind}, {masks}.")
    return found


def _edge(shape: Shape, setting: Setting) -> int:
    """Bytes of the tensor between two layers: s h elements."""
    return setting.tokens * shape.hidden * setting.element


def _tokens_weight(shape: Shape) -> Weight:
    return Weight("tokens", shape.vocab * shape.hidden)


def _embedding(shape: Shape, setting: Setting) -> Layer:
    """Token rows, plus positions and segments; keeps its dropout mask and its norm's input."""
    edge = _edge(shape, setting)
    saved = setting.tokens * shape.hidden if setting.dropout else 0
    saved += 0 if shape.family.final_norm else edge
    weights = (_tokens_weight(shape),)
    if rest := position_params(shape):
        weights += (Weight("positions", rest),)
    forward, backward = traffic(saved, edge, edge)
    kernels = 1 + 2 * (len(weights) - 1) + (1 if setting.dropout else 0)
    return Layer(
        name="embedding",
        kind="embedding",
        weights=weights,
        output_bytes=edge,
        stash_bytes=saved,
        workspace_bytes=edge,
        forward_bytes=forward,
        backward_bytes=backward,
        forward_kernels=kernels,
        backward_kernels=kernels,
    )


def blocks(shape: Shape, setting: Setting) -> list[Layer]:
    """All blocks of a transformer in order; one weight each."""
    edge, count = _edge(shape, setting), block_params(shape)
    saved = block_saved(shape, setting) - edge
    workspace = block_workspace(shape, setting)
    moved = traffic(saved, edge, edge)
    kernels = block_kernels(shape, setting)
    windows = shape.windows or (0,) * shape.layers
    flops = {window: block_flops(shape, setting, window) for window in sorted(set(windows))}
    return [
        Layer(
            name=f"block{index}",
            kind="sliding-block" if 0 < window < setting.tokens else "block",
            weights=(Weight(f"block{index}", count),),
            output_bytes=edge,
            stash_bytes=saved,
            workspace_bytes=workspace,
            forward_flops=flops[window][0],
            backward_flops=flops[window][1],
            forward_bytes=moved[0],
            backward_bytes=moved[1],
            forward_kernels=kernels[0],
            backward_kernels=kernels[1],
            weight_share=block_weight_share(shape, setting, window),
        )
        for index, window in enumerate(windows)
    ]


def final_norm(shape: Shape, setting: Setting) -> Layer:
    """Norm after the last block."""
    edge = _edge(shape, setting)
    saved = setting.tokens * norm_statistics(shape, 1) if setting.flash else 0
    forward, backward = traffic(saved, edge, edge)
    return Layer(
        name="final_norm",
        kind="norm",
        weights=(Weight("final_norm", norm_params(shape)),),
        output_bytes=edge,
        stash_bytes=saved,
        forward_bytes=forward,
        backward_bytes=backward,
    )


def _head(shape: Shape, setting: Setting) -> Layer:
    """Output matrix and loss (2 s h V FLOPs), or the heads of BERT.

    Keeps the fp32 log-probabilities of every token; scratch is the logits in forward, their
    gradient in backward, in both formats if the activations are smaller than fp32 (derived).
    The pooler and the two-class heads see one token a sample.
    """
    h, s, e = shape.hidden, setting.tokens, setting.element
    edge = _edge(shape, setting)
    weights: tuple[Weight, ...] = ()
    flops, saved, workspace = 0.0, 0, 0
    products = len(shape.head)
    if has_output_matrix(shape):
        table = _tokens_weight(shape)
        weights += (table if shape.tied else Weight("output", table.params),)
        flops += 2.0 * s * h * shape.vocab
        saved += LOGIT * s * shape.vocab
        workspace += (LOGIT + (e if e < LOGIT else 0)) * s * shape.vocab
    if "mlm" in shape.head:
        flops += 2.0 * s * h * h
        saved += 3 * edge
        products += 1
    if "pooler" in shape.head:
        flops += 2.0 * h * h
        saved += 2 * h * e
    classes = {"nsp": 2, "classes": shape.classes}
    flops += 2.0 * h * sum(classes.get(part, 0) for part in shape.head)
    if small := head_params(shape):
        weights += (Weight("head", small),)
    forward, backward = traffic(saved, edge, 0)
    return Layer(
        name="head",
        kind="head",
        weights=weights,
        output_bytes=0,
        stash_bytes=saved,
        workspace_bytes=workspace,
        forward_flops=flops,
        backward_flops=2.0 * flops,
        forward_bytes=forward,
        backward_bytes=backward,
        forward_kernels=products + 2,
        backward_kernels=2 * products + 2,
    )
