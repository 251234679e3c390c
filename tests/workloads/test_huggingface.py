"""Models from config.json files: every family, defaults of missing fields, wrong files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import workloads as wl
from hwmodels.errors import InvalidInput
from workloads.models.fields import Fields
from workloads.models.huggingface import shape_of
from workloads.models.shape import params

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
DEMO = resources.files("workloads") / "models" / "configs" / "gpt2-xl.json"

Edit = Callable[[dict[str, Any]], None]


def tiny(**changes: Any) -> dict[str, Any]:
    """Keys of a small llama; None leaves one out."""
    keys: dict[str, Any] = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 100,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    } | changes  # fmt: skip
    return {key: value for key, value in keys.items() if value is not None}


def count(**changes: Any) -> int:
    return params(shape_of(Fields(tiny(**changes), "test")))


def written(folder: Path, keys: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(keys))
    return path


# files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "total", "bits"),
    [
        # Masked-word head without pooler: the heads' total less pooler and next-sentence head.
        ("bert-large-uncased", 336_226_108 - (1024**2 + 1024) - (2 * 1024 + 2), "fp32"),
        ("llama-3.1-8b", 8_030_261_248, "mixed-bf16"),
        ("mixtral-8x7b", 46_702_792_704, "mixed-bf16"),
        ("qwen2.5-0.5b", 494_032_768, "mixed-bf16"),
        ("qwen3-30b-a3b", 30_532_122_624, "mixed-bf16"),
        ("gemma-2-2b", 2_614_341_888, "fp32"),
        ("gemma-3-4b", 3_880_263_168, "mixed-bf16"),
    ],
)
def test_published_files(file: str, total: int, bits: str) -> None:
    found = wl.from_config(CONFIGS / f"{file}.json")
    assert found.params == total
    assert found.name == file
    assert found.precision.name == bits


def test_demo_file_is_the_named_model() -> None:
    with resources.as_file(DEMO) as path:
        assert wl.from_config(path) == wl.model("gpt2-xl")
        changed = wl.from_config(path, precision="mixed-fp16", optimizer="sgd", sequence=99)
    assert changed == wl.model("gpt2-xl", precision="mixed-fp16", optimizer="sgd", sequence=99)


def test_name_is_that_of_the_folder_for_config_json(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert wl.from_config(written(folder, tiny())).name == "my-model"


def test_text_part_of_a_multimodal_model_is_said() -> None:
    assert "text part" in wl.from_config(CONFIGS / "gemma-3-4b.json").notes[0]


# fields ------------------------------------------------------------------------------------------


def test_gpt2_takes_both_spellings() -> None:
    short = {
        "model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "n_positions": 4,
        "vocab_size": 9,
    }  # fmt: skip
    long = {
        "model_type": "gpt2", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2,
        "max_position_embeddings": 4, "vocab_size": 9,
    }  # fmt: skip
    assert shape_of(Fields(short, "x")) == shape_of(Fields(long, "x"))
    assert shape_of(Fields(short | {"n_inner": None}, "x")).ffn == 32
    assert shape_of(Fields(short | {"n_inner": 10}, "x")).ffn == 10


@pytest.mark.parametrize(
    ("kind", "tied"),
    [("llama", False), ("mistral", False), ("qwen2", False), ("qwen3", False), ("gemma", True),
     ("gemma2", True), ("gemma3_text", True)],
)  # fmt: skip
def test_tying_where_the_file_does_not_say(kind: str, tied: bool) -> None:
    table = 100 * 64
    assert count(model_type=kind, tie_word_embeddings=False) - count(model_type=kind) == (
        table if tied else 0
    )
    assert count(model_type=kind, tie_word_embeddings=False) - table == count(
        model_type=kind, tie_word_embeddings=True
    )


def test_biases() -> None:
    """Queries 64, keys and values 32 each, output 64; MLP 2 x 96 and 64."""
    plain = count()
    assert count(attention_bias=True) - plain == 3 * (64 + 2 * 32 + 64)
    assert count(mlp_bias=True) - plain == 3 * (2 * 96 + 64)
    assert count(model_type="qwen2") - plain == 3 * (64 + 2 * 32)


def test_head_width() -> None:
    """Width 16 of itself; 32 doubles the projections; Qwen 3 has 128 and two more norms."""
    attention = 2 * 64 * 64 + 2 * 64 * 32
    assert count(head_dim=32) - count() == 3 * attention
    assert count(model_type="qwen3") - count(head_dim=128) == 3 * 2 * 128
    assert count(model_type="gemma", tie_word_embeddings=False) == count(head_dim=256)


def test_key_value_heads_default_to_all() -> None:
    assert count(num_key_value_heads=None) == count(num_key_value_heads=4)


def test_experts() -> None:
    """E experts and a router of h E instead of one MLP."""
    mlp = 3 * 64 * 96
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    assert count(model_type="mixtral", **experts) - count() == 3 * (7 * mlp + 64 * 8)
    qwen = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
    dense = count(model_type="qwen3")
    assert count(model_type="qwen3_moe", **qwen) - dense == 3 * (7 * mlp + 64 * 8)


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"model_type": "mistral", "sliding_window": 8}, (8, 8, 8)),
        ({"model_type": "mistral", "sliding_window": None}, ()),
        ({"model_type": "gemma2"}, (4096, 0, 4096)),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 2}, (4096, 0, 4096)),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": False}, ()),
        (
            {"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True,
             "max_window_layers": 1},
            (0, 8, 8),
        ),
        (
            {"model_type": "qwen3", "sliding_window": 8,
             "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
            (0, 8, 0),
        ),
        ({"model_type": "llama", "sliding_window": 8}, ()),
    ],
)  # fmt: skip
def test_windows(changes: dict[str, Any], windows: tuple[int, ...]) -> None:
    assert shape_of(Fields(tiny(**changes), "test")).windows == windows


@pytest.mark.parametrize(
    ("key", "value", "bits"),
    [
        ("torch_dtype", "float32", "fp32"), ("torch_dtype", "float16", "mixed-fp16"),
        ("dtype", "bfloat16", "mixed-bf16"), ("dtype", "torch.float16", "mixed-fp16"),
        ("torch_dtype", None, "mixed-bf16"),
    ],
)  # fmt: skip
def test_precision_of_the_file(tmp_path: Path, key: str, value: str | None, bits: str) -> None:
    path = written(tmp_path, tiny(**{key: value}))
    assert wl.from_config(path).precision.name == bits
    assert wl.from_config(path, precision="tf32").precision.name == "tf32"


def test_heads_of_bert() -> None:
    """Pooler h^2 + h; words h^2 + h + 2 h + V; next sentence and two classes 2 h + 2 each."""
    keys: dict[str, Any] = {
        "model_type": "bert", "hidden_size": 8, "intermediate_size": 16, "vocab_size": 20,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 4,
    }  # fmt: skip

    def of(*names: str) -> int:
        more = {"architectures": list(names)} if names else {}
        return params(shape_of(Fields(keys | more, "test")))

    pooler, words, pair = 8 * 8 + 8, 8 * 8 + 8 + 2 * 8 + 20, 2 * 8 + 2
    bare = of() - pooler
    assert of("BertModel") == of()
    assert of("BertForMaskedLM") == bare + words
    assert of("BertForPreTraining") == bare + pooler + words + pair
    assert of("BertForSequenceClassification") == bare + pooler + pair


# wrong files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (tiny(hidden_size=None), ("'hidden_size' is missing",)),
        (tiny(hidden_size=None, hiden_size=64), ("'hidden_size' is missing", "'hiden_size'")),
        (tiny(vocab_size=None), ("'vocab_size' is missing",)),
        (tiny(max_position_embeddings=None), ("'max_position_embeddings' is missing",)),
        (tiny(model_type=None), ("'model_type' is missing",)),
        (tiny(model_type="lama"), ("lama", "'llama'")),
        (tiny(model_type=["llama"]), ("llama", "not supported")),
        (tiny(num_hidden_layers=0), ("'num_hidden_layers' is 0",)),
        (tiny(num_hidden_layers=-1), ("'num_hidden_layers' is -1",)),
        (tiny(num_hidden_layers=2.5), ("'num_hidden_layers' is 2.5",)),
        (tiny(num_hidden_layers="3"), ("'num_hidden_layers'", '"3"')),
        (tiny(num_hidden_layers=True), ("'num_hidden_layers' is true",)),
        (tiny(num_attention_heads=7, num_key_value_heads=7), ("7", "64", "hidden size")),
        (tiny(num_key_value_heads=3), ("3", "4", "key-value")),
        (tiny(tie_word_embeddings="yes"), ("'tie_word_embeddings'", '"yes"', "true or false")),
        (tiny(attention_dropout=-0.1), ("'attention_dropout' is -0.1",)),
        (tiny(attention_dropout="0.1"), ("'attention_dropout'",)),
        (tiny(torch_dtype="int8"), ("'torch_dtype'", "int8", "precision")),
        (tiny(model_type="mixtral", num_experts_per_tok=2), ("'num_local_experts' is missing",)),
        (
            tiny(model_type="mixtral", num_local_experts=2, num_experts_per_tok=4),
            ("4 of 2 experts",),
        ),
        (tiny(model_type="qwen3_moe", mlp_only_layers=[1]), ("'mlp_only_layers'",)),
        (tiny(model_type="qwen3_moe", decoder_sparse_step=2), ("'decoder_sparse_step'",)),
        (tiny(sliding_window=4, layer_types=["full_attention"]), ("'layer_types'",)),
        (tiny(sliding_window=4, layer_types="full_attention"), ("'layer_types'",)),
        (
            tiny(sliding_window=4, layer_types=["full_atention"] * 3),
            ("full_atention", "'full_attention'"),
        ),
        (tiny(sliding_window=4, layer_types=[{}] * 3), ("layer type {}",)),
        ({"model_type": "gemma3"}, ("'text_config' is missing",)),
        ({"model_type": "gemma3", "text_config": {}}, ("text_config", "'hidden_size' is missing")),
        (tiny(model_type="bert", architectures=["BertForMaskedLm"]), ("'BertForMaskedLM'",)),
        (tiny(model_type="bert", architectures=[]), ("architecture",)),
        ([1, 2], ("JSON object",)),
        ("text", ("JSON object",)),
    ],
)  # fmt: skip
def test_wrong_fields_are_told_in_one_sentence(
    tmp_path: Path, keys: object, words: tuple[str, ...]
) -> None:
    path = written(tmp_path, keys)
    with pytest.raises(InvalidInput) as caught:
        wl.from_config(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert text[-1] in ".?"
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("not valid JSON", "line 1")),
        (b'{"model_type": ', ("not valid JSON", "line 1, column")),
        (b"[" * 100_000, ("not valid JSON",)),
        (b'{"n": ' + b"9" * 5000 + b"}", ("not valid JSON",)),
        (b"\xff\xfe{", ("not text",)),
        (None, ("no such file",)),
    ],
    ids=["empty", "cut off", "nested", "long number", "not text", "missing"],
)
def test_unreadable_files(tmp_path: Path, content: bytes | None, words: tuple[str, ...]) -> None:
    path = tmp_path / "some.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        wl.from_config(path)
    text = str(caught.value)
    assert str(path) in text
    assert text.endswith(".")
    for word in words:
        assert word in text


def test_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"directory"):
        wl.from_config(f"{tmp_path}{os.sep}")
