"""Transformers from the ``config.json`` of a Hugging Face model.

Field names and defaults are those of the ``transformers`` library's configuration classes
(github.com/huggingface/transformers, Apache 2.0); sizes without which a model cannot be told apart
have no default here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from hwmodels.errors import InvalidInput
from hwmodels.names import suggestion
from workloads.model import Model, Optimizer, Precision
from workloads.model import optimizer as optimizer_of
from workloads.model import precision as precision_of
from workloads.models import transformer
from workloads.models.fields import Fields, read_object
from workloads.models.shape import FAMILIES, GEMMA3, Family, HeadPart, Shape
from workloads.models.transformer import Causal

_ATTENTION_BIAS = ("llama", "mistral", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text")
"""Families whose ``attention_bias`` adds biases to all four projections."""

_WRAPPED = {"gemma3": "gemma3_text"}
"""Models of text and images by ``model_type``: the family of their ``text_config``."""

_HEADS: Mapping[str, tuple[HeadPart, ...]] = {
    "BertModel": ("pooler",),
    "BertForPreTraining": ("pooler", "mlm", "nsp"),
    "BertForMaskedLM": ("mlm",),
    "BertForSequenceClassification": ("pooler", "classes"),
}
"""What follows BERT's last block, by architecture."""

_GEMMA3 = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 131072,
}
"""Fields that published Gemma 3 files leave out, with their defaults."""

_HEAD_DIM = {"gemma": 256, "gemma2": 256, "qwen3": 128, "qwen3_moe": 128}
"""Width of a head where the file does not say and it is not the hidden width over the heads."""

_PRECISIONS = {"float32": "fp32", "float16": "mixed-fp16", "bfloat16": "mixed-bf16"}
"""Precision that suits the number format in which the weights are stored."""


def from_config(
    path: str | Path,
    *,
    precision: str | Precision | None = None,
    optimizer: str | Optimizer | None = None,
    sequence: int | None = None,
    causal: Causal = "full",
    flash: bool | None = None,
    dropout: bool | None = None,
) -> Model:
    """Read a transformer from the ``config.json`` of a Hugging Face model.

    Families: gpt2, bert, llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, gemma, gemma2 and
    gemma3 (its text part). The model is named after the file, or its folder if the file is called
    ``config.json``.

    Parameters
    ----------
    path : str or Path
    precision : str or Precision, optional
        Default: mixed if the file's ``torch_dtype`` has 16 bits; if it has none, fp32 for gpt2 and
        bert, else ``mixed-bf16``.
    optimizer : str or Optimizer, optional
        Default: Adam.
    sequence : int, optional
        Tokens per sample. Default: the longest that the model takes, at most 4096.
    causal : {"full", "half"}
        Count attention FLOPs for all pairs of tokens, or only for the half that a causal mask
        leaves.
    flash : bool, optional
        Fused attention, which stores no scores. Default: not for gpt2 and bert.
    dropout : bool, optional
        Default: as the file says.

    Raises
    ------
    InvalidInput
        If the file cannot be read, a field is missing or wrong, or an option does not apply.
    UnknownName
        If there is no such precision or optimizer.
    """
    data = read_object(path)
    found = Path(path)
    name = found.resolve().parent.name if found.name == "config.json" else found.stem
    return build(
        name or "config",
        data,
        str(path),
        precision=precision,
        optimizer=optimizer,
        sequence=sequence,
        causal=causal,
        flash=flash,
        dropout=dropout,
    )


def build(
    name: str,
    data: Mapping[str, Any],
    where: str,
    *,
    precision: str | Precision | None,
    optimizer: str | Optimizer | None,
    sequence: int | None,
    causal: Causal,
    flash: bool | None,
    dropout: bool | None,
) -> Model:
    """Make the model that the fields of a ``config.json`` describe; options as in `from_config`."""
    config = _text(Fields(data, where))
    shape = shape_of(config)
    notes: list[str] = []
    if config.data is not data:
        notes.append("Only the text part; the vision part is left out.")
    return transformer.build(
        name,
        shape,
        precision_of(_precision(config, shape) if precision is None else precision),
        optimizer_of("adam" if optimizer is None else optimizer),
        sequence=sequence,
        causal=causal,
        flash=flash,
        dropout=dropout,
        notes=notes,
    )


