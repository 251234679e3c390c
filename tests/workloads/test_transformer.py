"""Transformers: FLOPs and saved bytes against closed forms, parameters against published totals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workloads as wl
from workloads.models.costs import (
    FLASH_BACKWARD,
    Setting,
    attention_pairs,
    block_flops,
    block_saved,
    block_weight_share,
)
from workloads.models.fields import Fields
from workloads.models.huggingface import shape_of
from workloads.models.published import CONFIGS
from workloads.models.shape import Shape, block_params, params


def gpt(layers: int, hidden: int, heads: int, vocab: int, positions: int) -> Shape:
    """GPT-2's layers in other sizes."""
    fields = {
        "model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads,
        "vocab_size": vocab, "n_positions": positions,
    }  # fmt: skip
    return shape_of(Fields(fields, "test"))


def named(name: str) -> Shape:
    return shape_of(Fields(CONFIGS[name], name))


# parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "vocab", "positions", "total"),
    [
        # GPT-3 (arXiv 2005.14165) and Turing-NLG.
        (96, 12288, 96, 50257, 2048, 174_604_259_328),
        (78, 4256, 28, 50257, 1024, 17_176_845_728),
        # Megatron-LM (arXiv 1909.08053): 96 values a head, vocabulary padded.
        (40, 1536, 16, 51200, 1024, 1_213_479_936),
        (54, 1920, 20, 51200, 1024, 2_490_408_960),
        (64, 2304, 24, 51200, 1024, 4_199_109_120),
        (72, 3072, 32, 51200, 1024, 8_317_040_640),
    ],
)
def test_parameters_of_larger_gpts(
    layers: int, hidden: int, heads: int, vocab: int, positions: int, total: int
) -> None:
    assert params(gpt(layers, hidden, heads, vocab, positions)) == total


@pytest.mark.parametrize(
    ("layers", "hidden", "billions"),
    [
        (24, 2304, 1.652), (30, 3072, 3.562), (36, 4096, 7.468), (40, 6144, 18.450),
        (48, 8192, 39.096), (60, 10240, 76.051), (80, 12288, 145.622), (96, 16384, 310.131),
        (105, 20480, 529.601), (128, 25600, 1008.039),
    ],
)  # fmt: skip
def test_parameters_by_the_formula_of_narayanan(layers: int, hidden: int, billions: float) -> None:
    """P = 12 L h^2 (1 + 13 / (12 h) + (V + S) / (12 L h)), plus 2 h of the final norm."""
    found = params(gpt(layers, hidden, 1, 51200, 2048))
    formula = 12 * layers * hidden**2 + 13 * layers * hidden + (51200 + 2048) * hidden
    assert found == formula + 2 * hidden
    assert round(found / 1e9, 3) == billions


@given(
    layers=st.integers(1, 40),
    heads=st.integers(1, 8),
    head=st.integers(1, 64),
    vocab=st.integers(1, 1000),
    positions=st.integers(1, 64),
)
def test_parameters_scale(layers: int, heads: int, head: int, vocab: int, positions: int) -> None:
    hidden = heads * head
    found = gpt(layers, hidden, heads, vocab, positions)
    assert block_params(found) == 12 * hidden**2 + 13 * hidden
    outside = (vocab + positions + 2) * hidden
    assert params(found) == layers * block_params(found) + outside
    doubled = gpt(2 * layers, hidden, heads, vocab, positions)
    assert params(doubled) - outside == 2 * (params(found) - outside)


# FLOPs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2-small", "gpt2-xl", "gpt2-10b"])
@pytest.mark.parametrize("sequence", [64, 1024])
def test_flops_of_an_iteration(name: str, sequence: int) -> None:
    """Narayanan et al. with recompute, 96 s L h^2 (1 + s/6h + V/16Lh); 72 (... V/12Lh) without."""
    model, shape = wl.model(name, sequence=sequence), named(name)
    s, h, count, vocab = sequence, shape.hidden, shape.layers, shape.vocab
    forward = sum(layer.forward_flops for layer in model.layers)
    backward = sum(layer.backward_flops for layer in model.layers)
    again = sum(layer.forward_flops for layer in model.layers if layer.kind == "block")
    plain = 72 * s * count * h**2 * (1 + s / (6 * h) + vocab / (12 * count * h))
    full = 96 * s * count * h**2 * (1 + s / (6 * h) + vocab / (16 * count * h))
    assert forward + backward == pytest.approx(plain, rel=1e-12)
    assert forward + backward + again == pytest.approx(full, rel=1e-12)


