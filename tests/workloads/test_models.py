"""Named models: exact parameter counts, presets, options."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hwmodels as hw
import workloads as wl
from hwmodels.errors import InvalidInput, UnknownName
from workloads.model import OPTIMIZERS, PRECISIONS, optimizer, precision
from workloads.models.fields import Fields
from workloads.models.huggingface import shape_of
from workloads.models.published import CONFIGS
from workloads.models.shape import active_params

# Counted on the instantiated models (transformers 5.24); bert-96 and gpt2-*b by closed form.
TOTALS = {
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-base-pretraining": 110_106_428,
    "bert-large": 335_141_888,
    "bert-large-pretraining": 336_226_108,
    "bert-96": 1_242_070_016,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 3_880_263_168,
    "gemma-3-12b": 11_766_034_176,
    "gemma-3-27b": 27_009_346_304,
    # 50, 100, 150, 200 blocks of 201,379,840; embeddings, final norm and a separate output matrix.
    **{
        f"gpt2-{n // 5}b": n * 201_379_840 + 2 * 50257 * 4096 + 1024 * 4096 + 2 * 4096
        for n in (50, 100, 150, 200)
    },
    # GPT-3, Turing-NLG, Megatron-LM and the table of PTD-P, by closed form.
    **{
        name: layers * (12 * h**2 + 13 * h) + (vocab + positions + 2) * h
        for name, layers, h, vocab, positions in (
            ("gpt3-small", 12, 768, 50257, 2048),
            ("gpt3-medium", 24, 1024, 50257, 2048),
            ("gpt3-large", 24, 1536, 50257, 2048),
            ("gpt3-xl", 24, 2048, 50257, 2048),
            ("gpt3-2.7b", 32, 2560, 50257, 2048),
            ("gpt3-6.7b", 32, 4096, 50257, 2048),
            ("gpt3-13b", 40, 5120, 50257, 2048),
            ("gpt-1.7b", 24, 2304, 51200, 2048),
            ("gpt-3.6b", 30, 3072, 51200, 2048),
            ("gpt-7.5b", 36, 4096, 51200, 2048),
            ("gpt-18.4b", 40, 6144, 51200, 2048),
            ("gpt-39.1b", 48, 8192, 51200, 2048),
            ("gpt-76.1b", 60, 10240, 51200, 2048),
            ("gpt-145.6b", 80, 12288, 51200, 2048),
            ("gpt-310.1b", 96, 16384, 51200, 2048),
            ("gpt-529.6b", 105, 20480, 51200, 2048),
            ("gpt-1008b", 128, 25600, 51200, 2048),
        )
    },
    "gpt3-175b": 174_604_259_328,
    "turing-nlg": 17_176_845_728,
    "megatron-1.2b": 1_213_479_936,
    "megatron-2.5b": 2_490_408_960,
    "megatron-4.2b": 4_199_109_120,
    "megatron-8.3b": 8_317_040_640,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    # Experts of 18 blocks, their routers, MLPs of 18 blocks; attention, norms; table, final norm.
    "gshard-600b": 618_475_290_624
    + 18 * (2048 * 1024 + 2 * 1024 * 8192)
    + 36 * (4 * 1024 * 2048 + 4 * 1024)
    + 64000 * 1024
    + 2 * 1024,
    "awd-lstm-ptb": 24_221_600,
    "awd-lstm-wikitext-2": 33_556_078,
    # LSTM layers (4 n (i + n) + 8 n), attention, two tables, output matrix with bias.
    **{
        f"gnmt-{2 * count}": (2 * 8_396_800 + 12_591_104 + (count - 2) * 8_396_800)
        + (8_396_800 + (count - 1) * 12_591_104)
        + (2 * 1024**2 + 2 * 1024 + 1)
        + 3 * 32000 * 1024
        + 32000
        for count in (4, 8)
    },
    "vit-b-16": 86_567_656,
    "vit-l-16": 304_326_632,
    "vit-h-14": 632_045_800,
    "vgg16": 138_357_544,
    "vgg416": 577_894_184,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "resnet1026": 801_800_232,
    "alexnet": 61_100_840,
    "alexnet-2012": 60_965_224,
    "lenet5": 60_000,
    "dqn-4": 677_172,
    "dqn-18": 680_770,
    "se-resnet50": 28_088_024,
    "senet154": 115_088_984,
    "hrnet-w18": 21_299_004,
    "hrnet-w30": 37_712_220,
    "hrnet-w32": 41_232_680,
    "hrnet-w40": 57_557_160,
    "hrnet-w44": 67_064_984,
    "hrnet-w48": 77_469_864,
    "hrnet-w64": 128_059_944,
    "amoebanet-d-18-208": 81_505_540,
    "amoebanet-d-18-256": 122_470_120,
    "amoebanet-d-18-416": 319_024_120,
    "amoebanet-d-18-544": 542_734_840,
    "amoebanet-d-36-544": 1_055_832_376,
    "amoebanet-d-72-512": 1_844_858_344,
}

ACTIVE = {
    "mixtral-8x7b": 12_879_925_248,
    "mixtral-8x22b": 39_161_468_928,
    "qwen3-30b-a3b": 3_353_032_704,
    "qwen3-235b-a22b": 22_190_763_520,
}


@pytest.mark.parametrize("name", TOTALS)
def test_parameters_are_exact(name: str) -> None:
    assert wl.model(name).params == TOTALS[name]


def test_every_named_model_has_its_total_tested() -> None:
    assert {name for name in wl.models() if not name.startswith("harmony/")} == set(TOTALS)


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters(name: str) -> None:
    assert active_params(shape_of(Fields(CONFIGS[name], name))) == ACTIVE[name]
    assert f"{ACTIVE[name]:,}" in " ".join(wl.model(name).notes)


def test_measured_models_are_listed_and_load() -> None:
    measured = [name for name in wl.models() if name.startswith("harmony/")]
    assert "harmony/gpt2-xl" in measured
    found = wl.model("harmony/gpt2-xl")
    assert found.profile is not None
    # Harmony keeps the output matrix apart from the embedding.
    assert found.params == TOTALS["gpt2-xl"] + 50257 * 1600
    assert wl.model("harmony/gpt2-10b").params == TOTALS["gpt2-10b"]


def test_layers_are_a_chain_with_unique_names() -> None:
    for name in CONFIGS:
        found = wl.model(name)
        names = [layer.name for layer in found.layers]
        assert len(set(names)) == len(names)
        assert (names[0], names[-1]) == ("embedding", "head")
        assert found.layers[-1].output_bytes == 0
        edges = {layer.output_bytes for layer in found.layers[:-1]}
        width = found.precision.activation
        hidden = shape_of(Fields(CONFIGS[name], name)).hidden
        assert edges == {found.tokens * hidden * width}


def test_layers_of_one_kind_are_alike() -> None:
    for name in ("gpt2-xl", "gemma-3-1b", "gemma-2-2b", "mistral-7b-v0.1"):
        kinds: dict[str, set[tuple[Any, ...]]] = {}
        for layer in wl.model(name, sequence=6000 if "gpt2" not in name else 512).layers:
            sizes = (layer.params, layer.stash_bytes, layer.forward_flops, layer.backward_bytes)
            kinds.setdefault(layer.kind, set()).add(sizes)
        assert {kind: len(found) for kind, found in kinds.items()} == dict.fromkeys(kinds, 1)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "harmony-pp"])
@pytest.mark.parametrize(
    "name", ["t5-small", "gnmt-8", "vit-b-16", "lenet5", "hrnet-w18", "amoebanet-d-18-208"]
)
def test_chains_can_be_scheduled(name: str, schedule: str) -> None:
    box = hw.server("pcie-4u-4x1080ti")
    wl.schedule(schedule, wl.model(name), box, minibatch=8, microbatch=2).check()


def test_tied_matrix_is_one_block_read_twice() -> None:
    found = wl.model("gpt2-small")
    first, last = found.layers[0], found.layers[-1]
    shared = [weight for weight in first.weights if weight in last.weights]
    assert [weight.params for weight in shared] == [50257 * 768]
    assert sum(layer.params for layer in found.layers) == found.params + 50257 * 768
    untied = wl.model("llama-2-7b")
    assert sum(layer.params for layer in untied.layers) == untied.params


# precision and optimizer -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "adam_bytes"),
    [
        ("fp32", 16),
        ("tf32", 16),
        ("mixed-fp16", 16),  # ZeRO: 2 + 2 + 4 + 4 + 4
        ("mixed-bf16", 16),
        ("mixed-bf16-fp32-gradients", 18),  # Megatron-LM: gradients in fp32
        ("bf16", 8),
    ],
)
def test_bytes_per_parameter(name: str, adam_bytes: int) -> None:
    found = wl.model("gpt2-small", precision=name)
    weight = found.weights[0]
    each = found.weight_bytes(weight) + found.gradient_bytes(weight) + found.state_bytes(weight)
    assert each == adam_bytes * weight.params
    assert precision(found.precision) is found.precision is PRECISIONS[name]


@pytest.mark.parametrize(("name", "states"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
def test_states_of_optimizers(name: str, states: int) -> None:
    found = wl.model("gpt2-small", optimizer=name)
    assert found.state_bytes(found.weights[0]) == 4 * states * found.weights[0].params
    assert optimizer(found.optimizer) is found.optimizer is OPTIMIZERS[name]


def test_defaults() -> None:
    for name, bits, rule in (
        ("gpt2-xl", "fp32", "adam"),
        ("bert-large", "fp32", "adam"),
        ("llama-3-8b", "mixed-bf16", "adam"),
        ("vgg416", "fp32", "momentum"),
        ("gpt3-175b", "mixed-fp16", "adam"),
        ("gshard-600b", "mixed-bf16", "adam"),
        ("t5-11b", "fp32", "adam"),
        ("awd-lstm-ptb", "fp32", "sgd"),
        ("hrnet-w48", "fp32", "momentum"),
    ):
        found = wl.model(name)
        assert (found.precision.name, found.optimizer.name) == (bits, rule)


def test_own_precision_and_optimizer() -> None:
    bits = wl.Precision("mine", "bf16", 2, 6, 4, 4, 2)
    rule = wl.Optimizer("lion", 1, 8)
    found = wl.model("gpt2-small", precision=bits, optimizer=rule)
    assert (found.precision, found.optimizer) == (bits, rule)


# errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gtp2-xl", {}, ("gtp2-xl", "gpt2-xl")),
        ("resnet-50", {}, ("resnet50",)),
        ("harmony/gpt2-xx", {}, ("harmony/gpt2-xl",)),
        ("gpt2-xl", {"precision": "fp23"}, ("fp23", "fp32")),
        ("gpt2-xl", {"precision": ""}, ("Precision", "fp32")),
        ("gpt2-xl", {"optimizer": "adan"}, ("adan", "adam")),
    ],
)
def test_unknown_names(name: str, options: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(UnknownName) as caught:
        wl.model(name, **options)
    assert_sentence(str(caught.value), words)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gpt2-xl", {"sequence": 1025}, ("1025", "1024")),
        ("gpt2-xl", {"sequence": 0}, ("sequence", "0")),
        ("gpt2-xl", {"causal": "third"}, ("third", "half")),
        ("bert-large", {"causal": "half"}, ("bert-large", "full")),
        ("gpt2-xl", {"pixels": 224}, ("gpt2-xl", "pixels")),
        ("vgg416", {"sequence": 3}, ("vgg416", "sequence")),
        ("vgg416", {"pixels": 256}, ("vgg416", "pixels")),
        ("vit-b-16", {"sequence": 3}, ("vit-b-16", "sequence")),
        ("t5-small", {"sequence": 0}, ("sequence", "0")),
        ("t5-small", {"causal": "third"}, ("third", "half")),
        ("t5-small", {"pixels": 224}, ("t5-small", "pixels")),
        ("gnmt-16", {"flash": True}, ("gnmt-16", "flash")),
        ("awd-lstm-ptb", {"sequence": -1}, ("sequence", "-1")),
        ("resnet1026", {"flash": False}, ("resnet1026", "flash")),
        ("harmony/gpt2-xl", {"precision": "fp32"}, ("harmony/gpt2-xl", "precision")),
        ("harmony/bert-96", {"sequence": 128}, ("harmony/bert-96", "sequence")),
    ],
)
def test_options_that_do_not_apply(
    name: str, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        wl.model(name, **options)
    assert_sentence(str(caught.value), words)


def assert_sentence(text: str, words: tuple[str, ...]) -> None:
    assert "\n" not in text
    assert text[-1] in ".?"
    for word in words:
        assert word in text


# properties --------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(["gpt2-small", "llama-3.2-1b", "gemma-2-2b", "mixtral-8x7b"]),
    sequence=st.integers(1, 1024),
    flash=st.booleans(),
    dropout=st.booleans(),
)
def test_sequence_changes_work_and_activations_but_not_parameters(
    name: str, sequence: int, flash: bool, dropout: bool
) -> None:
    one = wl.model(name, sequence=sequence, flash=flash, dropout=dropout)
    assert one.params == TOTALS[name]
    assert one.tokens == sequence
    if sequence == 1024:
        return
    more = wl.model(name, sequence=sequence + 1, flash=flash, dropout=dropout)
    for small, large in zip(one.layers, more.layers, strict=True):
        assert small.stash_bytes <= large.stash_bytes
        assert small.workspace_bytes <= large.workspace_bytes
        assert small.forward_flops <= large.forward_flops
        assert small.forward_bytes < large.forward_bytes