def _text(config: Fields) -> Fields:
    """Fields of the text part of a model of text and images; else the same."""
    wrapped = _WRAPPED.get(str(config.data.get("model_type")))
    if wrapped is None:
        return config
    inner = config.data.get("text_config")
    if not isinstance(inner, dict):
        raise config.missing("text_config")
    dtype = {key: config.data[key] for key in ("dtype", "torch_dtype") if key in config.data}
    fields = {**dtype, **cast("dict[str, Any]", inner), "model_type": wrapped}
    return Fields(fields, f"{config.where}: text_config")


def _precision(config: Fields, shape: Shape) -> str:
    key, dtype = config.get("dtype", "torch_dtype")
    if dtype is None:
        return "mixed-bf16" if shape.family.half else "fp32"
    found = _PRECISIONS.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise InvalidInput(
            f"{config.where}: {key!r} is {json.dumps(dtype)}, which tells no precision to train "
            "in; choose one, such as precision='mixed-bf16'."
        )
    return found


def shape_of(config: Fields) -> Shape:
    """Tell sizes from the fields of a ``config.json`` (of its text part).

    Raises
    ------
    InvalidInput
        If a field is missing or wrong, or the model is of no known family.
    """
    kind = config.data.get("model_type")
    if kind is None:
        raise config.missing("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        known = sorted({*FAMILIES, *_WRAPPED})
        raise InvalidInput(
            f"{config.where}: model_type {json.dumps(kind)} is not supported"
            f"{suggestion(str(kind), known)}"
        )
    if family.name == "gpt2":
        return _gpt2(config, family)
    if family.name == "bert":
        return _bert(config, family)
    return _decoder(config, family)


def _head_dim(config: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise InvalidInput(
            f"{config.where}: {heads} attention heads do not divide the hidden size {hidden}; "
            "take a divisor of it."
        )
    return hidden // heads


def _gpt2(config: Fields, family: Family) -> Shape:
    hidden = config.integer("n_embd", "hidden_size")
    heads = config.integer("n_head", "num_attention_heads")
    rates = [config.number(key, default=0.1) for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")]
    return Shape(
        family=family,
        layers=config.integer("n_layer", "num_hidden_layers"),
        hidden=hidden,
        ffn=config.integer("n_inner", default=4 * hidden),
        heads=heads,
        kv_heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        vocab=config.integer("vocab_size"),
        positions=config.integer("n_positions", "max_position_embeddings", "n_ctx"),
        tied=config.flag("tie_word_embeddings", default=family.tied),
        dropout=any(rates),
    )


def _bert(config: Fields, family: Family) -> Shape:
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    rates = [
        config.number(key, default=0.1)
        for key in ("hidden_dropout_prob", "attention_probs_dropout_prob")
    ]
    return Shape(
        family=replace(family, token_types=config.integer("type_vocab_size", default=2)),
        layers=config.integer("num_hidden_layers"),
        hidden=hidden,
        ffn=config.integer("intermediate_size"),
        heads=heads,
        kv_heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        vocab=config.integer("vocab_size"),
        positions=config.integer("max_position_embeddings"),
        tied=config.flag("tie_word_embeddings", default=family.tied),
        dropout=any(rates),
        head=_bert_head(config),
    )


def _bert_head(config: Fields) -> tuple[HeadPart, ...]:
    """Head by the file's first architecture; the plain encoder with its pooler if it names none."""
    names = config.data.get("architectures")
    if names is None:
        return _HEADS["BertModel"]
    first = str(names[0]) if isinstance(names, list) and names else str(names)
    if first not in _HEADS:
        raise InvalidInput(
            f"{config.where}: architecture {first!r} is not supported{suggestion(first, _HEADS)}"
        )
    return _HEADS[first]


def _decoder(config: Fields, family: Family) -> Shape:
    """Llama and its relatives: RMSNorm, gated MLP, rotary positions, grouped keys and values."""
    if family is GEMMA3:
        given = {key: value for key, value in config.data.items() if value is not None}
        config = replace(config, data={**_GEMMA3, **given})
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise InvalidInput(
            f"{config.where}: {kv_heads} key-value heads do not divide the {heads} attention "
            "heads; take a divisor."
        )
    layers = config.integer("num_hidden_layers")
    experts, active = _experts(config, family)
    wide = "moe_intermediate_size" if family.name == "qwen3_moe" else "intermediate_size"
    if config.get("head_dim")[1] is not None or family.name in _HEAD_DIM:
        head_dim = config.integer("head_dim", default=_HEAD_DIM.get(family.name))
    else:
        head_dim = _head_dim(config, hidden, heads)
    return Shape(
        family=_biased(config, family),
        layers=layers,
        hidden=hidden,
        ffn=config.integer(wide),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=config.integer("vocab_size"),
        positions=config.integer("max_position_embeddings"),
        tied=config.flag("tie_word_embeddings", default=family.tied),
        experts=experts,
        active=active,
        windows=_windows(config, family, layers),
        dropout=config.number("attention_dropout", default=0.0) > 0,
    )


def _biased(config: Fields, family: Family) -> Family:
    """Add the biases that a file switches on."""
    if family.name in _ATTENTION_BIAS and config.flag("attention_bias", default=False):
        family = replace(family, qkv_bias=True, out_bias=True)
    if family.name == "llama" and config.flag("mlp_bias", default=False):
        family = replace(family, mlp_bias=True)
    return family


def _experts(config: Fields, family: Family) -> tuple[int, int]:
    """Experts and how many of them a token uses; zeros for a dense model."""
    if family.name not in ("mixtral", "qwen3_moe"):
        return 0, 0
    if config.data.get("mlp_only_layers") or config.data.get("decoder_sparse_step", 1) != 1:
        raise InvalidInput(
            f"{config.where}: only models with experts in every layer are supported; set "
            "'mlp_only_layers' to [] and 'decoder_sparse_step' to 1."
        )
    experts = config.integer("num_local_experts", "num_experts")
    active = config.integer("num_experts_per_tok")
    if active > experts:
        raise InvalidInput(
            f"{config.where}: a token cannot use {active} of {experts} experts; lower "
            "'num_experts_per_tok'."
        )
    return experts, active


def _windows(config: Fields, family: Family, layers: int) -> tuple[int, ...]:
    """Attention window of each layer in tokens, 0 for all; empty where no layer has one.

    ``layer_types`` says it where it is given; else the rule of the family.
    """
    if config.get("sliding_window")[1] is None and family.name != "gemma2":
        return ()
    window = config.integer("sliding_window", default=4096)
    kinds = config.data.get("layer_types")
    if kinds is not None:
        return _windows_by_kind(config, kinds, layers, window)
    if family.name in ("mistral", "mixtral"):
        return (window,) * layers
    if family.name == "gemma2":
        return tuple(0 if i % 2 else window for i in range(layers))
    if family is GEMMA3:
        every = config.integer("sliding_window_pattern")
        return tuple(window if (i + 1) % every else 0 for i in range(layers))
    if family.name.startswith("qwen") and config.flag("use_sliding_window", default=False):
        first = config.integer("max_window_layers", default=layers)
        return tuple(window if i >= first else 0 for i in range(layers))
    return ()


def _windows_by_kind(config: Fields, kinds: object, layers: int, window: int) -> tuple[int, ...]:
    reach = {"full_attention": 0, "sliding_attention": window}
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise InvalidInput(f"{config.where}: 'layer_types' must list one kind for each layer.")
    for kind in kinds:
        if not isinstance(kind, str) or kind not in reach:
            raise InvalidInput(
                f"{config.where}: layer type {json.dumps(kind)} is not supported"
                f"{suggestion(str(kind), reach)}"
            )
    return tuple(reach[str(kind)] for kind in kinds)
