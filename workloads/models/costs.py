"""FLOPs and bytes of a transformer's block for one sample.

FLOPs: a multiply-add counts 2, and a linear layer's backward twice its forward. Saved bytes follow
Korthikanti et al., arXiv 2205.05198, section 4, generalised to any element size and MLP width;
what the paper does not list is derived from which tensors each operation's backward reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from workloads.models.shape import Shape, mlp_params

STATISTIC = 4
"""Bytes of a value that fused kernels keep in fp32: log-sum-exp, mean, reciprocal deviation."""

FLASH_BACKWARD = 2.5
"""Backward over forward FLOPs of fused attention: five products instead of two, because the scores
are computed anew (FlashAttention-2, arXiv 2307.08691, section 4.1)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a model is trained, as far as FLOPs and bytes depend on it.

    Attributes
    ----------
    tokens : int
        Tokens s of a sample.
    element : int
        Bytes of an activation.
    flash : bool
        Fused attention, which never stores the scores.
    dropout : bool
        Dropout masks (1 byte an element) are kept.
    half : bool
        Count the causal half of the attention only.
    """

    tokens: int
    element: int
    flash: bool
    dropout: bool
    half: bool


def attention_pairs(tokens: int, window: int, half: bool) -> float:
    """Query-key pairs of one head: all, or with ``half`` only those that causality allows.

    Within a window of w tokens there are s w pairs; causality leaves s w - w^2 / 2.
    """
    reach = min(tokens, window or tokens)
    return tokens * reach - (reach * reach / 2 if half else 0)


def block_flops(shape: Shape, setting: Setting, window: int = 0) -> tuple[float, float]:
    """Forward and backward FLOPs of one block (24 s h^2 + 4 s^2 h forward in GPT-2).

    PTD-P, arXiv 2104.04473, section 3.5. Of experts, those that run for a token count, and the
    router.
    """
    linear, query = _linear_flops(shape, setting), shape.heads * shape.head_dim
    attention = 4.0 * attention_pairs(setting.tokens, window, setting.half) * query
    back = FLASH_BACKWARD if setting.flash else 2.0
    return linear + attention, 2.0 * linear + back * attention


def block_weight_share(shape: Shape, setting: Setting, window: int = 0) -> float:
    """Part of a block's backward that makes gradients of weights.

    The products with weights once more; those of attention have none (zero bubble, arXiv
    2401.10241, table 1: 24 s b h^2 of 48 s b h^2 + 8 s^2 b h).
    """
    return _linear_flops(shape, setting) / block_flops(shape, setting, window)[1]


def _linear_flops(shape: Shape, setting: Setting) -> float:
    """Forward FLOPs of one block's products with weights."""
    query, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    weights = shape.hidden * (2 * query + 2 * keys)
    if shape.experts:
        weights += mlp_params(shape, shape.active)
    else:
        weights += (3 if shape.family.gated else 2) * shape.hidden * shape.ffn
    return 2.0 * setting.tokens * weights


def block_saved(shape: Shape, setting: Setting) -> int:
    """Bytes that one block keeps for backward, its input included.

    For GPT-2 in 16 bits s h (34 + 5 a s / h). Of width h: the input, the residual between
    attention and MLP, and one tensor for each norm; of width a d and g d: query, attention output,
    key, value; of width f: what enters and leaves the activation function (and the gate's product).
    Unfused attention adds the softmax, and with dropout its mask and output. Statistics of norms
    count with fused kernels only, as the paper neglects them. Norms of heads keep their inputs, and
    an expert's token copies count once on the way in and once on the way out (both derived).
    """
    e, s, h = setting.element, setting.tokens, shape.hidden
    query, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    family = shape.family
    per_token = e * ((2 + family.norms) * h + 2 * query + 2 * keys)
    wide = (4 if family.gated else 2) * shape.ffn
    per_token += e * (shape.active * (wide + 2 * h) if shape.experts else wide)
    per_token += e * (query + keys) if family.qk_norm else 0
    per_token += 2 * h if setting.dropout else 0
    if setting.flash:
        per_token += norm_statistics(shape, family.norms) + STATISTIC * shape.heads
        per_token += STATISTIC * (shape.heads + shape.kv_heads) if family.qk_norm else 0
        return s * per_token
    scores = shape.heads * s * s
    return s * per_token + scores * ((2 * e + 1) if setting.dropout else e)


def norm_statistics(shape: Shape, norms: int) -> int:
    """Bytes a token that norms keep: mean and reciprocal deviation, RMSNorm only the latter."""
    return norms * STATISTIC * (2 if shape.family.layer_norm else 1)


def block_workspace(shape: Shape, setting: Setting) -> int:
    """Scratch bytes of the backward of one block, gradients of its input and output aside.

    Derived: the residual's gradient, and the larger of the gradients inside the MLP (of each
    tensor of width f that is alive with another) and inside the attention (of scores before and
    after softmax; fused: of query, output, key and value).
    """
    e, s = setting.element, setting.tokens
    query, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    inside = (3 if shape.family.gated else 2) * shape.ffn * s * max(1, shape.active)
    attention = s * (2 * query + 2 * keys) if setting.flash else 2 * shape.heads * s * s
    return e * (s * shape.hidden + max(inside, attention))


def block_kernels(shape: Shape, setting: Setting) -> tuple[int, int]:
    """Kernel launches of one block, forward and backward.

    Counted on the operations (derived): linear layers, attention (two products and softmax, or one
    fused kernel), norms, activation, rotary embedding of query and key, two residual sums, three
    dropouts; experts run as one grouped product a matrix, with router, sort, gather and scatter.
    Backward launches two kernels for each product and one for every other operation.
    """
    family = shape.family
    products = 4 + (3 if family.gated else 2) + (0 if setting.flash else 2)
    others = family.norms + 1 + 2 + (2 if family.qk_norm else 0)
    others += 0 if family.learned_positions else 2
    if setting.dropout:
        others += 2 if setting.flash else 3
    others += 4 if shape.experts else 0
    return products + others + 1, 2 * products + others + (2 if setting.flash else 1)


def traffic(saved: int, given: int, made: int) -> tuple[float, float]:
    """GPU memory traffic of a layer's activations in bytes, forward and backward.

    Derived: forward reads the input, writes the output, and writes and reads each saved tensor
    once; backward reads input and saved tensors, and writes and reads a gradient of each.

    Parameters
    ----------
    saved, given, made : int
        Bytes saved inside, of the input, of the output.
    """
    return float(2 * saved + given + made), float(3 * saved + 2 * given + made)