def test_flops_of_a_llama_block() -> None:
    """2 s (h a d + 2 h g d + a d h + 3 h f) + 4 s^2 a d."""
    shape = named("llama-3-8b")
    s, h, keys, f = 2048, 4096, 8 * 128, 14336
    forward, backward = block_flops(shape, Setting(s, 2, flash=True, dropout=False, half=False))
    linear, attention = 2 * s * (2 * h * h + 2 * h * keys + 3 * h * f), 4 * s * s * h
    assert forward == linear + attention
    assert backward == 2 * linear + FLASH_BACKWARD * attention
    plain = Setting(s, 2, flash=False, dropout=False, half=False)
    assert block_flops(shape, plain) == (forward, 2 * forward)


def test_weight_half_of_a_gpt_block() -> None:
    """Zero bubble, table 1: 24 s h^2 of 48 s h^2 + 8 s^2 h."""
    h, s = 1024, 512
    plain = Setting(s, 2, flash=False, dropout=True, half=False)
    share = block_weight_share(gpt(2, h, 16, 1000, s), plain)
    assert share == pytest.approx(24 * h / (48 * h + 8 * s), rel=1e-12)


def test_flops_of_experts() -> None:
    """Only k of E experts, and the router: 3 h f k + h E."""
    shape = named("mixtral-8x7b")
    setting = Setting(1024, 2, flash=True, dropout=False, half=False)
    dense = block_flops(named("mistral-7b-v0.2"), setting)[0]
    more = 2 * 1024 * (3 * 4096 * 14336 + 4096 * 8)
    assert block_flops(shape, setting)[0] == dense + more


def test_causal_half() -> None:
    full, half = wl.model("gpt2-xl"), wl.model("gpt2-xl", causal="half")
    block, halved = full.layers[1], half.layers[1]
    assert block.forward_flops - halved.forward_flops == 2 * 1024**2 * 1600
    assert "full" in " ".join(full.notes)
    assert "half" in " ".join(half.notes)


@given(tokens=st.integers(1, 200), window=st.integers(1, 200))
def test_pairs_in_a_causal_window(tokens: int, window: int) -> None:
    """The closed form is the counted number of pairs but for half of each diagonal's end."""
    reach = min(tokens, window)
    counted = sum(min(i + 1, reach) for i in range(tokens))
    assert attention_pairs(tokens, window, True) == counted - reach / 2
    assert attention_pairs(tokens, window, False) == tokens * reach


def test_windows_of_the_families() -> None:
    """Mistral v0.1: every layer; Gemma 2: every other; Gemma 3: five of six."""
    assert set(named("mistral-7b-v0.1").windows) == {4096}
    assert not any(named("mistral-7b-v0.3").windows)
    assert named("gemma-2-2b").windows == (4096, 0) * 13
    assert named("gemma-3-1b").windows == ((512,) * 5 + (0,)) * 4 + (512, 512)
    flops = {layer.forward_flops for layer in wl.model("gemma-3-1b").layers[1:-2]}
    s, width = 4096, 4 * 256
    assert max(flops) - min(flops) == 4 * s * (s - 512) * width


