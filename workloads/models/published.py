"""Published transformers by name: the values of their ``config.json`` files, or of papers' tables.

The values of the files are facts of the checkpoints; the tests hold every parameter count against a
count on the instantiated model. Longest sequences are as in the files of the base models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]

_VOCAB_GPT2, _VOCAB_BERT = 50257, 30522


def _gpt2(layers: int, hidden: int, heads: int, **more: Any) -> Config:
    return {
        "model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads,
        "n_positions": 1024, "vocab_size": _VOCAB_GPT2, **more,
    }  # fmt: skip


def _gpt3(
    layers: int, hidden: int, heads: int, positions: int = 2048, vocab: int = _VOCAB_GPT2
) -> Config:
    """GPT-2's layers in larger sizes, trained in fp16."""
    return _gpt2(
        layers, hidden, heads, n_positions=positions, vocab_size=vocab, torch_dtype="float16"
    )


def _bert(layers: int, hidden: int, heads: int, kind: str = "BertModel") -> Config:
    return {
        "model_type": "bert", "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads, "intermediate_size": 4 * hidden, "vocab_size": _VOCAB_BERT,
        "max_position_embeddings": 512, "architectures": [kind],
    }  # fmt: skip


def _modern(
    kind: str, sizes: tuple[int, int, int, int, int], vocab: int, longest: int, **more: Any
) -> Config:
    """Config from layers, width, MLP width, heads and key-value heads."""
    layers, hidden, ffn, heads, keys = sizes
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden,
        "intermediate_size": ffn, "num_attention_heads": heads, "num_key_value_heads": keys,
        "vocab_size": vocab, "max_position_embeddings": longest, **more,
    }  # fmt: skip


def _qwen3_moe(sizes: tuple[int, int, int, int, int]) -> Config:
    """Qwen 3 with 128 experts of which 8 run; the third size is the width of one."""
    more = {"moe_intermediate_size": sizes[2], "num_experts": 128, "num_experts_per_tok": 8}
    return _modern("qwen3_moe", sizes, 151936, 40960, **more)


_TIED = {"tie_word_embeddings": True}
_UNTIED = {"tie_word_embeddings": False}

