"""Shapes of transformers: what a family is made of, and how many parameters that takes.

Counts follow the layers of each published architecture; the tests hold them against totals counted
on instantiated models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HeadPart = Literal["lm", "pooler", "mlm", "nsp", "classes"]


@dataclass(frozen=True, slots=True)
class Family:
    """What the layers of an architecture are made of.

    Attributes
    ----------
    name : str
        ``model_type`` of its ``config.json``.
    tied : bool
        Whether the output matrix is the token embedding where the file does not say.
    layer_norm : bool
        LayerNorm with scale and shift; else RMSNorm with scale only.
    norms : int
        Norms in a block.
    qk_norm : bool
        Queries and keys of each head are normalised, with one scale of head size each.
    gated : bool
        Gate, up and down matrices in the MLP; else up and down.
    qkv_bias, out_bias, mlp_bias : bool
        Linear layers with bias: query, key and value; attention output; MLP.
    learned_positions : bool
        A table of position embeddings; else none (rotary).
    token_types : int
        Rows of the segment embedding.
    final_norm : bool
        A norm after the last block.
    causal : bool
        Tokens attend to earlier tokens only.
    flash : bool
        Whether training uses fused attention unless told otherwise.
    half : bool
        Whether training runs in 16 bits unless told otherwise.
    """

    name: str
    tied: bool = False
    layer_norm: bool = False
    norms: int = 2
    qk_norm: bool = False
    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    learned_positions: bool = False
    token_types: int = 0
    final_norm: bool = True
    causal: bool = True
    flash: bool = True
    half: bool = True


GPT2 = Family(
    "gpt2", tied=True, layer_norm=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True,
    learned_positions=True, flash=False, half=False,
)  # fmt: skip
BERT = Family(
    "bert", tied=True, layer_norm=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True,
    learned_positions=True, token_types=2, final_norm=False, causal=False, flash=False, half=False,
)  # fmt: skip
LLAMA = Family("llama")
MISTRAL = Family("mistral")
QWEN2 = Family("qwen2", qkv_bias=True)
QWEN3 = Family("qwen3", qk_norm=True)
QWEN3_MOE = Family("qwen3_moe", qk_norm=True)
MIXTRAL = Family("mixtral")
GEMMA = Family("gemma", tied=True)
GEMMA2 = Family("gemma2", tied=True, norms=4)
GEMMA3 = Family("gemma3_text", tied=True, norms=4, qk_norm=True)

FAMILIES: dict[str, Family] = {
    each.name: each
    for each in (
        GPT2, BERT, LLAMA, MISTRAL, QWEN2, QWEN3, QWEN3_MOE, MIXTRAL, GEMMA, GEMMA2, GEMMA3,
    )
}  # fmt: skip
"""Families by ``model_type``."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one transformer.

    Attributes
    ----------
    family : Family
        What its layers are made of.
    layers : int
        Blocks L.
    hidden : int
        Width h.
    ffn : int
        Width f of the MLP (of one expert, if there are experts).
    heads, kv_heads : int
        Attention heads a; heads g of keys and values.
    head_dim : int
        Width d of a head.
    vocab : int
        Rows V of the token embedding, padding included.
    positions : int
        Longest sequence S.
    tied : bool
        The output matrix is the token embedding.
    experts, active : int
        Experts E and how many of them, k, run for a token; 0 without experts.
    windows : tuple of int
        Attention window of each block in tokens, 0 for all; empty if no block has one.
    dropout : bool
        Whether training keeps dropout masks.
    head : tuple of str
        What follows the last block: ``lm`` (output matrix), or parts of a BERT head
        (``pooler``, ``mlm``, ``nsp``, ``classes``).
    classes : int
        Classes that a classification head tells apart.
    """

    family: Family
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    positions: int
    tied: bool
    experts: int = 0
    active: int = 0
    windows: tuple[int, ...] = ()
    dropout: bool = False
    head: tuple[HeadPart, ...] = ("lm",)
    classes: int = 2


def norm_params(shape: Shape) -> int:
    """Parameters of one norm over the hidden width."""
    return (2 if shape.family.layer_norm else 1) * shape.hidden


def attention_params(shape: Shape) -> int:
    """Parameters of the attention of one block: query, key, value, output, norms of heads."""
    query, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    found = shape.hidden * (query + 2 * keys) + query * shape.hidden
    found += (query + 2 * keys) if shape.family.qkv_bias else 0
    found += shape.hidden if shape.family.out_bias else 0
    return found + (2 * shape.head_dim if shape.family.qk_norm else 0)


def mlp_params(shape: Shape, experts: int) -> int:
    """Parameters of the MLP of one block with ``experts`` of its experts (and the router)."""
    h, f = shape.hidden, shape.ffn
    ups = 2 if shape.family.gated else 1
    each = (ups + 1) * h * f + ((ups * f + h) if shape.family.mlp_bias else 0)
    return experts * each + h * shape.experts if shape.experts else each


def block_params(shape: Shape) -> int:
    """Parameters of one block."""
    norms = shape.family.norms * norm_params(shape)
    return attention_params(shape) + mlp_params(shape, shape.experts) + norms


def position_params(shape: Shape) -> int:
    """Parameters of the embedding besides the token table: positions, segments, norm."""
    found = shape.positions * shape.hidden if shape.family.learned_positions else 0
    found += shape.family.token_types * shape.hidden
    return found + (0 if shape.family.final_norm else norm_params(shape))


def head_params(shape: Shape) -> int:
    """Parameters of the head besides the output matrix.

    A masked-language head transforms (dense, LayerNorm) and has a bias of vocabulary size; a
    next-sentence head tells two classes apart.
    """
    h = shape.hidden
    each: dict[HeadPart, int] = {
        "lm": 0,
        "pooler": h * h + h,
        "mlm": h * h + h + norm_params(shape) + shape.vocab,
        "nsp": 2 * h + 2,
        "classes": shape.classes * (h + 1),
    }
    return sum(each[part] for part in shape.head)


def has_output_matrix(shape: Shape) -> bool:
    """Whether the head computes a value for each word of the vocabulary."""
    return "lm" in shape.head or "mlm" in shape.head


def params(shape: Shape) -> int:
    """Parameters of the model, a tied output matrix counted once."""
    table = shape.vocab * shape.hidden
    found = table + position_params(shape) + shape.layers * block_params(shape)
    found += norm_params(shape) if shape.family.final_norm else 0
    found += table if has_output_matrix(shape) and not shape.tied else 0
    return found + head_params(shape)


def active_params(shape: Shape) -> int:
    """Parameters that one token uses: all but the experts that do not run for it."""
    idle = mlp_params(shape, shape.experts) - mlp_params(shape, shape.active)
    return params(shape) - shape.layers * idle