# saved bytes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("s", "name"), [(1024, "gpt2-xl"), (512, "gpt2-small"), (512, "bert-large")]
)
def test_saved_bytes_of_korthikanti(s: int, name: str) -> None:
    """s h (34 + 5 a s / h) in 16 bits with dropout; 32 + 2 a s / h without; 34 if fused."""
    shape = named(name)
    h, a = shape.hidden, shape.heads
    fused = 4 * a * s + 16 * s  # a log-sum-exp a row and head; mean and deviation of two norms
    for flash, dropout, expected in (
        (False, True, 34 * s * h + 5 * a * s * s),
        (False, False, 32 * s * h + 2 * a * s * s),
        (True, True, 34 * s * h + fused),
        (True, False, 32 * s * h + fused),
    ):
        assert block_saved(shape, Setting(s, 2, flash, dropout, half=False)) == expected


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-8b", "llama-3.1-405b", "qwen2.5-7b"])
def test_saved_bytes_of_llama(name: str) -> None:
    """s (12 h + 4 g d + 8 f) + 4 a s + 8 s in 16 bits, fused attention, no dropout."""
    shape, s = named(name), 2048
    keys = shape.kv_heads * shape.head_dim
    expected = s * (12 * shape.hidden + 4 * keys + 8 * shape.ffn) + 4 * shape.heads * s + 8 * s
    assert block_saved(shape, Setting(s, 2, flash=True, dropout=False, half=False)) == expected
    block = wl.model(name, sequence=s).layers[1]
    assert block.stash_bytes == expected - 2 * s * shape.hidden


def test_saved_bytes_of_experts() -> None:
    """8 f k instead of 8 f, and 2 h k each for the copies of the input and the routed outputs."""
    s, setting = 512, Setting(512, 2, flash=True, dropout=False, half=False)
    dense = block_saved(named("mistral-7b-v0.2"), setting)
    more = s * (8 * 14336 + 2 * (2 * 4096 + 2 * 4096))
    assert block_saved(named("mixtral-8x7b"), setting) == dense + more


def test_saved_bytes_of_the_head() -> None:
    """Logits in fp32: 4 s V; the final norm's output is the boundary before the head."""
    model = wl.model("llama-2-7b", sequence=128)
    head, norm = model.layers[-1], model.layers[-2]
    assert head.stash_bytes == 4 * 128 * 32000
    # Their gradient in fp32, and cast to 16 bits.
    assert head.workspace_bytes == 6 * 128 * 32000
    assert norm.output_bytes == 2 * 128 * 4096
    assert wl.model("gpt2-xl").layers[-1].workspace_bytes == 4 * 1024 * 50257


def test_activations_scale_with_their_element() -> None:
    two = wl.model("gpt2-small", precision="mixed-bf16", dropout=False)
    four = wl.model("gpt2-small", precision="fp32", dropout=False)
    assert four.layers[1].stash_bytes == 2 * two.layers[1].stash_bytes
    assert four.layers[1].output_bytes == 2 * two.layers[1].output_bytes
    assert four.layers[1].forward_flops == two.layers[1].forward_flops


def test_traffic_counts_each_byte() -> None:
    """Forward reads the input, writes the output, writes and reads what it saves."""
    model = wl.model("gpt2-xl")
    for index, layer in enumerate(model.layers[1:], 1):
        edges = model.layer_input_bytes(index) + layer.output_bytes
        assert layer.forward_bytes == edges + 2 * layer.stash_bytes
        assert layer.backward_bytes > layer.forward_bytes or not layer.stash_bytes


def test_fewer_kernels_when_fused() -> None:
    fused, plain = (wl.model("gpt2-xl", flash=flash).layers[1] for flash in (True, False))
    assert 0 < fused.forward_kernels < plain.forward_kernels
    assert fused.backward_kernels > fused.forward_kernels


def test_notes_say_every_choice(tmp_path: Path) -> None:
    path = tmp_path / "tiny.json"
    fields: dict[str, Any] = {
        "model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 9,
        "n_positions": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip
    path.write_text(json.dumps(fields))
    assert "no dropout" in " ".join(wl.from_config(path).notes)
    assert "dropout masks" in " ".join(wl.from_config(path, dropout=True).notes)
    assert "unfused" in " ".join(wl.from_config(path).notes)
    assert "unfused" not in " ".join(wl.from_config(path, flash=True).notes)
    assert "131072" in " ".join(wl.model("llama-3.1-8b").notes)