CONFIGS: Mapping[str, Config] = {
    "gpt2-small": _gpt2(12, 768, 12),
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "gpt2-xl": _gpt2(48, 1600, 25),
    # Harmony's GPT-2 beyond XL (github.com/msr-fiddle/harmony, model_lib/gpt2_configs): one block
    # of width 4096 repeated; its code keeps the output matrix apart from the embedding.
    "gpt2-10b": _gpt2(50, 4096, 32, **_UNTIED),
    "gpt2-20b": _gpt2(100, 4096, 32, **_UNTIED),
    "gpt2-30b": _gpt2(150, 4096, 32, **_UNTIED),
    "gpt2-40b": _gpt2(200, 4096, 32, **_UNTIED),
    # arXiv 2005.14165, table 2.1. Widths that are no whole number of heads are misprints there:
    # 13b has 5120; xl has 24 heads of 128 in a width of 2048, here 16.
    "gpt3-small": _gpt3(12, 768, 12),
    "gpt3-medium": _gpt3(24, 1024, 16),
    "gpt3-large": _gpt3(24, 1536, 16),
    "gpt3-xl": _gpt3(24, 2048, 16),
    "gpt3-2.7b": _gpt3(32, 2560, 32),
    "gpt3-6.7b": _gpt3(32, 4096, 32),
    "gpt3-13b": _gpt3(40, 5120, 40),
    "gpt3-175b": _gpt3(96, 12288, 96),
    "turing-nlg": _gpt3(78, 4256, 28, 1024),
    # arXiv 1909.08053, table 1: 96 values a head, vocabulary padded.
    "megatron-1.2b": _gpt3(40, 1536, 16, 1024, 51200),
    "megatron-2.5b": _gpt3(54, 1920, 20, 1024, 51200),
    "megatron-4.2b": _gpt3(64, 2304, 24, 1024, 51200),
    "megatron-8.3b": _gpt3(72, 3072, 32, 1024, 51200),
    # arXiv 2104.04473, table 1.
    "gpt-1.7b": _gpt3(24, 2304, 24, 2048, 51200),
    "gpt-3.6b": _gpt3(30, 3072, 32, 2048, 51200),
    "gpt-7.5b": _gpt3(36, 4096, 32, 2048, 51200),
    "gpt-18.4b": _gpt3(40, 6144, 48, 2048, 51200),
    "gpt-39.1b": _gpt3(48, 8192, 64, 2048, 51200),
    "gpt-76.1b": _gpt3(60, 10240, 80, 2048, 51200),
    "gpt-145.6b": _gpt3(80, 12288, 96, 2048, 51200),
    "gpt-310.1b": _gpt3(96, 16384, 128, 2048, 51200),
    "gpt-529.6b": _gpt3(105, 20480, 128, 2048, 51200),
    "gpt-1008b": _gpt3(128, 25600, 160, 2048, 51200),
    "bert-base": _bert(12, 768, 12),
    "bert-large": _bert(24, 1024, 16),
    "bert-96": _bert(96, 1024, 16),
    "bert-base-pretraining": _bert(12, 768, 12, "BertForPreTraining"),
    "bert-large-pretraining": _bert(24, 1024, 16, "BertForPreTraining"),
    "llama-2-7b": _modern("llama", (32, 4096, 11008, 32, 32), 32000, 4096),
    "llama-2-13b": _modern("llama", (40, 5120, 13824, 40, 40), 32000, 4096),
    "llama-2-70b": _modern("llama", (80, 8192, 28672, 64, 8), 32000, 4096),
    "llama-3-8b": _modern("llama", (32, 4096, 14336, 32, 8), 128256, 8192),
    "llama-3-70b": _modern("llama", (80, 8192, 28672, 64, 8), 128256, 8192),
    "llama-3.1-8b": _modern("llama", (32, 4096, 14336, 32, 8), 128256, 131072),
    "llama-3.1-70b": _modern("llama", (80, 8192, 28672, 64, 8), 128256, 131072),
    "llama-3.1-405b": _modern("llama", (126, 16384, 53248, 128, 8), 128256, 131072),
    "llama-3.2-1b": _modern("llama", (16, 2048, 8192, 32, 8), 128256, 131072, **_TIED),
    "llama-3.2-3b": _modern("llama", (28, 3072, 8192, 24, 8), 128256, 131072, **_TIED),
    "mistral-7b-v0.1": _modern(
        "mistral", (32, 4096, 14336, 32, 8), 32000, 32768, sliding_window=4096
    ),
    "mistral-7b-v0.2": _modern("mistral", (32, 4096, 14336, 32, 8), 32000, 32768),
    "mistral-7b-v0.3": _modern("mistral", (32, 4096, 14336, 32, 8), 32768, 32768),
    "mixtral-8x7b": _modern(
        "mixtral", (32, 4096, 14336, 32, 8), 32000, 32768,
        num_local_experts=8, num_experts_per_tok=2,
    ),
    "mixtral-8x22b": _modern(
        "mixtral", (56, 6144, 16384, 48, 8), 32768, 65536,
        num_local_experts=8, num_experts_per_tok=2,
    ),
    "qwen2.5-0.5b": _modern("qwen2", (24, 896, 4864, 14, 2), 151936, 32768, **_TIED),
    "qwen2.5-1.5b": _modern("qwen2", (28, 1536, 8960, 12, 2), 151936, 131072, **_TIED),
    "qwen2.5-3b": _modern("qwen2", (36, 2048, 11008, 16, 2), 151936, 32768, **_TIED),
    "qwen2.5-7b": _modern("qwen2", (28, 3584, 18944, 28, 4), 152064, 131072),
    "qwen2.5-14b": _modern("qwen2", (48, 5120, 13824, 40, 8), 152064, 131072),
    "qwen2.5-32b": _modern("qwen2", (64, 5120, 27648, 40, 8), 152064, 131072),
    "qwen2.5-72b": _modern("qwen2", (80, 8192, 29568, 64, 8), 152064, 131072),
    "qwen3-0.6b": _modern("qwen3", (28, 1024, 3072, 16, 8), 151936, 40960, **_TIED),
    "qwen3-1.7b": _modern("qwen3", (28, 2048, 6144, 16, 8), 151936, 40960, **_TIED),
    "qwen3-4b": _modern("qwen3", (36, 2560, 9728, 32, 8), 151936, 40960, **_TIED),
    "qwen3-8b": _modern("qwen3", (36, 4096, 12288, 32, 8), 151936, 40960),
    "qwen3-14b": _modern("qwen3", (40, 5120, 17408, 40, 8), 151936, 40960),
    "qwen3-32b": _modern("qwen3", (64, 5120, 25600, 64, 8), 151936, 40960),
    "qwen3-30b-a3b": _qwen3_moe((48, 2048, 768, 32, 4)),
    "qwen3-235b-a22b": _qwen3_moe((94, 4096, 1536, 64, 4)),
    "gemma-2b": _modern("gemma", (18, 2048, 16384, 8, 1), 256000, 8192),
    "gemma-7b": _modern("gemma", (28, 3072, 24576, 16, 16), 256000, 8192),
    "gemma-2-2b": _modern("gemma2", (26, 2304, 9216, 8, 4), 256000, 8192),
    "gemma-2-9b": _modern("gemma2", (42, 3584, 14336, 16, 8), 256000, 8192),
    "gemma-2-27b": _modern("gemma2", (46, 4608, 36864, 32, 16), 256000, 8192, head_dim=128),
    "gemma-3-1b": _modern(
        "gemma3_text", (26, 1152, 6912, 4, 1), 262144, 32768, sliding_window=512
    ),
    # Text parts of multimodal checkpoints, which pad the vocabulary by 64 rows.
    "gemma-3-4b": _modern(
        "gemma3_text", (34, 2560, 10240, 8, 4), 262208, 131072, sliding_window=1024
    ),
    "gemma-3-12b": _modern(
        "gemma3_text", (48, 3840, 15360, 16, 8), 262208, 131072, sliding_window=1024
    ),
    "gemma-3-27b": _modern(
        "gemma3_text", (62, 5376, 21504, 32, 16), 262208, 131072, sliding_window=1024, head_dim=128
    ),
}  # fmt: skip
"""Keys of ``config.json`` by name of the model."""
